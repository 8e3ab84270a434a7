// Packing of weights into panels (kernels/ops.h): a transpose of 16 rows at the grain of two
// inputs, so that the vector that a kernel loads holds 16 outputs. Done once per tensor or expert
// while loading, bound by memory.
#include "kernels/ops.h"
#include "runtime/base/error.h"

#include <array>
#include <bit>
#include <cstring>

namespace troupe {
namespace {

constexpr std::uint32_t kPanelOutputs = 16;
constexpr std::uint32_t kBlockPairs = 16;    // pairs of a block: 32 inputs
constexpr std::uint32_t kScaleInputs = 128;  // inputs, and stored rows, under one scale

// The 16 stored rows of a panel; null beyond the last.
using PanelRows = std::array<const std::byte*, kPanelOutputs>;

std::uint32_t stored_row(const PackSource& source, std::uint32_t row) {
  return source.row_map != nullptr ? source.row_map[row] : source.first_row + row;
}

PanelRows rows_of_panel(const PackSource& source, std::uint32_t panel) {
  const std::size_t row_bytes = std::size_t{source.columns} * size_of(source.dtype);
  PanelRows rows{};
  for (std::uint32_t lane = 0; lane < kPanelOutputs; ++lane) {
    const std::uint32_t row = panel * kPanelOutputs + lane;
    if (row < source.rows) {
      rows[lane] = source.data + stored_row(source, row) * row_bytes;
    }
  }
  return rows;
}

// One panel of the same element: Pair is an unsigned integer as wide as two elements. Walks 16
// pairs of a row at a time, so that the 16 streams are read by whole cache lines and the written
// block stays in the first-level cache.
template <class Pair>
void copy_panel(const PanelRows& rows, std::uint32_t columns, std::byte* out) {
  constexpr std::size_t kBlockBytes = kBlockPairs * kPanelOutputs * sizeof(Pair);
  const std::uint32_t blocks = (columns + 2 * kBlockPairs - 1) / (2 * kBlockPairs);
  for (std::uint32_t block = 0; block < blocks; ++block, out += kBlockBytes) {
    const std::uint32_t begin = block * 2 * kBlockPairs;
    const bool whole = columns - begin >= 2 * kBlockPairs;
    for (std::uint32_t lane = 0; lane < kPanelOutputs; ++lane) {
      std::array<Pair, kBlockPairs> pairs{};
      if (rows[lane] != nullptr && whole) {
        std::memcpy(pairs.data(), rows[lane] + begin * sizeof(Pair) / 2, sizeof pairs);
      } else if (rows[lane] != nullptr) {
        std::memcpy(pairs.data(),
                    rows[lane] + begin * sizeof(Pair) / 2,
                    (columns - begin) * sizeof(Pair) / 2);
      }
      std::byte* to = out + lane * sizeof(Pair);
      for (std::uint32_t pair = 0; pair < kBlockPairs; ++pair, to += kPanelOutputs * sizeof(Pair)) {
        std::memcpy(to, &pairs[pair], sizeof(Pair));
      }
    }
  }
}

void widen_panel(const PanelRows& rows, DType dtype, std::uint32_t columns, std::byte* out) {
  std::memset(out, 0, panel_elements(columns) * sizeof(float));
  for (std::uint32_t lane = 0; lane < kPanelOutputs; ++lane) {
    if (rows[lane] == nullptr) {
      continue;
    }
    for (std::uint32_t column = 0; column < columns; ++column) {
      const float value = load_as_f32(rows[lane], dtype, column);
      const std::size_t index = (std::size_t{column} / 2 * kPanelOutputs + lane) * 2 + column % 2;
      std::memcpy(out + index * sizeof(float), &value, sizeof value);
    }
  }
}

void pack_scales(const PackSource& source, std::uint32_t panel, float* out) {
  const std::uint32_t blocks = (source.columns + kScaleInputs - 1) / kScaleInputs;
  for (std::uint32_t block = 0; block < blocks; ++block) {
    for (std::uint32_t lane = 0; lane < kPanelOutputs; ++lane) {
      const std::uint32_t row = panel * kPanelOutputs + lane;
      float scale = 0;
      if (row < source.rows) {
        const std::size_t scale_row = stored_row(source, row) / kScaleInputs;
        scale = source.scale == nullptr ? 1.0F
                                        : load_as_f32(source.scale,
                                                      source.scale_dtype,
                                                      scale_row * source.scale_columns + block);
      }
      out[std::size_t{block} * kPanelOutputs + lane] = scale;
    }
  }
}

}  // namespace

WeightFormat panel_format(DType dtype) {
  switch (dtype) {
    case DType::kBF16:
      return WeightFormat::kPanelBF16;
    case DType::kF8E4M3:
      return WeightFormat::kPanelF8;
    case DType::kF16:
    case DType::kF32:
      return WeightFormat::kPanelF32;
    default:
      TROUPE_CHECK(false, "weights are BF16, F16, F32 or F8_E4M3");
  }
}

std::uint64_t packed_bytes(WeightFormat format, std::uint64_t outputs, std::uint64_t inputs) {
  return panel_count(outputs) * panel_elements(inputs) * size_of(format);
}

std::uint64_t packed_scale_bytes(std::uint64_t outputs, std::uint64_t inputs) {
  return panel_count(outputs) * ((inputs + kScaleInputs - 1) / kScaleInputs) * kPanelOutputs *
         sizeof(float);
}

void pack_panels(const PackSource& source,
                 WeightFormat format,
                 std::byte* out,
                 float* scales,
                 std::uint32_t first_panel,
                 std::uint32_t panel_step) {
  TROUPE_CHECK(format == panel_format(source.dtype) ||
                   (format == WeightFormat::kPanelF32 && source.dtype == DType::kBF16),
               "the panel format must hold the stored type exactly");
  TROUPE_CHECK((format == WeightFormat::kPanelF8) == (scales != nullptr),
               "F8 panels, and only they, have scales");
  const std::uint64_t panel_bytes = packed_bytes(format, kPanelOutputs, source.columns);
  const std::uint64_t panel_scales =
      packed_scale_bytes(kPanelOutputs, source.columns) / sizeof(float);
  const auto panels = static_cast<std::uint32_t>(panel_count(source.rows));
  for (std::uint32_t panel = 0; panel < panels; ++panel) {
    const std::uint64_t target = first_panel + std::uint64_t{panel} * panel_step;
    const PanelRows rows = rows_of_panel(source, panel);
    std::byte* to = out + target * panel_bytes;
    if (size_of(source.dtype) != size_of(format)) {
      widen_panel(rows, source.dtype, source.columns, to);
    } else if (format == WeightFormat::kPanelBF16) {
      copy_panel<std::uint32_t>(rows, source.columns, to);
    } else if (format == WeightFormat::kPanelF32) {
      copy_panel<std::uint64_t>(rows, source.columns, to);
    } else {
      copy_panel<std::uint16_t>(rows, source.columns, to);
      pack_scales(source, panel, scales + target * panel_scales);
    }
  }
}

}  // namespace troupe
