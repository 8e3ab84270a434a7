#include "runtime/model/layout.h"

namespace troupe {
namespace {

// Appends `count` rows from `first` on.
void append_run(RowMap& map, std::uint32_t first, std::uint32_t count) {
  for (std::uint32_t i = 0; i < count; ++i) {
    map.push_back(first + i);
  }
}

// A run of `width` rows out of every group of `stride`, `offset` rows into it.
RowMap strided(std::uint32_t groups,
               std::uint32_t stride,
               std::uint32_t offset,
               std::uint32_t width) {
  RowMap map;
  map.reserve(std::size_t{groups} * width);
  for (std::uint32_t group = 0; group < groups; ++group) {
    append_run(map, group * stride + offset, width);
  }
  return map;
}

struct Group {
  std::uint32_t values;  // rows of v, and of z, in a key head's group
  std::uint32_t stride;  // rows of the group
};

Group group_of(const ModelConfig& config) {
  const std::uint32_t values = config.gdn_value_heads / config.gdn_key_heads * config.gdn_value_dim;
  return {values, 2 * config.gdn_key_dim + 2 * values};
}

}  // namespace

RowMap fused_qkv_rows(const ModelConfig& config) {
  const Group group = group_of(config);
  const std::uint32_t dim = config.gdn_key_dim;
  RowMap map = strided(config.gdn_key_heads, group.stride, 0, dim);
  const RowMap keys = strided(config.gdn_key_heads, group.stride, dim, dim);
  const RowMap values = strided(config.gdn_key_heads, group.stride, 2 * dim, group.values);
  map.insert(map.end(), keys.begin(), keys.end());
  map.insert(map.end(), values.begin(), values.end());
  return map;
}

RowMap fused_z_rows(const ModelConfig& config) {
  const Group group = group_of(config);
  return strided(
      config.gdn_key_heads, group.stride, 2 * config.gdn_key_dim + group.values, group.values);
}

RowMap fused_b_rows(const ModelConfig& config) {
  const std::uint32_t ratio = config.gdn_value_heads / config.gdn_key_heads;
  return strided(config.gdn_key_heads, 2 * ratio, 0, ratio);
}

RowMap fused_a_rows(const ModelConfig& config) {
  const std::uint32_t ratio = config.gdn_value_heads / config.gdn_key_heads;
  return strided(config.gdn_key_heads, 2 * ratio, ratio, ratio);
}

RowMap query_rows(const ModelConfig& config) {
  return strided(config.attention_heads, 2 * config.head_dim, 0, config.head_dim);
}

RowMap gate_rows(const ModelConfig& config) {
  return strided(config.attention_heads, 2 * config.head_dim, config.head_dim, config.head_dim);
}

}  // namespace troupe
