// The conversions of runtime/base/dtype.h, over every bit pattern there is.
#include "runtime/base/dtype.h"

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>

namespace troupe {
namespace {

bool is_nan_bits(std::uint32_t bits) {
  return (bits & 0x7fffffffU) > 0x7f800000U;
}

// Value of a small binary float by its definition: sign, exponent field, mantissa field, bias.
float by_definition(bool negative, int exponent, int mantissa, int mantissa_bits, int bias) {
  const double fraction = std::ldexp(mantissa, -mantissa_bits);
  const double magnitude =
      exponent == 0 ? std::ldexp(fraction, 1 - bias) : std::ldexp(1.0 + fraction, exponent - bias);
  return static_cast<float>(negative ? -magnitude : magnitude);
}

bf16 round_bits(std::uint32_t bits) {
  return f32_to_bf16(std::bit_cast<float>(bits));
}

TEST(BF16, KeepsEveryValueThroughFloat) {
  for (std::uint32_t code = 0; code <= 0xffffU; ++code) {
    const float wide = bf16_to_f32(static_cast<bf16>(code));
    const std::uint32_t expected = is_nan_bits(code << 16) ? (code | 0x40U) : code;

    ASSERT_EQ(std::bit_cast<std::uint32_t>(wide), code << 16) << "code " << code;
    ASSERT_EQ(f32_to_bf16(wide), expected) << "code " << code;
  }
}

TEST(BF16, RoundsATieToTheEvenNeighbour) {
  EXPECT_EQ(round_bits(0x3f808000U), 0x3f80U);  // 1 + half a step: down to even
  EXPECT_EQ(round_bits(0x3f818000U), 0x3f82U);  // odd + half a step: up to even
  EXPECT_EQ(round_bits(0xbf818000U), 0xbf82U);
}

TEST(BF16, RoundsToTheNearerNeighbourBesideATie) {
  EXPECT_EQ(round_bits(0x3f807fffU), 0x3f80U);
  EXPECT_EQ(round_bits(0x3f808001U), 0x3f81U);
  EXPECT_EQ(round_bits(0x3f817fffU), 0x3f81U);
}

TEST(BF16, RoundsTheLargestFloatToInfinity) {
  EXPECT_EQ(f32_to_bf16(std::numeric_limits<float>::max()), 0x7f80U);
  EXPECT_EQ(f32_to_bf16(std::numeric_limits<float>::lowest()), 0xff80U);
  EXPECT_EQ(f32_to_bf16(std::numeric_limits<float>::infinity()), 0x7f80U);
}

TEST(BF16, KeepsSubnormalsAndTheSignOfZero) {
  EXPECT_EQ(round_bits(0x80000000U), 0x8000U);
  EXPECT_EQ(round_bits(0x00010000U), 0x0001U);
  EXPECT_EQ(round_bits(0x00008000U), 0x0000U);  // half the smallest: a tie, zero is even
  EXPECT_EQ(round_bits(0x00008001U), 0x0001U);
}

TEST(BF16, MakesANaNQuietInsteadOfInfinite) {
  EXPECT_EQ(round_bits(0x7f800001U), 0x7fc0U);
  EXPECT_EQ(round_bits(0xffffffffU), 0xffffU);
}

TEST(F16, WidensEveryCodeToItsDefinition) {
  for (std::uint32_t code = 0; code <= 0xffffU; ++code) {
    const int exponent = static_cast<int>((code >> 10) & 31U);
    const int mantissa = static_cast<int>(code & 1023U);
    const bool negative = code >= 0x8000U;
    const float value = f16_to_f32(static_cast<std::uint16_t>(code));

    if (exponent == 31 && mantissa != 0) {
      ASSERT_TRUE(std::isnan(value)) << "code " << code;
    } else if (exponent == 31) {
      ASSERT_TRUE(std::isinf(value)) << "code " << code;
      ASSERT_EQ(std::signbit(value), negative) << "code " << code;
    } else {
      const float expected = by_definition(negative, exponent, mantissa, 10, 15);
      ASSERT_EQ(std::bit_cast<std::uint32_t>(value), std::bit_cast<std::uint32_t>(expected))
          << "code " << code;
    }
  }
}

TEST(F8E4M3, WidensEveryCodeToItsDefinition) {
  for (std::uint32_t code = 0; code <= 0xffU; ++code) {
    const int exponent = static_cast<int>((code >> 3) & 15U);
    const int mantissa = static_cast<int>(code & 7U);
    const float value = f8e4m3_to_f32(static_cast<std::uint8_t>(code));

    if (exponent == 15 && mantissa == 7) {
      ASSERT_TRUE(std::isnan(value)) << "code " << code;
    } else {
      const float expected = by_definition(code >= 0x80U, exponent, mantissa, 3, 7);
      ASSERT_EQ(std::bit_cast<std::uint32_t>(value), std::bit_cast<std::uint32_t>(expected))
          << "code " << code;
      ASSERT_EQ(bf16_to_f32(f32_to_bf16(value)), value) << "exact in bf16, code " << code;
    }
  }
}

TEST(F8E4M3, HasItsKnownLandmarks) {
  EXPECT_EQ(f8e4m3_to_f32(0x7e), 448.0F);
  EXPECT_EQ(f8e4m3_to_f32(0x38), 1.0F);
  EXPECT_EQ(f8e4m3_to_f32(0x01), 0x1p-9F);
  EXPECT_EQ(f8e4m3_to_f32(0x08), 0x1p-6F);
}

TEST(DType, LoadsOneElementOfEachFloatingType) {
  const std::array<float, 2> f32 = {0.0F, -1.5F};
  const std::array<std::uint16_t, 2> bf = {0, 0xbfc0U};
  const std::array<std::uint16_t, 2> f16 = {0, 0xbe00U};
  const std::array<std::uint8_t, 2> f8 = {0, 0xbcU};
  const std::array<double, 2> f64 = {0.0, -1.5};

  EXPECT_EQ(load_as_f32(f32.data(), DType::kF32, 1), -1.5F);
  EXPECT_EQ(load_as_f32(bf.data(), DType::kBF16, 1), -1.5F);
  EXPECT_EQ(load_as_f32(f16.data(), DType::kF16, 1), -1.5F);
  EXPECT_EQ(load_as_f32(f8.data(), DType::kF8E4M3, 1), -1.5F);
  EXPECT_EQ(load_as_f32(f64.data(), DType::kF64, 1), -1.5F);
}

TEST(DType, HasTheSizeAndSpellingOfSafetensors) {
  EXPECT_EQ(size_of(DType::kF64), 8U);
  EXPECT_EQ(size_of(DType::kI64), 8U);
  EXPECT_EQ(size_of(DType::kF32), 4U);
  EXPECT_EQ(size_of(DType::kI32), 4U);
  EXPECT_EQ(size_of(DType::kBF16), 2U);
  EXPECT_EQ(size_of(DType::kF16), 2U);
  EXPECT_EQ(size_of(DType::kF8E4M3), 1U);
  EXPECT_EQ(size_of(DType::kU8), 1U);
  EXPECT_EQ(name(DType::kF8E4M3), "F8_E4M3");
  EXPECT_EQ(name(DType::kBF16), "BF16");
}

}  // namespace
}  // namespace troupe
