// V16 as two registers of AVX2 with FMA. Included by vec.h.
#pragma once

namespace troupe::cpu::TROUPE_ISA {

struct V16 {
  __m256 lo, hi;
};
struct I16 {
  __m256i lo, hi;
};
struct M16 {
  __m256 lo, hi;
};

TROUPE_LANE V16 set1(float value) {
  return {_mm256_set1_ps(value), _mm256_set1_ps(value)};
}
TROUPE_LANE V16 load(const float* from) {
  return {_mm256_loadu_ps(from), _mm256_loadu_ps(from + 8)};
}

TROUPE_LANE __m256i load_bits(const void* from) {
  return _mm256_loadu_si256(static_cast<const __m256i*>(from));
}

TROUPE_LANE __m256 widen8(const bf16* from) {
  const __m128i half = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16));
}
TROUPE_LANE V16 load(const bf16* from) {
  return {widen8(from), widen8(from + 8)};
}

TROUPE_LANE void store(float* to, V16 value) {
  _mm256_storeu_ps(to, value.lo);
  _mm256_storeu_ps(to + 8, value.hi);
}

// To nearest even; a NaN keeps its upper bits and becomes quiet.
TROUPE_LANE __m256i narrow8(__m256 value) {
  const __m256i b = _mm256_castps_si256(value);
  const __m256i upper = _mm256_srli_epi32(b, 16);
  const __m256i odd = _mm256_and_si256(upper, _mm256_set1_epi32(1));
  const __m256i round = _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff));
  const __m256i number = _mm256_srli_epi32(_mm256_add_epi32(b, round), 16);
  const __m256i quiet = _mm256_or_si256(upper, _mm256_set1_epi32(0x40));
  const __m256 nan = _mm256_cmp_ps(value, value, _CMP_UNORD_Q);
  return _mm256_blendv_epi8(number, quiet, _mm256_castps_si256(nan));
}
TROUPE_LANE void store(bf16* to, V16 value) {
  const __m256i packed = _mm256_packus_epi32(narrow8(value.lo), narrow8(value.hi));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm256_permute4x64_epi64(packed, 0xd8));
}

TROUPE_LANE V16 add(V16 a, V16 b) {
  return {_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)};
}
TROUPE_LANE V16 sub(V16 a, V16 b) {
  return {_mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi)};
}
TROUPE_LANE V16 mul(V16 a, V16 b) {
  return {_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)};
}
TROUPE_LANE V16 div(V16 a, V16 b) {
  return {_mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi)};
}
TROUPE_LANE V16 fma(V16 a, V16 b, V16 c) {
  return {_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)};
}
TROUPE_LANE V16 sqrt(V16 a) {
  return {_mm256_sqrt_ps(a.lo), _mm256_sqrt_ps(a.hi)};
}
TROUPE_LANE V16 max(V16 a, V16 b) {
  return {_mm256_max_ps(a.lo, b.lo), _mm256_max_ps(a.hi, b.hi)};
}
TROUPE_LANE V16 min(V16 a, V16 b) {
  return {_mm256_min_ps(a.lo, b.lo), _mm256_min_ps(a.hi, b.hi)};
}

TROUPE_LANE M16 greater(V16 a, V16 b) {
  return {_mm256_cmp_ps(a.lo, b.lo, _CMP_GT_OQ), _mm256_cmp_ps(a.hi, b.hi, _CMP_GT_OQ)};
}
TROUPE_LANE M16 equal(V16 a, V16 b) {
  return {_mm256_cmp_ps(a.lo, b.lo, _CMP_EQ_OQ), _mm256_cmp_ps(a.hi, b.hi, _CMP_EQ_OQ)};
}
TROUPE_LANE V16 select(M16 mask, V16 yes, V16 no) {
  return {_mm256_blendv_ps(no.lo, yes.lo, mask.lo), _mm256_blendv_ps(no.hi, yes.hi, mask.hi)};
}
TROUPE_LANE bool any(M16 mask) {
  return _mm256_movemask_ps(_mm256_or_ps(mask.lo, mask.hi)) != 0;
}

TROUPE_LANE I16 bits1(std::int32_t value) {
  return {_mm256_set1_epi32(value), _mm256_set1_epi32(value)};
}
TROUPE_LANE I16 bits(V16 a) {
  return {_mm256_castps_si256(a.lo), _mm256_castps_si256(a.hi)};
}
TROUPE_LANE V16 from_bits(I16 a) {
  return {_mm256_castsi256_ps(a.lo), _mm256_castsi256_ps(a.hi)};
}
TROUPE_LANE I16 bits_add(I16 a, I16 b) {
  return {_mm256_add_epi32(a.lo, b.lo), _mm256_add_epi32(a.hi, b.hi)};
}
TROUPE_LANE I16 bits_sub(I16 a, I16 b) {
  return {_mm256_sub_epi32(a.lo, b.lo), _mm256_sub_epi32(a.hi, b.hi)};
}
TROUPE_LANE I16 bits_and(I16 a, I16 b) {
  return {_mm256_and_si256(a.lo, b.lo), _mm256_and_si256(a.hi, b.hi)};
}
TROUPE_LANE I16 bits_xor(I16 a, I16 b) {
  return {_mm256_xor_si256(a.lo, b.lo), _mm256_xor_si256(a.hi, b.hi)};
}
template <int kBits>
TROUPE_LANE I16 shift_left(I16 a) {
  return {_mm256_slli_epi32(a.lo, kBits), _mm256_slli_epi32(a.hi, kBits)};
}
template <int kBits>
TROUPE_LANE I16 shift_right(I16 a) {
  return {_mm256_srai_epi32(a.lo, kBits), _mm256_srai_epi32(a.hi, kBits)};
}
TROUPE_LANE V16 to_float(I16 a) {
  return {_mm256_cvtepi32_ps(a.lo), _mm256_cvtepi32_ps(a.hi)};
}

// 32 interleaved elements x0 y0 x1 y1 ...: x to `even`, y to `odd`.
TROUPE_LANE void load_pairs(const bf16* from, V16& even, V16& odd) {
  const __m256i lo = load_bits(from);
  const __m256i hi = load_bits(from + 16);
  const __m256i upper = _mm256_set1_epi32(static_cast<std::int32_t>(0xffff0000U));
  even = {_mm256_castsi256_ps(_mm256_slli_epi32(lo, 16)),
          _mm256_castsi256_ps(_mm256_slli_epi32(hi, 16))};
  odd = {_mm256_castsi256_ps(_mm256_and_si256(lo, upper)),
         _mm256_castsi256_ps(_mm256_and_si256(hi, upper))};
}

TROUPE_LANE __m256 unmix8(__m256 shuffled) {
  return _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(shuffled), 0xd8));
}
TROUPE_LANE void load_pairs(const float* from, V16& even, V16& odd) {
  const __m256 a = _mm256_loadu_ps(from);
  const __m256 b = _mm256_loadu_ps(from + 8);
  const __m256 c = _mm256_loadu_ps(from + 16);
  const __m256 d = _mm256_loadu_ps(from + 24);
  even = {unmix8(_mm256_shuffle_ps(a, b, 0x88)), unmix8(_mm256_shuffle_ps(c, d, 0x88))};
  odd = {unmix8(_mm256_shuffle_ps(a, b, 0xdd)), unmix8(_mm256_shuffle_ps(c, d, 0xdd))};
}

// The fixed tree: lane l takes lane l+8, then +4, +2, +1.
TROUPE_LANE float reduce_add(V16 a) {
  const __m256 eight = _mm256_add_ps(a.lo, a.hi);
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
}

TROUPE_LANE float reduce_max(V16 a) {
  const __m256 eight = _mm256_max_ps(a.lo, a.hi);
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_shuffle_ps(two, two, 1)));
}

}  // namespace troupe::cpu::TROUPE_ISA
