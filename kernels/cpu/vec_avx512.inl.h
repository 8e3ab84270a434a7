// V16 as one register of AVX-512 (F, DQ, BW, VL). Included by vec.h.
#pragma once

namespace troupe::cpu::TROUPE_ISA {

struct V16 {
  __m512 all;
};
struct I16 {
  __m512i all;
};
struct M16 {
  __mmask16 all;
};

TROUPE_LANE V16 set1(float value) {
  return {_mm512_set1_ps(value)};
}
TROUPE_LANE V16 load(const float* from) {
  return {_mm512_loadu_ps(from)};
}
TROUPE_LANE V16 load(const bf16* from) {
  const __m256i half = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16))};
}

TROUPE_LANE void store(float* to, V16 value) {
  _mm512_storeu_ps(to, value.all);
}

// To nearest even; a NaN keeps its upper bits and becomes quiet.
TROUPE_LANE void store(bf16* to, V16 value) {
  const __m512i b = _mm512_castps_si512(value.all);
  const __m512i upper = _mm512_srli_epi32(b, 16);
  const __m512i odd = _mm512_and_si512(upper, _mm512_set1_epi32(1));
  const __m512i round = _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff));
  const __m512i number = _mm512_srli_epi32(_mm512_add_epi32(b, round), 16);
  const __mmask16 nan = _mm512_cmp_ps_mask(value.all, value.all, _CMP_UNORD_Q);
  const __m512i chosen = _mm512_mask_or_epi32(number, nan, upper, _mm512_set1_epi32(0x40));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm512_cvtepi32_epi16(chosen));
}

TROUPE_LANE V16 add(V16 a, V16 b) {
  return {_mm512_add_ps(a.all, b.all)};
}
TROUPE_LANE V16 sub(V16 a, V16 b) {
  return {_mm512_sub_ps(a.all, b.all)};
}
TROUPE_LANE V16 mul(V16 a, V16 b) {
  return {_mm512_mul_ps(a.all, b.all)};
}
TROUPE_LANE V16 div(V16 a, V16 b) {
  return {_mm512_div_ps(a.all, b.all)};
}
TROUPE_LANE V16 fma(V16 a, V16 b, V16 c) {
  return {_mm512_fmadd_ps(a.all, b.all, c.all)};
}
TROUPE_LANE V16 sqrt(V16 a) {
  return {_mm512_sqrt_ps(a.all)};
}
TROUPE_LANE V16 max(V16 a, V16 b) {
  return {_mm512_max_ps(a.all, b.all)};
}
TROUPE_LANE V16 min(V16 a, V16 b) {
  return {_mm512_min_ps(a.all, b.all)};
}

TROUPE_LANE M16 greater(V16 a, V16 b) {
  return {_mm512_cmp_ps_mask(a.all, b.all, _CMP_GT_OQ)};
}
TROUPE_LANE M16 equal(V16 a, V16 b) {
  return {_mm512_cmp_ps_mask(a.all, b.all, _CMP_EQ_OQ)};
}
TROUPE_LANE V16 select(M16 mask, V16 yes, V16 no) {
  return {_mm512_mask_blend_ps(mask.all, no.all, yes.all)};
}
TROUPE_LANE bool any(M16 mask) {
  return mask.all != 0;
}

TROUPE_LANE I16 bits1(std::int32_t value) {
  return {_mm512_set1_epi32(value)};
}
TROUPE_LANE I16 bits(V16 a) {
  return {_mm512_castps_si512(a.all)};
}
TROUPE_LANE V16 from_bits(I16 a) {
  return {_mm512_castsi512_ps(a.all)};
}
TROUPE_LANE I16 bits_add(I16 a, I16 b) {
  return {_mm512_add_epi32(a.all, b.all)};
}
TROUPE_LANE I16 bits_sub(I16 a, I16 b) {
  return {_mm512_sub_epi32(a.all, b.all)};
}
TROUPE_LANE I16 bits_and(I16 a, I16 b) {
  return {_mm512_and_si512(a.all, b.all)};
}
TROUPE_LANE I16 bits_xor(I16 a, I16 b) {
  return {_mm512_xor_si512(a.all, b.all)};
}
template <int kBits>
TROUPE_LANE I16 shift_left(I16 a) {
  return {_mm512_slli_epi32(a.all, kBits)};
}
template <int kBits>
TROUPE_LANE I16 shift_right(I16 a) {
  return {_mm512_srai_epi32(a.all, kBits)};
}
TROUPE_LANE V16 to_float(I16 a) {
  return {_mm512_cvtepi32_ps(a.all)};
}

// 32 interleaved elements x0 y0 x1 y1 ...: x to `even`, y to `odd`.
TROUPE_LANE void load_pairs(const bf16* from, V16& even, V16& odd) {
  const __m512i both = _mm512_loadu_si512(from);
  const __m512i upper = _mm512_set1_epi32(static_cast<std::int32_t>(0xffff0000U));
  even = {_mm512_castsi512_ps(_mm512_slli_epi32(both, 16))};
  odd = {_mm512_castsi512_ps(_mm512_and_si512(both, upper))};
}

TROUPE_LANE void load_pairs(const float* from, V16& even, V16& odd) {
  const __m512 a = _mm512_loadu_ps(from);
  const __m512 b = _mm512_loadu_ps(from + 16);
  const __m512i first =
      _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
  const __m512i second = _mm512_add_epi32(first, _mm512_set1_epi32(1));
  even = {_mm512_permutex2var_ps(a, first, b)};
  odd = {_mm512_permutex2var_ps(a, second, b)};
}

// The fixed tree: lane l takes lane l+8, then +4, +2, +1.
TROUPE_LANE float reduce_add(V16 a) {
  const __m256 eight =
      _mm256_add_ps(_mm512_castps512_ps256(a.all), _mm512_extractf32x8_ps(a.all, 1));
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
}

TROUPE_LANE float reduce_max(V16 a) {
  const __m256 eight =
      _mm256_max_ps(_mm512_castps512_ps256(a.all), _mm512_extractf32x8_ps(a.all, 1));
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_shuffle_ps(two, two, 1)));
}

}  // namespace troupe::cpu::TROUPE_ISA
