// Router, grouping by expert and the weighted sum of experts.
#include "tests/kernels/rig.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

namespace troupe::testing {
namespace {

class Moe : public OnEverySet {};
TROUPE_ON_EVERY_SET(Moe);

struct Routes {
  std::vector<std::uint32_t> ids;
  std::vector<float> weights;
};

Routes route(const KernelSet& set,
             Activation act,
             const std::vector<float>& logits,
             std::uint32_t experts,
             std::uint32_t top_k,
             bool renormalise = true,
             Order order = Order::kAtOnce) {
  Rig rig(act);
  const auto rows = static_cast<std::uint32_t>(logits.size() / experts);
  rig.add_segment(rows);
  const RouterArgs args{.logits = rig.put(logits),
                        .ids = rig.room(rows * top_k * 4),
                        .weights = rig.room(rows * top_k * 4),
                        .experts = experts,
                        .top_k = top_k,
                        .renormalise = renormalise};
  rig.run(set, KernelId::kRouter, &args, order);
  return {rig.get<std::uint32_t>(args.ids, rows * top_k),
          rig.get<float>(args.weights, rows * top_k)};
}

TEST_P(Moe, RouterEqualsTheModelPage) {  // 3.7
  const Routes routes = route(set(), act(), {.5F, 2, -1, 1, 0, 1.5F}, 6, 3);

  EXPECT_EQ(routes.ids, (std::vector<std::uint32_t>{1, 5, 3}));
  expect_near(routes.weights, {.506480, .307196, .186324}, Activation::kF32, 1e-6);
}

TEST_P(Moe, RouterPrefersTheLowerIndexAmongEquals) {
  EXPECT_EQ(route(set(), act(), {1, 2, 2, 0, 2, 1}, 6, 4).ids,
            (std::vector<std::uint32_t>{1, 2, 4, 0}));
}

TEST_P(Moe, RouterNamesExpertsEvenForBrokenLogits) {
  const Routes routes = route(set(), act(), {NAN, 1, 2, 3}, 4, 2);

  EXPECT_TRUE(
      std::all_of(routes.ids.begin(), routes.ids.end(), [](std::uint32_t id) { return id < 4; }));
}

TEST_P(Moe, RouterEqualsAFullSort) {
  constexpr std::uint32_t kRows = 7;
  constexpr std::uint32_t kExperts = 130;
  constexpr std::uint32_t kTop = 10;
  const std::vector<float> logits = noise(9, kRows * kExperts, 4);
  std::vector<std::uint32_t> ids;
  std::vector<double> plain;
  std::vector<double> normalised;
  for (std::size_t row = 0; row < kRows; ++row) {
    const float* x = logits.data() + row * kExperts;
    std::vector<std::uint32_t> order(kExperts);
    std::iota(order.begin(), order.end(), 0U);
    std::stable_sort(
        order.begin(), order.end(), [x](std::uint32_t a, std::uint32_t b) { return x[a] > x[b]; });
    double total = 0;
    double chosen = 0;
    for (std::uint32_t i = 0; i < kExperts; ++i) {
      total += std::exp(static_cast<double>(x[order[i]]));
      chosen = i + 1 == kTop ? total : chosen;
    }
    for (std::uint32_t i = 0; i < kTop; ++i) {
      ids.push_back(order[i]);
      plain.push_back(std::exp(static_cast<double>(x[order[i]])) / total);
      normalised.push_back(std::exp(static_cast<double>(x[order[i]])) / chosen);
    }
  }

  const Routes with = route(set(), act(), logits, kExperts, kTop);
  const Routes without = route(set(), act(), logits, kExperts, kTop, false);

  EXPECT_EQ(with.ids, ids);
  expect_near(with.weights, normalised, Activation::kF32, 2e-6);
  expect_near(without.weights, plain, Activation::kF32, 2e-6);
  expect_one_truth([&logits](const KernelSet& which, Order order) {
    const Routes routes = route(which, act(), logits, kExperts, kTop, true, order);
    std::vector<float> all = routes.weights;
    all.insert(all.end(), routes.ids.begin(), routes.ids.end());
    return all;
  });
}

TEST_P(Moe, PermuteGroupsEntriesByExpertStably) {
  Rig rig(act());
  rig.add_segment(3);
  const MoePermuteArgs args{.ids = rig.put<std::uint32_t>({4, 1, 1, 0, 4, 1}),
                            .offsets = rig.room(6 * 4),
                            .entries = rig.room(6 * 4),
                            .active = rig.room(5 * 4),
                            .active_count = rig.room(4),
                            .experts = 5,
                            .top_k = 2};

  rig.run(set(), KernelId::kMoePermute, &args);

  EXPECT_EQ(rig.get<std::uint32_t>(args.offsets, 6),
            (std::vector<std::uint32_t>{0, 1, 4, 4, 4, 6}));
  EXPECT_EQ(rig.get<std::uint32_t>(args.entries, 6),
            (std::vector<std::uint32_t>{3, 1, 2, 5, 0, 4}));
  EXPECT_EQ(rig.get<std::uint32_t>(args.active_count, 1), (std::vector<std::uint32_t>{3}));
  EXPECT_EQ(rig.get<std::uint32_t>(args.active, 3), (std::vector<std::uint32_t>{0, 1, 4}));
}

std::vector<float> combine(
    const KernelSet& set, Activation act, Order order, std::uint32_t rows, bool shared) {
  Rig rig(act);
  rig.add_segment(rows);
  MoeCombineArgs args{.expert = rig.put_act(noise(1, 5 * 3 * 70)),
                      .weights = rig.put(noise(2, 5 * 3)),
                      .shared = {},
                      .shared_gate = {},
                      .out = rig.room(5 * 70 * 4),
                      .width = 70,
                      .top_k = 3};
  if (shared) {
    args.shared = rig.put(noise(3, 5 * 70));
    args.shared_gate = rig.put(noise(4, 5, 3));
  }
  rig.run(set, KernelId::kMoeCombine, &args, order);
  return rig.get<float>(args.out, rows * std::size_t{70});
}

TEST_P(Moe, CombineAddsChoicesAndTheSharedExpert) {
  const std::vector<float> expert = noise(1, 5 * 3 * 70);
  const std::vector<float> weights = noise(2, 5 * 3);
  const std::vector<float> shared = noise(3, 5 * 70);
  const std::vector<float> gate = noise(4, 5, 3);
  for (const bool with_shared : {false, true}) {
    std::vector<double> want;
    for (std::size_t t = 0; t < 5; ++t) {
      for (std::size_t i = 0; i < 70; ++i) {
        double sum = 0;
        for (std::size_t c = 0; c < 3; ++c) {
          sum += static_cast<double>(weights[t * 3 + c]) *
                 static_cast<double>(expert[(t * 3 + c) * 70 + i]);
        }
        sum += with_shared
                   ? sigmoid(static_cast<double>(gate[t])) * static_cast<double>(shared[t * 70 + i])
                   : 0;
        want.push_back(sum);
      }
    }
    const std::vector<float> got = combine(set(), act(), Order::kAtOnce, 5, with_shared);
    expect_near(got, want, Activation::kF32);
    expect_one_truth([with_shared](const KernelSet& which, Order order) {
      return combine(which, act(), order, 5, with_shared);
    });
    EXPECT_EQ(bits_of({got.begin(), got.begin() + 140}),
              bits_of(combine(set(), act(), Order::kAtOnce, 2, with_shared)));
  }
}

}  // namespace
}  // namespace troupe::testing
