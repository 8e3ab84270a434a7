// Expansion of F8 panels to bf16, exact for every code, so that one engine serves both formats: a
// span at a time into scratch, or line by line in registers, which is faster where a line serves
// one row only.
#pragma once

#include "kernels/cpu/vec.h"

namespace troupe::cpu::TROUPE_ISA {

struct F8 {  // an element of an F8 panel
  std::uint8_t code;
};

static constexpr bf16 f8_to_bf16(std::uint8_t code) {
  // m * 2^-9 for the eight codes without an exponent.
  constexpr bf16 kSmall[8] = {0, 0x3b00, 0x3b80, 0x3bc0, 0x3c00, 0x3c20, 0x3c40, 0x3c60};
  const std::uint32_t sign = (code & 0x80U) << 8;
  const std::uint32_t magnitude = code & 0x7fU;
  if (magnitude == 0x7fU) {
    return static_cast<bf16>(sign | 0x7fc0U);
  }
  if (magnitude < 8) {
    return static_cast<bf16>(sign | kSmall[magnitude]);
  }
  return static_cast<bf16>(sign | ((magnitude << 4) + (120U << 7)));
}

#if defined(TROUPE_VEC_SCALAR)

// count: a multiple of 64.
inline void expand_f8(const std::uint8_t* from, bf16* to, std::size_t count, const std::uint8_t*) {
  for (std::size_t i = 0; i < count; ++i) {
    to[i] = f8_to_bf16(from[i]);
  }
}

#else

// Both bytes of 32 bf16 by table: the upper byte of a normal number is sign | 60 + the upper three
// bits of the exponent, the lower byte is the code's lower half moved up. Codes without an exponent
// and NaN are rare and mended behind a branch.
TROUPE_LANE void mend_f8(__m256i code, __m256i small, __m256i nan, __m256i& upper, __m256i& lower) {
  const __m256i small_upper = _mm256_broadcastsi128_si256(
      _mm_setr_epi8(0, 0x3b, 0x3b, 0x3b, 0x3c, 0x3c, 0x3c, 0x3c, 0, 0, 0, 0, 0, 0, 0, 0));
  const __m256i small_lower = _mm256_broadcastsi128_si256(_mm_setr_epi8(0,
                                                                        0,
                                                                        static_cast<char>(0x80),
                                                                        static_cast<char>(0xc0),
                                                                        0,
                                                                        0x20,
                                                                        0x40,
                                                                        0x60,
                                                                        0,
                                                                        0,
                                                                        0,
                                                                        0,
                                                                        0,
                                                                        0,
                                                                        0,
                                                                        0));
  const __m256i mantissa = _mm256_and_si256(code, _mm256_set1_epi8(7));
  const __m256i sign = _mm256_and_si256(code, _mm256_set1_epi8(static_cast<char>(0x80)));
  upper = _mm256_blendv_epi8(
      upper, _mm256_or_si256(sign, _mm256_shuffle_epi8(small_upper, mantissa)), small);
  lower = _mm256_blendv_epi8(lower, _mm256_shuffle_epi8(small_lower, mantissa), small);
  upper = _mm256_blendv_epi8(upper, _mm256_or_si256(sign, _mm256_set1_epi8(0x7f)), nan);
  lower = _mm256_blendv_epi8(lower, _mm256_set1_epi8(static_cast<char>(0xc0)), nan);
}

// 32 codes: the first and the second 16 as bf16.
struct F8Line {
  __m256i first, second;
};

TROUPE_LANE F8Line expand_f8_line(const void* from) {
  const __m256i uppers = _mm256_broadcastsi128_si256(_mm_setr_epi8(0x3c,
                                                                   0x3d,
                                                                   0x3e,
                                                                   0x3f,
                                                                   0x40,
                                                                   0x41,
                                                                   0x42,
                                                                   0x43,
                                                                   static_cast<char>(0xbc),
                                                                   static_cast<char>(0xbd),
                                                                   static_cast<char>(0xbe),
                                                                   static_cast<char>(0xbf),
                                                                   static_cast<char>(0xc0),
                                                                   static_cast<char>(0xc1),
                                                                   static_cast<char>(0xc2),
                                                                   static_cast<char>(0xc3)));
  const __m256i code = _mm256_loadu_si256(static_cast<const __m256i*>(from));
  const __m256i nibble = _mm256_and_si256(_mm256_srli_epi16(code, 4), _mm256_set1_epi8(15));
  __m256i upper = _mm256_shuffle_epi8(uppers, nibble);
  __m256i lower =
      _mm256_and_si256(_mm256_slli_epi16(code, 4), _mm256_set1_epi8(static_cast<char>(0xf0)));
  const __m256i magnitude = _mm256_and_si256(code, _mm256_set1_epi8(0x7f));
  const __m256i small = _mm256_cmpgt_epi8(_mm256_set1_epi8(8), magnitude);
  const __m256i nan = _mm256_cmpeq_epi8(magnitude, _mm256_set1_epi8(0x7f));
  const __m256i special = _mm256_or_si256(small, nan);
  if (_mm256_testz_si256(special, special) == 0) [[unlikely]] {
    mend_f8(code, small, nan, upper, lower);
  }
  const __m256i low = _mm256_unpacklo_epi8(lower, upper);   // elements 0..7 and 16..23
  const __m256i high = _mm256_unpackhi_epi8(lower, upper);  // elements 8..15 and 24..31
  return {_mm256_permute2x128_si256(low, high, 0x20), _mm256_permute2x128_si256(low, high, 0x31)};
}

#if defined(__AVX512VBMI__)

// Upper and lower bytes of what the 128 codes without a sign mean.
struct F8Bytes {
  alignas(64) std::uint8_t upper[128];
  alignas(64) std::uint8_t lower[128];
};
consteval F8Bytes f8_bytes() {
  F8Bytes bytes{};
  for (unsigned code = 0; code < 128; ++code) {
    const bf16 value = f8_to_bf16(static_cast<std::uint8_t>(code));
    bytes.upper[code] = static_cast<std::uint8_t>(value >> 8);
    bytes.lower[code] = static_cast<std::uint8_t>(value & 0xffU);
  }
  return bytes;
}

// Every code by table: VPERMI2B looks up 64 of 128 bytes at once. The quarters of a load are put in
// the order in which interleaving within 128 bits leaves the elements ascending. count: a multiple
// of 64. Asks the second-level cache for as much at `later`: the few lines that the first level can
// wait for would be the limit.
inline void expand_f8(const std::uint8_t* from,
                      bf16* to,
                      std::size_t count,
                      const std::uint8_t* later) {
  static constexpr F8Bytes kBytes = f8_bytes();
  const __m512i upper_0 = _mm512_load_si512(kBytes.upper);
  const __m512i upper_1 = _mm512_load_si512(kBytes.upper + 64);
  const __m512i lower_0 = _mm512_load_si512(kBytes.lower);
  const __m512i lower_1 = _mm512_load_si512(kBytes.lower + 64);
  const __m512i sign = _mm512_set1_epi8(static_cast<char>(0x80));
  const __m512i order = _mm512_setr_epi64(0, 4, 1, 5, 2, 6, 3, 7);
  for (std::size_t i = 0; i < count; i += 64) {
    __builtin_prefetch(later + i, 0, 2);
    const __m512i code = _mm512_permutexvar_epi64(order, _mm512_loadu_si512(from + i));
    const __m512i lower = _mm512_permutex2var_epi8(lower_0, code, lower_1);
    __m512i upper = _mm512_permutex2var_epi8(upper_0, code, upper_1);
    upper = _mm512_ternarylogic_epi64(upper, code, sign, 0xf8);  // upper | (code & sign)
    _mm512_storeu_si512(to + i, _mm512_unpacklo_epi8(lower, upper));
    _mm512_storeu_si512(to + i + 32, _mm512_unpackhi_epi8(lower, upper));
  }
}

#else

// count: a multiple of 64. Asks the second-level cache for as much at `later`: the few lines that
// the first level can wait for would be the limit.
inline void expand_f8(const std::uint8_t* from,
                      bf16* to,
                      std::size_t count,
                      const std::uint8_t* later) {
  for (std::size_t i = 0; i < count; i += 32) {
    __builtin_prefetch(later + i, 0, 2);
    const F8Line line = expand_f8_line(from + i);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + i), line.first);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + i + 16), line.second);
  }
}

#endif

#endif

}  // namespace troupe::cpu::TROUPE_ISA
