#include "runtime/base/math.h"

#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>

namespace troupe {
namespace {

constexpr double kLn2High =
    0x1.62e42fee00000p-1;  // 32 bits, so that a multiple of it by an exponent is exact
constexpr double kLn2Low = 0x1.a39ef35793c76p-33;
constexpr double kLog2E = 0x1.71547652b82fep+0;
constexpr double kTwoOverPi = 0x1.45f306dc9c883p-1;
// pi/2 in three parts; the first two have 28 bits, so that products with integers below 2^25 are
// exact.
constexpr double kHalfPi1 = 0x1.921fb54000000p+0;
constexpr double kHalfPi2 = 0x1.10b4610000000p-30;
constexpr double kHalfPi3 = 0x1.a62633145c06ep-58;

double round_even(double x) {
  constexpr double kShift = 0x1.8p52;  // the sum has no bits below 1
  return (x + kShift) - kShift;
}

double power_of_two(std::int64_t exponent) {  // of a normal number
  return std::bit_cast<double>(static_cast<std::uint64_t>(exponent + 1023) << 52);
}

// Sum of coefficients[i] * x^i.
template <std::size_t N>
double polynomial(double x, const double (&coefficients)[N]) {
  double sum = coefficients[N - 1];
  for (std::size_t i = N - 1; i-- > 0;) {
    sum = sum * x + coefficients[i];
  }
  return sum;
}

}  // namespace

double exp_d(double x) {
  if (x != x) {
    return x;
  }
  if (x > 709.8) {
    return std::numeric_limits<double>::infinity();
  }
  if (x < -746.0) {
    return 0.0;
  }
  // From r^2 on: 1/n!.
  constexpr double kTerms[] = {1.0 / 2,
                               1.0 / 6,
                               1.0 / 24,
                               1.0 / 120,
                               1.0 / 720,
                               1.0 / 5040,
                               1.0 / 40320,
                               1.0 / 362880,
                               1.0 / 3628800,
                               1.0 / 39916800,
                               1.0 / 479001600.0,
                               1.0 / 6227020800.0};
  const double n = round_even(x * kLog2E);
  const double r = (x - n * kLn2High) - n * kLn2Low;
  const double value = 1.0 + (r + r * r * polynomial(r, kTerms));
  const auto exponent = static_cast<std::int64_t>(n);
  const std::int64_t half = exponent / 2;  // two steps: the result may be subnormal
  return value * power_of_two(half) * power_of_two(exponent - half);
}

double log_d(double x) {
  if (x != x || x < 0) {
    return std::numeric_limits<double>::quiet_NaN();
  }
  if (x == 0) {
    return -std::numeric_limits<double>::infinity();
  }
  if (x > std::numeric_limits<double>::max()) {
    return x;
  }
  std::int64_t exponent = 0;
  if (x < 0x1p-1022) {
    x *= 0x1p54;
    exponent = -54;
  }
  const auto bits = std::bit_cast<std::uint64_t>(x);
  // Bits of sqrt(1/2): the mantissa lands in [sqrt(1/2), sqrt(2)).
  constexpr std::uint64_t kRootHalf = 0x3fe6a09e667f3bcdU;
  const auto steps = static_cast<std::int64_t>(bits - kRootHalf) >> 52;
  exponent += steps;
  const double f = std::bit_cast<double>(bits - (static_cast<std::uint64_t>(steps) << 52)) - 1.0;
  // log(1+f) = 2 atanh(s), s = f/(2+f), of which f - f^2/2 is taken out exactly.
  constexpr double kTerms[] = {2.0 / 3,
                               2.0 / 5,
                               2.0 / 7,
                               2.0 / 9,
                               2.0 / 11,
                               2.0 / 13,
                               2.0 / 15,
                               2.0 / 17,
                               2.0 / 19,
                               2.0 / 21,
                               2.0 / 23};
  const double s = f / (2.0 + f);
  const double z = s * s;
  const double half_square = 0.5 * f * f;
  const double rest = s * (half_square + z * polynomial(z, kTerms));
  const auto n = static_cast<double>(exponent);
  return n * kLn2High + (f - (half_square - (rest + n * kLn2Low)));
}

double pow_d(double x, double y) {
  return exp_d(y * log_d(x));
}

SinCos sin_cos_d(double radians) {
  constexpr double kSin[] = {-1.0 / 6,
                             1.0 / 120,
                             -1.0 / 5040,
                             1.0 / 362880,
                             -1.0 / 39916800.0,
                             1.0 / 6227020800.0,
                             -1.0 / 1307674368000.0,
                             1.0 / 355687428096000.0};
  constexpr double kCos[] = {1.0 / 24,
                             -1.0 / 720,
                             1.0 / 40320,
                             -1.0 / 3628800,
                             1.0 / 479001600.0,
                             -1.0 / 87178291200.0,
                             1.0 / 20922789888000.0,
                             -1.0 / 6402373705728000.0};
  const double n = round_even(radians * kTwoOverPi);
  const double r = ((radians - n * kHalfPi1) - n * kHalfPi2) - n * kHalfPi3;
  const double z = r * r;
  const double sine = r + r * z * polynomial(z, kSin);
  const double cosine = 1.0 - (0.5 * z - z * z * polynomial(z, kCos));
  switch (static_cast<std::int64_t>(n) & 3) {
    case 0:
      return {sine, cosine};
    case 1:
      return {cosine, -sine};
    case 2:
      return {-sine, -cosine};
    default:
      return {-cosine, sine};
  }
}

}  // namespace troupe
