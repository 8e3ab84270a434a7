// Accuracy of our own elementary functions. The sets' bits are compared in the kernels' tests; here
// the scalar code is compared with the C library's double.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#define TROUPE_ISA math_test
#define TROUPE_VEC_SCALAR
#include "kernels/cpu/math.h"
#include "runtime/base/math.h"
#include "tests/kernels/rig.h"

namespace troupe::testing {
namespace {

namespace ours = cpu::math_test;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

// The distance in units of the last place of the exact value (of the smallest normal number below
// that).
double ulps(float got, double want) {
  const double unit = std::ldexp(1.0, std::max(std::ilogb(want), -126) - 23);
  return std::abs(static_cast<double>(got) - want) / unit;
}

template <class Ours, class Exact>
double worst_ulps(double from, double to, Ours function, Exact exact) {
  double worst = 0;
  for (int i = 0; i <= 200000; ++i) {
    const auto x = static_cast<float>(from + (to - from) * i / 200000);
    worst = std::max(worst, ulps(function(x), exact(static_cast<double>(x))));
  }
  return worst;
}

TEST(Math, ExpIsWithinAUnitInTheLastPlaceOrSo) {
  const auto function = [](float x) { return ours::exp(x); };
  const auto exact = [](double x) { return std::exp(x); };
  EXPECT_LT(worst_ulps(-87.3, 88.7, function, exact), 1.1);
  EXPECT_LT(worst_ulps(-1, 1, function, exact), 1.1);
  EXPECT_LT(worst_ulps(-104, -87, function, exact), 1.1);
}

TEST(Math, ExpIsRightAtItsEnds) {
  EXPECT_EQ(ours::exp(0.0F), 1.0F);
  EXPECT_EQ(ours::exp(-kInfinity), 0.0F);
  EXPECT_EQ(ours::exp(-150.0F), 0.0F);
  EXPECT_EQ(ours::exp(kInfinity), kInfinity);
  EXPECT_EQ(ours::exp(88.8F), kInfinity);
  EXPECT_LT(ours::exp(88.7F), kInfinity);
  EXPECT_TRUE(std::isnan(ours::exp(kNaN)));
}

TEST(Math, LogIsWithinOneUnitInTheLastPlace) {
  const auto function = [](float x) { return ours::lane0(ours::log_normal(ours::set1(x))); };
  const auto exact = [](double x) { return std::log(x); };
  EXPECT_LT(worst_ulps(1e-6, 0.999, function, exact), 1.0);
  EXPECT_LT(worst_ulps(1.001, 3, function, exact), 1.0);
  EXPECT_LT(worst_ulps(1, 1e9, function, exact), 1.0);
  EXPECT_EQ(function(1.0F), 0.0F);
  EXPECT_EQ(function(kInfinity), kInfinity);
  EXPECT_TRUE(std::isnan(function(kNaN)));
}

TEST(Math, SigmoidSiluAndSoftplusAreAccurate) {
  EXPECT_LT(
      worst_ulps(
          -80, 80, [](float x) { return ours::sigmoid(x); }, [](double x) { return sigmoid(x); }),
      3.0);
  EXPECT_LT(worst_ulps(
                -80, 80, [](float x) { return ours::silu(x); }, [](double x) { return silu(x); }),
            3.0);
  EXPECT_LT(worst_ulps(
                -80,
                40,
                [](float x) { return ours::softplus(x); },
                [](double x) { return std::log1p(std::exp(x)); }),
            3.0);
}

TEST(Math, GatesAreRightAtTheirEnds) {
  EXPECT_EQ(ours::sigmoid(-kInfinity), 0.0F);
  EXPECT_EQ(ours::sigmoid(kInfinity), 1.0F);
  EXPECT_EQ(ours::silu(1000.0F), 1000.0F);
  EXPECT_EQ(ours::silu(-1000.0F), 0.0F);
  EXPECT_EQ(ours::softplus(20.5F), 20.5F);
  EXPECT_EQ(ours::softplus(kInfinity), kInfinity);
  EXPECT_EQ(ours::softplus(-kInfinity), 0.0F);
  EXPECT_TRUE(std::isnan(ours::softplus(kNaN)));
  EXPECT_TRUE(std::isnan(ours::sigmoid(kNaN)));
}

TEST(Math, ReductionsFollowTheTree) {
  std::vector<float> x(16);
  for (int i = 0; i < 16; ++i) {
    x[static_cast<std::size_t>(i)] = std::ldexp(1.0F, 3 * (i % 8)) + 0.1F * static_cast<float>(i);
  }
  std::vector<float> tree = x;
  for (std::size_t step = 8; step > 0; step /= 2) {
    for (std::size_t i = 0; i < step; ++i) {
      tree[i] += tree[i + step];
    }
  }

  EXPECT_EQ(ours::reduce_add(ours::load(x.data())), tree[0]);
  EXPECT_EQ(ours::reduce_max(ours::load(x.data())), *std::max_element(x.begin(), x.end()));
}

double relative_error(double got, double want) {
  return want == 0 ? std::abs(got) : std::abs(got - want) / std::abs(want);
}

TEST(Math, DoubleFunctionsAreGoodToFifteenDigits) {
  double worst = 0;
  for (int i = 1; i <= 20000; ++i) {
    const double x = i * 0.037 - 370;
    worst = std::max(worst, relative_error(exp_d(x), std::exp(x)));
    worst = std::max(worst, relative_error(log_d(i * 0.37e-3), std::log(i * 0.37e-3)));
    worst = std::max(worst, relative_error(log_d(i * 1e100), std::log(i * 1e100)));
  }
  EXPECT_LT(worst, 2e-15);
  for (int i = 0; i < 32; ++i) {
    EXPECT_LT(relative_error(pow_d(1e7, -2.0 * i / 64), std::pow(1e7, -2.0 * i / 64)), 1e-14);
  }
}

TEST(Math, DoubleFunctionsAreRightAtTheirEnds) {
  EXPECT_EQ(exp_d(0), 1);
  EXPECT_EQ(exp_d(-800), 0);
  EXPECT_EQ(exp_d(710), std::numeric_limits<double>::infinity());
  EXPECT_NEAR(exp_d(-740), std::exp(-740), 5e-324);
  EXPECT_TRUE(std::isnan(exp_d(std::nan(""))));
  EXPECT_EQ(log_d(1), 0);
  EXPECT_EQ(log_d(0), -std::numeric_limits<double>::infinity());
  EXPECT_EQ(log_d(std::numeric_limits<double>::infinity()),
            std::numeric_limits<double>::infinity());
  EXPECT_LT(relative_error(log_d(1e-310), std::log(1e-310)), 2e-15);
  EXPECT_TRUE(std::isnan(log_d(-1)));
}

TEST(Math, SineAndCosineHoldUpToTheLargestPosition) {
  double worst = 0;
  for (int i = -100000; i <= 100000; ++i) {
    const auto x = static_cast<double>(static_cast<float>(i * 167.77216));  // up to 2^24
    const SinCos got = sin_cos_d(x);
    worst = std::max({worst, std::abs(got.sin - std::sin(x)), std::abs(got.cos - std::cos(x))});
    const SinCos small = sin_cos_d(i * 1e-4);
    worst = std::max({worst,
                      relative_error(small.sin, std::sin(i * 1e-4)) / 4,
                      std::abs(small.cos - std::cos(i * 1e-4))});
  }
  EXPECT_LT(worst, 4e-16);
  // The fp32 number below 2^24 nearest to a multiple of pi/2 (of all odd multiples tried): no digit
  // may be lost.
  for (int n = 1; n < 200000; ++n) {
    const auto x = static_cast<double>(static_cast<float>(n * 1.5707963267948966));
    const SinCos got = sin_cos_d(x);
    ASSERT_LT(
        relative_error(n % 2 == 0 ? got.sin : got.cos, n % 2 == 0 ? std::sin(x) : std::cos(x)),
        1e-9)
        << n;
  }
}

// Every bf16 value through the kernels of each set: the same bits as scalar.
class MathOnEverySet : public OnEverySet {};
TROUPE_ON_EVERY_SET(MathOnEverySet);

TEST_P(MathOnEverySet, GivesTheSameBitsForEveryBf16Value) {
  std::vector<float> x;
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    const float value = bf16_to_f32(static_cast<bf16>(bits));
    x.push_back(std::isnan(value) ? 0 : value);
  }
  const auto run = [&x](const KernelSet& which, Order) {
    Rig rig(act());
    rig.add_segment(1);
    const Ref up = rig.put(std::vector<float>(x.size(), 1.0F));
    const SiluMulArgs silu_args{
        rig.put(x), up, rig.act_room(x.size()), static_cast<std::uint32_t>(x.size())};
    const GateMulArgs gate_args{
        up, rig.put_act(x), rig.act_room(x.size()), static_cast<std::uint32_t>(x.size())};
    rig.run(which, KernelId::kSiluMul, &silu_args);
    rig.run(which, KernelId::kGateMul, &gate_args);
    std::vector<float> all = rig.get_act(silu_args.out, x.size());
    const std::vector<float> gates = rig.get_act(gate_args.out, x.size());
    all.insert(all.end(), gates.begin(), gates.end());
    for (float& value : all) {
      value = std::isnan(value) ? kNaN : value;  // one NaN is like another
    }
    return all;
  };
  EXPECT_EQ(bits_of(run(set(), Order::kAtOnce)), bits_of(run(scalar(), Order::kAtOnce)));
}

}  // namespace
}  // namespace troupe::testing
