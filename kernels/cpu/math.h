// exp, log and what neural networks build from them, on V16 and on single floats (a single float is
// lane 0 of the same code, so both give the same bits). Included after vec.h, per instruction set.
// No libm. Errors against the exact value: exp below 1.1 ulp, log 1 ulp, sigmoid, silu and softplus
// below 3 ulp (4 where a result is subnormal).
#pragma once

#include "kernels/cpu/vec.h"

namespace troupe::cpu::TROUPE_ISA {

// 0 below -104, infinity above 88.73, right down to subnormal results; a NaN stays one.
TROUPE_LANE V16 exp(V16 x) {
  const V16 shift = set1(0x1.8p23F);  // a sum with it has no bits below 1
  // The bounds come first: max and min then keep a NaN.
  const V16 inside = min(set1(89.0F), max(set1(-105.0F), x));
  const V16 shifted = fma(inside, set1(0x1.715476p+0F), shift);
  const V16 n = sub(shifted, shift);
  V16 r = fma(n, set1(-0x1.62e400p-1F), inside);
  r = fma(n, set1(-0x1.7f7d1cp-20F), r);
  V16 p = set1(0x1.6d11fep-10F);
  p = fma(p, r, set1(0x1.120c62p-7F));
  p = fma(p, r, set1(0x1.555518p-5F));
  p = fma(p, r, set1(0x1.5554dcp-3F));
  p = fma(p, r, set1(0.5F));
  p = add(fma(mul(p, r), r, r), set1(1.0F));
  // Two factors: 2^n alone overflows at 128 and can't be normal below -126.
  const I16 exponent = bits_sub(bits(shifted), bits(shift));
  const I16 half = shift_right<1>(exponent);
  const I16 bias = bits1(127);
  const V16 scale1 = from_bits(shift_left<23>(bits_add(half, bias)));
  const V16 scale2 = from_bits(shift_left<23>(bits_add(bits_sub(exponent, half), bias)));
  return mul(mul(p, scale1), scale2);
}

// Natural logarithm of normal numbers, infinity included; REQUIRES: x >= 2^-126 or NaN.
TROUPE_LANE V16 log_normal(V16 x) {
  // Bits of sqrt(1/2): what remains of x lies in [sqrt(1/2), sqrt(2)).
  const I16 steps = shift_right<23>(bits_sub(bits(x), bits1(0x3f3504f3)));
  const V16 f = sub(from_bits(bits_sub(bits(x), shift_left<23>(steps))), set1(1.0F));
  const V16 n = to_float(steps);
  V16 p = set1(0x1.1d8bdep-4F);
  p = fma(p, f, set1(-0x1.d658d6p-4F));
  p = fma(p, f, set1(0x1.deb356p-4F));
  p = fma(p, f, set1(-0x1.fcf158p-4F));
  p = fma(p, f, set1(0x1.23d126p-3F));
  p = fma(p, f, set1(-0x1.555b54p-3F));
  p = fma(p, f, set1(0x1.999d60p-3F));
  p = fma(p, f, set1(-0x1.fffffcp-3F));
  p = fma(p, f, set1(0x1.555554p-2F));
  const V16 square = mul(f, f);
  V16 y = mul(mul(square, f), p);
  y = fma(n, set1(0x1.7f7d1cp-20F), y);
  y = fma(square, set1(-0.5F), y);
  const V16 result = fma(n, set1(0x1.62e400p-1F), add(f, y));
  const V16 infinity = set1(__builtin_inff());
  const V16 finite = select(equal(x, infinity), infinity, result);
  return select(equal(x, x), finite, x);
}

TROUPE_LANE V16 sigmoid(V16 x) {
  return div(set1(1.0F), add(set1(1.0F), exp(neg(x))));
}

TROUPE_LANE V16 silu(V16 x) {
  return div(x, add(set1(1.0F), exp(neg(x))));
}

// log(1 + e^x), which is x itself above 20.
TROUPE_LANE V16 softplus(V16 x) {
  const V16 one = set1(1.0F);
  const V16 limit = set1(20.0F);
  const V16 y = exp(min(limit, x));
  const V16 sum = add(one, y);
  // What the addition lost is worth lost / sum in the logarithm.
  const V16 lost = sub(y, sub(sum, one));
  const V16 value = add(log_normal(sum), div(lost, sum));
  return select(greater(x, limit), x, value);
}

TROUPE_LANE float exp(float x) {
  return lane0(exp(set1(x)));
}
TROUPE_LANE float sigmoid(float x) {
  return lane0(sigmoid(set1(x)));
}
TROUPE_LANE float silu(float x) {
  return lane0(silu(set1(x)));
}
TROUPE_LANE float softplus(float x) {
  return lane0(softplus(set1(x)));
}

}  // namespace troupe::cpu::TROUPE_ISA
