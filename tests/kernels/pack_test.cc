#include "tests/kernels/gemm_support.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

namespace troupe::testing {
namespace {

// The element of output `output` and input `input` in panels of any format.
double unpacked(const std::vector<std::byte>& panels,
                WeightFormat format,
                std::uint64_t inputs,
                std::uint64_t output,
                std::uint64_t input) {
  const std::uint64_t index =
      output / 16 * panel_elements(inputs) + (input / 2 * 16 + output % 16) * 2 + input % 2;
  const DType dtype = format == WeightFormat::kPanelBF16 ? DType::kBF16
                      : format == WeightFormat::kPanelF8 ? DType::kF8E4M3
                                                         : DType::kF32;
  return load_as_f32(panels.data(), dtype, index);
}

struct Packed {
  std::vector<std::byte> panels;
  std::vector<float> scales;
};

Packed pack(const PackSource& source, std::uint32_t outputs) {
  const WeightFormat format = panel_format(source.dtype);
  Packed packed;
  packed.panels.assign(packed_bytes(format, outputs, source.columns), std::byte{0xa5});
  packed.scales.assign(packed_scale_bytes(outputs, source.columns) / sizeof(float), -1.0F);
  pack_panels(source,
              format,
              packed.panels.data(),
              format == WeightFormat::kPanelF8 ? packed.scales.data() : nullptr);
  return packed;
}

// How many elements of the panels, padding included, are not what they should be.
int wrong_elements(const Packed& packed, const Matrix& matrix) {
  const WeightFormat format = panel_format(matrix.dtype);
  int wrong = 0;
  for (std::uint32_t output = 0; output < panel_count(matrix.rows) * 16; ++output) {
    for (std::uint32_t input = 0; input < panel_elements(matrix.columns) / 16; ++input) {
      const bool real = output < matrix.rows && input < matrix.columns;
      const double wanted = real ? matrix.value(output, input) : 0;
      wrong += unpacked(packed.panels, format, matrix.columns, output, input) == wanted ? 0 : 1;
    }
  }
  return wrong;
}

TEST(Packing, KeepsEveryElementAndPadsWithZeros) {
  Rng rng(1);
  for (const DType type : {DType::kBF16, DType::kF16, DType::kF32, DType::kF8E4M3}) {
    for (const auto& [rows, columns] :
         {std::pair{1U, 1U}, {16U, 32U}, {17U, 33U}, {40U, 127U}, {64U, 256U}}) {
      const Matrix matrix = random_matrix(rows, columns, type, rng);
      EXPECT_EQ(wrong_elements(pack(source_of(matrix), rows), matrix), 0)
          << name(type) << " " << rows << " x " << columns;
    }
  }
}

TEST(Packing, ChoosesTheFormatThatHoldsATypeExactly) {
  EXPECT_EQ(panel_format(DType::kBF16), WeightFormat::kPanelBF16);
  EXPECT_EQ(panel_format(DType::kF16), WeightFormat::kPanelF32);
  EXPECT_EQ(panel_format(DType::kF32), WeightFormat::kPanelF32);
  EXPECT_EQ(panel_format(DType::kF8E4M3), WeightFormat::kPanelF8);
}

TEST(Packing, CountsBytesOfPaddedPanels) {
  EXPECT_EQ(packed_bytes(WeightFormat::kPanelBF16, 17, 33), 2U * 64 * 16 * 2);
  EXPECT_EQ(packed_bytes(WeightFormat::kPanelF8, 16, 32), 32U * 16);
  EXPECT_EQ(packed_scale_bytes(17, 129), 2U * 2 * 16 * 4);
}

TEST(Packing, TakesRowsFromAnOffset) {
  Rng rng(2);
  const Matrix matrix = random_matrix(50, 40, DType::kBF16, rng);
  PackSource source = source_of(matrix);
  source.first_row = 30;
  source.rows = 20;
  const Packed packed = pack(source, 20);
  for (std::uint32_t row = 0; row < 20; ++row) {
    EXPECT_EQ(unpacked(packed.panels, WeightFormat::kPanelBF16, 40, row, 39),
              matrix.value(30 + row, 39));
  }
}

TEST(Packing, TakesRowsByAMapWithTheScalesOfTheirStoredRows) {
  Rng rng(3);
  const Matrix matrix = random_matrix(300, 200, DType::kF8E4M3, rng);
  std::vector<std::uint32_t> map;
  for (std::uint32_t row = 0; row < 100; ++row) {
    map.push_back(row * 37 % 300);  // neighbours come from different scale blocks
  }
  PackSource source = source_of(matrix);
  source.rows = 100;
  source.row_map = map.data();
  const Packed packed = pack(source, 100);
  int wrong = 0;
  for (std::uint32_t row = 0; row < 100; ++row) {
    for (std::uint32_t column = 0; column < 200; ++column) {
      const double element = unpacked(packed.panels, WeightFormat::kPanelF8, 200, row, column);
      const double scale = packed.scales[(row / 16 * 2 + column / 128) * 16 + row % 16];
      wrong += element * scale == matrix.scaled(map[row], column) ? 0 : 1;
    }
  }
  EXPECT_EQ(wrong, 0);
}

TEST(Packing, ReadsScalesOfAnyType) {
  Rng rng(4);
  Matrix matrix = random_matrix(16, 256, DType::kF8E4M3, rng);
  const std::array<bf16, 2> scales = {f32_to_bf16(0.75F), f32_to_bf16(3.0F)};
  PackSource source = source_of(matrix);
  source.scale = reinterpret_cast<const std::byte*>(scales.data());
  source.scale_dtype = DType::kBF16;
  const Packed packed = pack(source, 16);
  EXPECT_EQ(packed.scales[0], 0.75F);
  EXPECT_EQ(packed.scales[16], 3.0F);
}

TEST(Packing, UsesAScaleOfOneWhenThereIsNone) {
  Rng rng(4);
  const Matrix matrix = random_matrix(16, 128, DType::kF8E4M3, rng);
  PackSource source = source_of(matrix);
  source.scale = nullptr;
  EXPECT_EQ(pack(source, 16).scales[3], 1.0F);
}

TEST(Packing, InterleavesGateAndUpPanels) {
  Rng rng(5);
  const Matrix gate = random_matrix(40, 64, DType::kBF16, rng);
  const Matrix up = random_matrix(40, 64, DType::kBF16, rng);
  std::vector<std::byte> both(packed_bytes(WeightFormat::kPanelBF16, 96, 64));
  pack_panels(source_of(gate), WeightFormat::kPanelBF16, both.data(), nullptr, 0, 2);
  pack_panels(source_of(up), WeightFormat::kPanelBF16, both.data(), nullptr, 1, 2);
  for (std::uint32_t output = 0; output < 40; ++output) {
    const std::uint32_t gate_output = output / 16 * 32 + output % 16;
    EXPECT_EQ(unpacked(both, WeightFormat::kPanelBF16, 64, gate_output, 5), gate.value(output, 5));
    EXPECT_EQ(unpacked(both, WeightFormat::kPanelBF16, 64, gate_output + 16, 5),
              up.value(output, 5));
  }
}

TEST(Packing, WidensBf16ToFp32PanelsWhenAsked) {
  Rng rng(6);
  const Matrix matrix = random_matrix(20, 35, DType::kBF16, rng);
  std::vector<std::byte> panels(packed_bytes(WeightFormat::kPanelF32, 20, 35));
  pack_panels(source_of(matrix), WeightFormat::kPanelF32, panels.data(), nullptr);
  EXPECT_EQ(unpacked(panels, WeightFormat::kPanelF32, 35, 19, 34), matrix.value(19, 34));
}

TEST(PackingDeathTest, RefusesAFormatThatCannotHoldTheType) {
  Rng rng(7);
  const Matrix matrix = random_matrix(1, 1, DType::kF32, rng);
  std::vector<std::byte> panels(packed_bytes(WeightFormat::kPanelBF16, 1, 1));
  EXPECT_DEATH(pack_panels(source_of(matrix), WeightFormat::kPanelBF16, panels.data(), nullptr),
               "exactly");
}

}  // namespace
}  // namespace troupe::testing
