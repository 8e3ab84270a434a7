// State pages and KV blocks in wire form: the device's own layout (window [W-1][channels], K as a
// panel) stays private.
#include "runtime/program/device_executable.h"

#include <string>

namespace troupe {
namespace {

constexpr Time kIdleDeadline = std::chrono::minutes(10);

float load_act(const std::byte* base, Activation act, std::size_t index) {
  return load_as_f32(base, act == Activation::kBF16 ? DType::kBF16 : DType::kF32, index);
}

Status check_index(const char* what, std::uint32_t index, std::uint32_t count) {
  if (index >= count) {
    return error(Kind::kInvalid,
                 std::string(what) + " " + std::to_string(index) +
                     " does not exist: the stage has " + std::to_string(count));
  }
  return {};
}

}  // namespace

Result<std::vector<StatePages::LayerState>> DeviceExecutable::read_page(PageRef page) {
  TROUPE_TRY(check_index("page", page.index, page_count()));
  TROUPE_TRY(stage_.device->drain(kIdleDeadline));
  const ModelConfig& c = stage_.config;
  const std::size_t channels = c.gdn_conv_channels();
  const std::size_t taps = c.conv_kernel - 1;
  const std::size_t values = std::size_t{c.gdn_value_heads} * c.gdn_key_dim * c.gdn_value_dim;
  std::vector<LayerState> layers;
  for (const GdnPlace& place : stage_.states.gdn) {
    const std::byte* base = stage_.page_memory->data() + page.index * stage_.states.page_bytes;
    const auto* state = reinterpret_cast<const float*>(base + place.state_offset);
    const auto* window = reinterpret_cast<const float*>(base + place.window_offset);
    LayerState layer{.layer = place.layer, .state = std::vector<float>(state, state + values)};
    layer.window.resize(channels * taps);
    for (std::size_t t = 0; t < taps; ++t) {
      for (std::size_t ch = 0; ch < channels; ++ch) {
        layer.window[ch * taps + t] = window[t * channels + ch];
      }
    }
    layers.push_back(std::move(layer));
  }
  return layers;
}

Status DeviceExecutable::write_page(PageRef page, std::span<const LayerState> layers) {
  TROUPE_TRY(check_index("page", page.index, page_count()));
  if (page.index == kZeroPage) {
    return error(Kind::kInvalid, "page 0 is the zero page and is never written");
  }
  if (layers.size() != stage_.states.gdn.size()) {
    return error(Kind::kInvalid,
                 std::to_string(layers.size()) + " layer states for " +
                     std::to_string(stage_.states.gdn.size()) + " GatedDeltaNet layers");
  }
  TROUPE_TRY(stage_.device->drain(kIdleDeadline));
  const ModelConfig& c = stage_.config;
  const std::size_t channels = c.gdn_conv_channels();
  const std::size_t taps = c.conv_kernel - 1;
  const std::size_t values = std::size_t{c.gdn_value_heads} * c.gdn_key_dim * c.gdn_value_dim;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const GdnPlace& place = stage_.states.gdn[i];
    if (layers[i].layer != place.layer || layers[i].state.size() != values ||
        layers[i].window.size() != channels * taps) {
      return error(Kind::kInvalid,
                   "state of layer " + std::to_string(layers[i].layer) + " has " +
                       std::to_string(layers[i].state.size()) + " + " +
                       std::to_string(layers[i].window.size()) + " values; expected layer " +
                       std::to_string(place.layer) + " with " + std::to_string(values) + " + " +
                       std::to_string(channels * taps));
    }
  }
  std::byte* base = stage_.page_memory->data() + page.index * stage_.states.page_bytes;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const GdnPlace& place = stage_.states.gdn[i];
    auto* state = reinterpret_cast<float*>(base + place.state_offset);
    auto* window = reinterpret_cast<float*>(base + place.window_offset);
    for (std::size_t v = 0; v < values; ++v) {
      state[v] = layers[i].state[v];
    }
    for (std::size_t t = 0; t < taps; ++t) {
      for (std::size_t ch = 0; ch < channels; ++ch) {
        window[t * channels + ch] = layers[i].window[ch * taps + t];
      }
    }
  }
  return {};
}

Result<std::vector<StatePages::LayerKv>> DeviceExecutable::read_block(BlockRef block) {
  TROUPE_TRY(check_index("KV block", block.index, block_count()));
  TROUPE_TRY(stage_.device->drain(kIdleDeadline));
  const std::size_t heads = stage_.config.kv_heads;
  const std::size_t dim = stage_.config.head_dim;
  std::vector<LayerKv> layers;
  for (std::size_t a = 0; a < stage_.states.attention_layers.size(); ++a) {
    const std::byte* base = stage_.kv_memory->data() +
                            (a * block_count() + block.index) * stage_.states.layer_block_bytes;
    LayerKv layer{.layer = stage_.states.attention_layers[a]};
    layer.keys.resize(heads * kBlockTokens * dim);
    layer.values.resize(heads * kBlockTokens * dim);
    for (std::size_t h = 0; h < heads; ++h) {
      const std::size_t head = h * kBlockTokens * dim;
      const std::size_t all_keys = heads * kBlockTokens * dim;
      for (std::size_t p = 0; p < kBlockTokens; ++p) {
        for (std::size_t d = 0; d < dim; ++d) {
          const std::size_t panel = ((p / 16 * (dim / 2) + d / 2) * 16 + p % 16) * 2 + d % 2;
          layer.keys[head + p * dim + d] = load_act(base, stage_.activation, head + panel);
          layer.values[head + p * dim + d] =
              load_act(base, stage_.activation, all_keys + head + p * dim + d);
        }
      }
    }
    layers.push_back(std::move(layer));
  }
  return layers;
}

}  // namespace troupe
