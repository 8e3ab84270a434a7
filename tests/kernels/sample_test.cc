// Sampling against a naive implementation and against the distributions it must have.
#include "tests/kernels/rig.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>
#include <vector>

namespace troupe::testing {
namespace {

class Sampling : public OnEverySet {};
TROUPE_ON_EVERY_SET(Sampling);

constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct Lists {
  std::vector<TokenValue> prompt, generated, bias;
};

// One row at `position`; `valid` 0 means all.
SampleResult sample(const KernelSet& set,
                    Activation act,
                    const std::vector<float>& logits,
                    SampleParams params,
                    std::int32_t position = 0,
                    const Lists& lists = {},
                    std::uint32_t valid = 0) {
  Rig rig(act);
  rig.add_segment(1, position);
  const auto append =
      [&rig](const std::vector<TokenValue>& list, std::uint32_t& begin, std::uint32_t& end) {
        begin = static_cast<std::uint32_t>(rig.values.size());
        rig.values.insert(rig.values.end(), list.begin(), list.end());
        end = static_cast<std::uint32_t>(rig.values.size());
      };
  append(lists.prompt, params.prompt_begin, params.prompt_end);
  append(lists.generated, params.generated_begin, params.generated_end);
  append(lists.bias, params.bias_begin, params.bias_end);
  rig.sampled = {{0, params}};
  const auto vocab = static_cast<std::uint32_t>(logits.size());
  const SampleArgs args{rig.put(logits), vocab, valid == 0 ? vocab : valid};
  rig.run(set, KernelId::kSample, &args);
  return rig.results[0];
}

// Tokens drawn at positions 0 .. count-1 from one row of logits.
std::vector<std::int32_t> draws(const KernelSet& set,
                                Activation act,
                                const std::vector<float>& logits,
                                const SampleParams& params,
                                std::uint32_t count,
                                Order order = Order::kAtOnce) {
  Rig rig(act);
  rig.add_segment(count);
  std::vector<float> all;
  for (std::uint32_t i = 0; i < count; ++i) {
    rig.sampled.push_back({i, params});
    all.insert(all.end(), logits.begin(), logits.end());
  }
  const auto vocab = static_cast<std::uint32_t>(logits.size());
  const SampleArgs args{rig.put(all), vocab, vocab};
  rig.run(set, KernelId::kSample, &args, order);
  std::vector<std::int32_t> tokens;
  for (const SampleResult& result : rig.results) {
    tokens.push_back(result.token);
  }
  return tokens;
}

TEST_P(Sampling, GreedyTakesTheLowestOfEquals) {
  EXPECT_EQ(sample(set(), act(), {1, 3, 2, 3, 3}, {}).token, 1);
  EXPECT_EQ(sample(set(), act(), {-kInfinity, -5, -kInfinity}, {}).token, 1);
  EXPECT_EQ(sample(set(), act(), {-0.0F, 0.0F}, {}).token, 0);
  EXPECT_EQ(sample(set(), act(), {0, kInfinity, kInfinity}, {.temperature = 1}).token, 1);
}

TEST_P(Sampling, GreedyFindsTheBestOfALargeVocabulary) {
  std::vector<float> logits = noise(3, 70001, 5);
  logits[69990] = 7;
  EXPECT_EQ(sample(set(), act(), logits, {}).token, 69990);
}

TEST_P(Sampling, NeverChoosesPadding) {
  const std::vector<float> logits = {1, 2, 0, 9, 9};
  SampleParams params{.top_logprobs = 5};
  const SampleResult result = sample(set(), act(), logits, params, 0, {}, 3);

  EXPECT_EQ(result.token, 1);
  EXPECT_EQ(result.top_count, 3U);
  for (std::int32_t position = 0; position < 50; ++position) {
    EXPECT_LT(sample(set(), act(), logits, {.temperature = 5}, position, {}, 3).token, 3);
  }
}

TEST_P(Sampling, HasNoAnswerForANaNOrForNothing) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const float temperature : {0.0F, 1.0F}) {
    EXPECT_EQ(sample(set(), act(), {1, nan, 2}, {.temperature = temperature}).token, -1);
    EXPECT_EQ(sample(set(), act(), {-kInfinity, -kInfinity}, {.temperature = temperature}).token,
              -1);
  }
}

TEST_P(Sampling, ReportsLogProbabilitiesOfTheRawLogits) {
  const std::vector<float> logits = {1, 2, 2, 0.5F};
  const SampleParams params{.temperature = 0, .top_logprobs = 3, .want_logprob = 1};
  const double log_sum = std::log(std::exp(1.0) + 2 * std::exp(2.0) + std::exp(0.5));

  const SampleResult result =
      sample(set(), act(), logits, params, 0, {.prompt = {}, .generated = {}, .bias = {{3, 50}}});

  EXPECT_EQ(result.token, 3);
  EXPECT_NEAR(static_cast<double>(result.logprob), 0.5 - log_sum, 1e-6);
  ASSERT_EQ(result.top_count, 3U);
  EXPECT_EQ(result.top[0].token, 1U);
  EXPECT_EQ(result.top[1].token, 2U);
  EXPECT_EQ(result.top[2].token, 0U);
  EXPECT_NEAR(static_cast<double>(result.top[0].value), 2 - log_sum, 1e-6);
  EXPECT_NEAR(static_cast<double>(result.top[2].value), 1 - log_sum, 1e-6);
}

TEST_P(Sampling, ReportsAForcedTokenWithTheBitsOfAChosenOne) {
  const std::vector<float> logits = noise(5, 3001, 4);
  SampleParams params{.top_logprobs = 4, .want_logprob = 1};
  const SampleResult chosen = sample(set(), act(), logits, params);
  params.temperature = 1;
  params.forced = chosen.token;

  const SampleResult forced = sample(set(), act(), logits, params, 7);

  EXPECT_EQ(forced.token, chosen.token);
  EXPECT_EQ(forced.logprob, chosen.logprob);
  EXPECT_EQ(forced.top, chosen.top);
  params.forced = 17;
  const SampleResult other = sample(set(), act(), logits, params);
  EXPECT_EQ(other.token, 17);
  EXPECT_EQ(other.top, chosen.top);
  EXPECT_NEAR(other.logprob - chosen.logprob,
              logits[17] - logits[static_cast<std::size_t>(chosen.token)],
              1e-5);
}

TEST_P(Sampling, GivesAForcedTokenThatItNeverChoosesNoProbability) {
  SampleParams params{.want_logprob = 1, .forced = 4};
  EXPECT_EQ(sample(set(), act(), {1, 2, 0, 9, 9}, params, 0, {}, 3).logprob, -kInfinity);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  params.forced = 1;
  EXPECT_EQ(sample(set(), act(), {1, 2, nan}, params).token, -1);
}

TEST_P(Sampling, PenaltiesAndBiasMoveTheChoice) {
  const std::vector<float> logits = {4, 3.9F, -1, 3.5F};
  EXPECT_EQ(sample(set(),
                   act(),
                   logits,
                   {.repetition_penalty = 1.1F},
                   0,
                   {.prompt = {{0, 0}}, .generated = {}, .bias = {}})
                .token,
            1);
  // Once per token, however often it is listed: 4 / 1.01 > 3.9 > 4 / 1.01^3.
  EXPECT_EQ(sample(set(),
                   act(),
                   logits,
                   {.repetition_penalty = 1.01F},
                   0,
                   {.prompt = {{0, 0}, {0, 0}}, .generated = {{0, 1}}, .bias = {}})
                .token,
            0);
  EXPECT_EQ(sample(set(),
                   act(),
                   logits,
                   {.presence_penalty = 0.2F},
                   0,
                   {.prompt = {{1, 0}}, .generated = {{0, 1}}, .bias = {}})
                .token,
            1);
  // Presence ignores the prompt and the count; frequency does not ignore the count.
  EXPECT_EQ(sample(set(),
                   act(),
                   logits,
                   {.presence_penalty = 0.05F},
                   0,
                   {.prompt = {}, .generated = {{0, 9}}, .bias = {}})
                .token,
            0);
  EXPECT_EQ(sample(set(),
                   act(),
                   logits,
                   {.frequency_penalty = 0.05F},
                   0,
                   {.prompt = {}, .generated = {{0, 9}}, .bias = {}})
                .token,
            1);
  EXPECT_EQ(
      sample(
          set(), act(), logits, {}, 0, {.prompt = {}, .generated = {}, .bias = {{3, 1}, {900, 5}}})
          .token,
      3);
  EXPECT_EQ(sample(set(),
                   act(),
                   logits,
                   {},
                   0,
                   {.prompt = {}, .generated = {}, .bias = {{0, -kInfinity}, {1, -kInfinity}}})
                .token,
            3);
}

TEST_P(Sampling, MultipliesNegativeLogitsByTheRepetitionPenalty) {
  EXPECT_EQ(sample(set(),
                   act(),
                   {-1, -1.5F},
                   {.repetition_penalty = 2},
                   0,
                   {.prompt = {{0, 0}}, .generated = {}, .bias = {}})
                .token,
            1);
}

// The naive reading of the rules: sort everything. Kept ids in order, with their probabilities.
struct Kept {
  std::vector<std::uint32_t> ids;
  std::vector<double> probabilities;
};
Kept naive(const std::vector<float>& logits, const SampleParams& p) {
  std::vector<std::uint32_t> ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0U);
  std::stable_sort(ids.begin(), ids.end(), [&logits](std::uint32_t a, std::uint32_t b) {
    return logits[a] > logits[b];
  });
  if (p.top_k > 0 && p.top_k < ids.size()) {
    ids.resize(p.top_k);
  }
  std::vector<double> weights;
  for (const std::uint32_t id : ids) {
    weights.push_back(
        std::exp((static_cast<double>(logits[id]) - static_cast<double>(logits[ids[0]])) /
                 static_cast<double>(p.temperature)));
  }
  double total = std::accumulate(weights.begin(), weights.end(), 0.0);
  std::size_t count = 0;
  for (double sum = 0;
       count < ids.size() && (count == 0 || sum < static_cast<double>(p.top_p) * total);
       ++count) {
    sum += weights[count];
  }
  while (count > 1 && weights[count - 1] < static_cast<double>(p.min_p)) {
    --count;
  }
  ids.resize(count);
  weights.resize(count);
  total = std::accumulate(weights.begin(), weights.end(), 0.0);
  for (double& weight : weights) {
    weight /= total;
  }
  return {ids, weights};
}

double chi_square(const std::vector<std::int32_t>& tokens, const Kept& kept) {
  double sum = 0;
  for (std::size_t i = 0; i < kept.ids.size(); ++i) {
    const auto seen = static_cast<double>(
        std::count(tokens.begin(), tokens.end(), static_cast<std::int32_t>(kept.ids[i])));
    const double expected = kept.probabilities[i] * static_cast<double>(tokens.size());
    sum += (seen - expected) * (seen - expected) / expected;
  }
  return sum;
}

TEST_P(Sampling, FollowsTheDistributionOfTheRules) {
  const std::vector<float> logits = {0.5F, 1.5F, -1, 2, 0, 1, -0.5F, 2.5F, 1.2F, -2, 0.1F, 0.7F};
  const SampleParams cases[] = {
      {.temperature = 1},
      {.temperature = 0.7F},
      {.temperature = 1, .top_k = 5},
      {.temperature = 1, .top_p = 0.8F},
      {.temperature = 1.3F, .min_p = 0.2F},
      {.temperature = 1, .top_k = 8, .top_p = 0.9F, .min_p = 0.15F},
  };
  for (const SampleParams& params : cases) {
    const Kept kept = naive(logits, params);
    const std::vector<std::int32_t> tokens = draws(set(), act(), logits, params, 4000);

    const std::set<std::uint32_t> allowed(kept.ids.begin(), kept.ids.end());
    EXPECT_TRUE(std::all_of(tokens.begin(), tokens.end(), [&allowed](std::int32_t token) {
      return allowed.count(static_cast<std::uint32_t>(token)) == 1;
    }));
    // 99.9 % of a chi-square with 11 degrees of freedom lies below 31.3.
    EXPECT_LT(chi_square(tokens, kept), 31.3);
  }
}

// The id that inverse sampling over the naive list takes; those on a boundary within rounding are
// left out (-1).
std::int32_t naive_choice(const Kept& kept, std::uint64_t key, std::int32_t position) {
  const auto block = philox4x32(key, {static_cast<std::uint32_t>(position), 0, 1, 0});
  const double uniform =
      static_cast<double>(((std::uint64_t{block[1]} << 32) | block[0]) >> 11) * 0x1p-53;
  double sum = 0;
  for (std::size_t i = 0; i < kept.ids.size(); ++i) {
    sum += kept.probabilities[i];
    if (std::abs(sum - uniform) < 1e-5) {
      return -1;
    }
    if (sum > uniform) {
      return static_cast<std::int32_t>(kept.ids[i]);
    }
  }
  return -1;
}

TEST_P(Sampling, EqualsANaiveSortOnALargeVocabulary) {
  std::vector<float> logits = noise(11, 9001, 8);
  logits[4000] = 9;
  const SampleParams cases[] = {
      {.temperature = 1, .top_k = 20, .key = 77},
      {.temperature = 0.9F, .top_k = 700, .key = 78},
      {.temperature = 1, .top_p = 0.5F, .key = 79},
      {.temperature = 3, .top_p = 0.95F, .key = 80},
      {.temperature = 2, .min_p = 0.1F, .key = 81},
      {.temperature = 1, .top_k = 40, .top_p = 0.9F, .min_p = 0.3F, .key = 82},
      {.temperature = 9, .top_p = 0.9999999F, .key = 83},
  };
  for (const SampleParams& params : cases) {
    const Kept kept = naive(logits, params);
    const std::vector<std::int32_t> tokens = draws(set(), act(), logits, params, 64);
    std::size_t compared = 0;
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      const std::int32_t want = naive_choice(kept, params.key, static_cast<std::int32_t>(i));
      if (want >= 0) {
        EXPECT_EQ(tokens[i], want) << "position " << i << ", key " << params.key;
        ++compared;
      }
    }
    EXPECT_GT(compared, 40U);
  }
}

TEST_P(Sampling, UnfilteredDrawsGoThroughIdsInOrder) {
  const std::vector<float> logits = noise(12, 5003, 4);
  Kept kept;
  double total = 0;
  for (const float logit : logits) {
    total += std::exp(static_cast<double>(logit));
  }
  for (std::uint32_t id = 0; id < logits.size(); ++id) {
    kept.ids.push_back(id);
    kept.probabilities.push_back(std::exp(static_cast<double>(logits[id])) / total);
  }
  const std::vector<std::int32_t> tokens =
      draws(set(), act(), logits, {.temperature = 1, .key = 5}, 100);
  std::size_t compared = 0;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const std::int32_t want = naive_choice(kept, 5, static_cast<std::int32_t>(i));
    if (want >= 0) {
      EXPECT_EQ(tokens[i], want);
      ++compared;
    }
  }
  EXPECT_GT(compared, 60U);
}

TEST_P(Sampling, BreaksTiesAtTheTopKBoundaryByLowerId) {
  std::vector<float> logits(5000, 1.0F);
  logits[4999] = 2;
  for (const std::int32_t token : draws(set(), act(), logits, {.temperature = 1, .top_k = 3}, 60)) {
    EXPECT_TRUE(token == 4999 || token == 0 || token == 1) << token;
  }
}

TEST_P(Sampling, IsTheSameOnEverySetInAnyOrder) {
  const std::vector<float> logits = noise(13, 3001, 3);
  for (const SampleParams& params : {SampleParams{.temperature = 1},
                                     SampleParams{.temperature = 1, .top_p = 0.9F},
                                     SampleParams{.temperature = 1, .top_k = 50}}) {
    expect_one_truth([&](const KernelSet& which, Order order) {
      const std::vector<std::int32_t> tokens = draws(which, act(), logits, params, 40, order);
      return std::vector<float>(tokens.begin(), tokens.end());
    });
  }
}

TEST_P(Sampling, DependsOnKeyPositionAndChoiceOnly) {
  const std::vector<float> logits = noise(14, 500);
  const SampleParams params{.temperature = 1, .key = 9, .choice = 2};
  std::set<std::int32_t> seen;
  for (std::int32_t position = 0; position < 20; ++position) {
    const std::int32_t token = sample(set(), act(), logits, params, position).token;
    EXPECT_EQ(token, sample(set(), act(), logits, params, position).token);
    seen.insert(token);
  }
  EXPECT_GT(seen.size(), 15U);
  EXPECT_NE(draws(set(), act(), logits, {.temperature = 1, .key = 9}, 20),
            draws(set(), act(), logits, {.temperature = 1, .key = 10}, 20));
  EXPECT_NE(draws(set(), act(), logits, {.temperature = 1, .key = 9}, 20),
            draws(set(), act(), logits, {.temperature = 1, .key = 9, .choice = 1}, 20));
}

}  // namespace
}  // namespace troupe::testing
