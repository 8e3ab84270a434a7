// V16: sixteen floats, the width in which every CPU kernel thinks, whatever the processor has. A
// file that is compiled for one instruction set defines TROUPE_ISA (the name of its namespace) and
// one of TROUPE_VEC_SCALAR, TROUPE_VEC_AVX2 and TROUPE_VEC_AVX512, then includes this header,
// math.h and the kernels. Pure values, any thread.
//
// VE-1: all three give identical bits for every function here, signed zeros included. Where one
// gives a NaN all do, but the
//       payload of a NaN made by arithmetic is anybody's.
// VE-2: everything lives in troupe::cpu::TROUPE_ISA or is forced inline, and no inline function of
// another header is called:
//       the linker keeps one copy of such a function, and it might be the one that needs the newer
//       processor.
// VE-3: max(a, b) is a > b ? a : b and min(a, b) is a < b ? a : b, so the second operand wins when
// either is NaN.
#pragma once

#include <cstddef>
#include <cstdint>

#if defined(TROUPE_VEC_AVX2) || defined(TROUPE_VEC_AVX512)
#include <immintrin.h>
#endif

#include "runtime/base/dtype.h"

#define TROUPE_LANE [[gnu::always_inline]] static inline

// Before a loop over an array of V16 with a constant count: the array must become registers.
// (Scalar code has too few of them, and takes minutes to compile when unrolled.)
#if defined(TROUPE_VEC_SCALAR)
#define TROUPE_UNROLL
#elif defined(__clang__)
#define TROUPE_UNROLL _Pragma("unroll")
#else
#define TROUPE_UNROLL _Pragma("GCC unroll 16")
#endif

#if defined(TROUPE_VEC_AVX512)
#include "kernels/cpu/vec_avx512.inl.h"
#elif defined(TROUPE_VEC_AVX2)
#include "kernels/cpu/vec_avx2.inl.h"
#elif defined(TROUPE_VEC_SCALAR)
#include "kernels/cpu/vec_scalar.inl.h"
#else
#error "define TROUPE_VEC_SCALAR, TROUPE_VEC_AVX2 or TROUPE_VEC_AVX512 before including vec.h"
#endif

namespace troupe::cpu::TROUPE_ISA {

inline constexpr std::uint32_t kLanes = 16;

TROUPE_LANE V16 zero() {
  return set1(0.0F);
}
TROUPE_LANE V16 neg(V16 a) {
  return from_bits(bits_xor(bits(a), bits1(INT32_MIN)));
}
TROUPE_LANE M16 less(V16 a, V16 b) {
  return greater(b, a);
}

// The first n (<= 16) of memory, zeros beyond; nothing beyond is read or written.
template <class T>
TROUPE_LANE V16 load_n(const T* from, std::uint32_t n) {
  T lanes[kLanes] = {};
  __builtin_memcpy(lanes, from, n * sizeof(T));
  return load(lanes);
}

template <class T>
TROUPE_LANE void store_n(T* to, V16 value, std::uint32_t n) {
  T lanes[kLanes];
  store(lanes, value);
  __builtin_memcpy(to, lanes, n * sizeof(T));
}

// load_n and store_n that are cheap when the vector is full.
template <class T>
TROUPE_LANE V16 load_upto(const T* from, std::uint32_t n) {
  return n >= kLanes ? load(from) : load_n(from, n);
}

template <class T>
TROUPE_LANE void store_upto(T* to, V16 value, std::uint32_t n) {
  if (n >= kLanes) {
    store(to, value);
  } else {
    store_n(to, value, n);
  }
}

// True in lanes below n.
TROUPE_LANE M16 first_lanes(std::uint32_t n) {
  const float index[kLanes] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  return greater(set1(static_cast<float>(n)), load(index));
}

TROUPE_LANE float lane0(V16 value) {
  float lanes[kLanes];
  store(lanes, value);
  return lanes[0];
}

// body(i, n) for i = 0, 16, 32, ... below width, n = elements from i on, at most 16.
template <class Body>
TROUPE_LANE void for_lanes(std::uint32_t width, Body body) {
  std::uint32_t i = 0;
  for (; i + kLanes <= width; i += kLanes) {
    body(i, kLanes);
  }
  if (i < width) {
    body(i, width - i);
  }
}

TROUPE_LANE float widen(float value) {
  return value;
}
TROUPE_LANE float widen(bf16 value) {
  return __builtin_bit_cast(float, static_cast<std::uint32_t>(value) << 16);
}

}  // namespace troupe::cpu::TROUPE_ISA
