#include "runtime/program/parameter_store.h"

#include "runtime/base/math.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace troupe {
namespace {

std::string shape_text(std::uint32_t rows, std::uint32_t columns) {
  return "[" + std::to_string(rows) + ", " + std::to_string(columns) + "]";
}

bool is_float(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kBF16 || dtype == DType::kF16;
}

PackSource source_of(const TensorView& t) {
  return {.data = t.data,
          .dtype = t.dtype,
          .rows = t.rows,
          .columns = t.columns,
          .first_row = t.first_row,
          .row_map = t.row_map.empty() ? nullptr : t.row_map.data(),
          .scale = t.scale,
          .scale_dtype = t.scale_dtype,
          .scale_columns = t.scale_columns};
}

void pack_matrix(const PackedParameter& p,
                 const TensorView& t,
                 std::uint32_t place,
                 std::byte* arena) {
  const std::uint32_t matrix = place / p.per_matrix;
  float* scales = nullptr;
  if (p.format == WeightFormat::kPanelF8) {
    scales = reinterpret_cast<float*>(arena + p.scale_offset + matrix * p.scale_bytes);
  }
  pack_panels(source_of(t),
              p.format,
              arena + p.offset + matrix * p.matrix_bytes,
              scales,
              place % p.per_matrix,
              p.per_matrix);
}

void copy_table(const PackedParameter& p, const TensorView& t, std::byte* to) {
  const std::size_t row_bytes = std::size_t{t.columns} * size_of(p.table_type);
  for (std::uint32_t r = 0; r < t.rows; ++r) {
    std::memcpy(to + r * row_bytes, t.data + t.stored_row(r) * row_bytes, row_bytes);
  }
}

void convert_vector(const PackedParameter& p, const TensorView& t, float* to) {
  for (std::uint32_t r = 0; r < t.rows; ++r) {
    for (std::uint32_t c = 0; c < t.columns; ++c) {
      const float w = load_as_f32(t.data, t.dtype, std::size_t{t.stored_row(r)} * t.columns + c);
      switch (p.packing) {
        case Packing::kOnePlus:
          to[std::size_t{r} * t.columns + c] = 1.0F + w;
          break;
        case Packing::kNegativeExp:
          to[std::size_t{r} * t.columns + c] = static_cast<float>(-exp_d(static_cast<double>(w)));
          break;
        case Packing::kTransposed:
          to[std::size_t{c} * t.rows + r] = w;
          break;
        default:
          to[std::size_t{r} * t.columns + c] = w;
      }
    }
  }
}

}  // namespace

std::vector<float> rope_inverse_frequencies(const RopeConfig& rope) {
  const double dims = rope.rotary_dims;
  const std::uint32_t half = rope.rotary_dims / 2;
  std::vector<float> table(half);
  double low = 0;
  double high = 1;
  if (rope.yarn) {
    constexpr double kPi = 3.14159265358979323846;
    const auto correction = [&](double rotations) {
      return dims * log_d(rope.original_context / (rotations * 2 * kPi)) / (2 * log_d(rope.theta));
    };
    low = correction(rope.beta_fast);
    high = correction(rope.beta_slow);
    if (rope.truncate) {
      low = std::floor(low);
      high = std::ceil(high);
    }
    low = std::max(low, 0.0);
    high = std::min(high, dims - 1);
    if (low == high) {
      high += 0.001;
    }
  }
  for (std::uint32_t i = 0; i < half; ++i) {
    double frequency = 1.0 / pow_d(rope.theta, 2.0 * i / dims);
    if (rope.yarn) {
      const double ramp = std::clamp((i - low) / (high - low), 0.0, 1.0);
      frequency = frequency * (1 - ramp) + frequency / rope.factor * ramp;
    }
    table[i] = static_cast<float>(frequency);
  }
  return table;
}

ParameterStore::ParameterStore(const WeightLayout& layout,
                               std::byte* arena,
                               const ModelConfig& config,
                               Arena contents)
    : layout_(layout), arena_(arena) {
  for (const PackedParameter& p : layout.parameters) {
    auto& stored = stored_.emplace_back(std::make_unique<std::atomic<bool>[]>(p.names.size()));
    for (std::size_t i = 0; i < p.names.size(); ++i) {
      stored[i].store(contents == Arena::kPacked, std::memory_order_relaxed);
    }
  }
  if (contents == Arena::kPacked) {
    return;
  }
  const std::vector<float> table = rope_inverse_frequencies(config.rope);
  std::memcpy(arena + layout.rope_offset, table.data(), table.size() * sizeof(float));
}

Status ParameterStore::store(const TensorView& tensor) {
  const auto found = layout_.index.find(tensor.name);
  if (found == layout_.index.end()) {
    return error(Kind::kInvalid, "this stage has no parameter " + tensor.name);
  }
  const auto [index, place] = found->second;
  const PackedParameter& p = layout_.parameters[index];
  if (tensor.rows != p.rows || tensor.columns != p.columns) {
    return error(Kind::kInvalid,
                 "parameter " + tensor.name + ": expected shape " + shape_text(p.rows, p.columns) +
                     ", found " + shape_text(tensor.rows, tensor.columns));
  }
  if (p.packing == Packing::kPanels) {
    if (!(is_float(tensor.dtype) || tensor.dtype == DType::kF8E4M3) ||
        panel_format(tensor.dtype) != p.format) {
      return error(Kind::kInvalid,
                   "parameter " + tensor.name + ": its place was laid out for another type than " +
                       std::string(name(tensor.dtype)));
    }
    if (tensor.dtype == DType::kF8E4M3 && tensor.scale == nullptr) {
      return error(Kind::kInvalid, "parameter " + tensor.name + ": F8_E4M3 needs its block scales");
    }
    pack_matrix(p, tensor, place, arena_);
  } else if (p.packing == Packing::kTable) {
    if (tensor.dtype != p.table_type) {
      return error(Kind::kInvalid,
                   "parameter " + tensor.name + ": expected " + std::string(name(p.table_type)) +
                       ", found " + std::string(name(tensor.dtype)));
    }
    copy_table(p, tensor, arena_ + p.offset);
  } else {
    if (!is_float(tensor.dtype)) {
      return error(Kind::kInvalid,
                   "parameter " + tensor.name + ": expected F32, BF16 or F16, found " +
                       std::string(name(tensor.dtype)));
    }
    convert_vector(p, tensor, reinterpret_cast<float*>(arena_ + p.offset));
  }
  stored_[index][place].store(true, std::memory_order_release);
  return {};
}

Status ParameterStore::check_complete() const {
  std::size_t missing = 0;
  const std::string* first = nullptr;
  for (std::size_t i = 0; i < layout_.parameters.size(); ++i) {
    const auto& names = layout_.parameters[i].names;
    for (std::size_t j = 0; j < names.size(); ++j) {
      if (!stored_[i][j].load(std::memory_order_acquire)) {
        first = first == nullptr ? &names[j] : first;
        ++missing;
      }
    }
  }
  if (missing > 0) {
    return error(Kind::kInvalid,
                 "parameter " + *first + " is missing (" + std::to_string(missing) + " of " +
                     std::to_string(layout_.index.size()) + " are)");
  }
  return {};
}

std::uint32_t ParameterStore::columns(std::string_view name) const {
  const auto found = layout_.index.find(name);
  return found == layout_.index.end() ? 0 : layout_.parameters[found->second.first].columns;
}

std::uint32_t ParameterStore::rows(std::string_view name) const {
  const auto found = layout_.index.find(name);
  return found == layout_.index.end() ? 0 : layout_.parameters[found->second.first].rows;
}

}  // namespace troupe
