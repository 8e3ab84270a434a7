// Element types and the exact conversions between them. Everything here is a pure function of bits:
// the same on every machine, at every optimisation level.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace troupe {

enum class DType : std::uint8_t { kF32, kBF16, kF16, kF8E4M3, kI32, kI64, kU8, kF64 };

[[nodiscard]] constexpr std::size_t size_of(DType dtype) {
  switch (dtype) {
    case DType::kF32:
    case DType::kI32:
      return 4;
    case DType::kBF16:
    case DType::kF16:
      return 2;
    case DType::kF8E4M3:
    case DType::kU8:
      return 1;
    case DType::kI64:
    case DType::kF64:
      return 8;
  }
  return 0;
}

// The spelling of safetensors: "F32", "BF16", "F16", "F8_E4M3", "I32", "I64", "U8", "F64".
[[nodiscard]] constexpr std::string_view name(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "F32";
    case DType::kBF16:
      return "BF16";
    case DType::kF16:
      return "F16";
    case DType::kF8E4M3:
      return "F8_E4M3";
    case DType::kI32:
      return "I32";
    case DType::kI64:
      return "I64";
    case DType::kU8:
      return "U8";
    case DType::kF64:
      return "F64";
  }
  return "?";
}

using bf16 = std::uint16_t;  // the bits of a bfloat16

[[nodiscard]] inline float bf16_to_f32(bf16 value) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(value) << 16);
}

// Round to nearest, ties to even; a NaN stays a (quiet) NaN.
[[nodiscard]] inline bf16 f32_to_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffffU) > 0x7f800000U) {
    return static_cast<bf16>((bits >> 16) | 0x40U);
  }
  return static_cast<bf16>((bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16);
}

[[nodiscard]] inline float f16_to_f32(std::uint16_t value) {
  const std::uint32_t sign = static_cast<std::uint32_t>(value & 0x8000U) << 16;
  const std::uint32_t exponent = (value >> 10) & 0x1fU;
  const std::uint32_t mantissa = value & 0x3ffU;
  if (exponent == 0x1fU) {
    return std::bit_cast<float>(sign | 0x7f800000U | (mantissa << 13));
  }
  if (exponent != 0) {
    return std::bit_cast<float>(sign | ((exponent + 112U) << 23) | (mantissa << 13));
  }
  const float magnitude = static_cast<float>(mantissa) * 0x1p-24F;  // subnormal: exact
  return sign != 0 ? -magnitude : magnitude;
}

// The finite variant "fn": S.1111.111 is NaN, no infinity, largest 448. Every other value is exact
// in bf16.
[[nodiscard]] inline float f8e4m3_to_f32(std::uint8_t value) {
  const std::uint32_t sign = static_cast<std::uint32_t>(value & 0x80U) << 24;
  const std::uint32_t exponent = (value >> 3) & 0xfU;
  const std::uint32_t mantissa = value & 7U;
  if (exponent == 0xfU && mantissa == 7U) {
    return std::bit_cast<float>(sign | 0x7fc00000U);
  }
  if (exponent != 0) {
    return std::bit_cast<float>(sign | ((exponent + 120U) << 23) | (mantissa << 20));
  }
  const float magnitude = static_cast<float>(mantissa) * 0x1p-9F;
  return sign != 0 ? -magnitude : magnitude;
}

// One element of any floating type, widened exactly (F64 is rounded to nearest).
[[nodiscard]] inline float load_as_f32(const void* base, DType dtype, std::size_t index) {
  switch (dtype) {
    case DType::kF32:
      return static_cast<const float*>(base)[index];
    case DType::kBF16:
      return bf16_to_f32(static_cast<const std::uint16_t*>(base)[index]);
    case DType::kF16:
      return f16_to_f32(static_cast<const std::uint16_t*>(base)[index]);
    case DType::kF8E4M3:
      return f8e4m3_to_f32(static_cast<const std::uint8_t*>(base)[index]);
    case DType::kF64:
      return static_cast<float>(static_cast<const double*>(base)[index]);
    default:
      return 0.0F;
  }
}

}  // namespace troupe
