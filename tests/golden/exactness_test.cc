// Promise P1: with one kernel set a sequence's logits are the same bits however its tokens are cut
// into chunks, whatever else is in the batch, on any number of threads, greedy or sampled; and by
// rule OP-3 for all three fp32 sets.
#include "runtime/base/sha256.h"
#include "runtime/base/sources.h"
#include "tests/golden/golden_file.h"
#include "tests/support/model_under_test.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <set>

namespace troupe::test {
namespace {

using Rows = std::vector<std::vector<float>>;

std::vector<std::int32_t> random_tokens(std::uint64_t seed,
                                        std::size_t count,
                                        std::uint32_t vocab) {
  Rng rng(seed);
  std::vector<std::int32_t> tokens(count);
  for (auto& token : tokens) {
    token = static_cast<std::int32_t>(rng.below(vocab));
  }
  return tokens;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// Runs tokens in chunks and returns the logits of every row.
Rows run_chunks(ModelUnderTest& model,
                std::span<const std::int32_t> tokens,
                std::span<const std::size_t> chunks) {
  Sequence sequence;
  Rows rows;
  std::size_t at = 0;
  for (const std::size_t chunk : chunks) {
    const auto part = tokens.subspan(at, chunk);
    auto result = model.step(
        {.sequence = &sequence, .tokens = {part.begin(), part.end()}, .sample_all = true});
    std::move(result.logits.begin(), result.logits.end(), std::back_inserter(rows));
    at += chunk;
  }
  model.end(sequence);
  return rows;
}

struct Case {
  std::string model;
  Activation activation;
};

class Exactness : public testing::TestWithParam<Case> {
 protected:
  [[nodiscard]] std::unique_ptr<ModelUnderTest> open(const std::string& set,
                                                     std::uint32_t threads = 1) const {
    return ModelUnderTest::open(data_directory() + "/" + GetParam().model,
                                {.activation = GetParam().activation,
                                 .kernel_set = set,
                                 .threads = threads,
                                 .run_inline = threads == 1});
  }
  [[nodiscard]] std::string best_set() const {
    return available_sets(GetParam().activation).back();
  }
};

TEST_P(Exactness, EveryLengthInEverySplitOfTwoGivesTheSameBits) {
  auto model = open(best_set());
  const auto tokens = random_tokens(11, 130, model->config().vocab_size);
  const std::size_t all[] = {130};
  const Rows whole = run_chunks(*model, tokens, all);
  for (std::size_t length = 1; length <= 130; ++length) {
    for (std::size_t split = 1; split <= length; ++split) {
      const std::size_t chunks[] = {split, length - split};
      const Rows rows = run_chunks(*model,
                                   std::span(tokens).first(length),
                                   std::span(chunks).first(split == length ? 1 : 2));
      ASSERT_EQ(rows.size(), length);
      for (std::size_t r = 0; r < length; ++r) {
        ASSERT_TRUE(same_bits(rows[r], whole[r]))
            << "length " << length << " split at " << split << " row " << r;
      }
    }
  }
}

TEST_P(Exactness, ManyChunksAndSingleTokensGiveTheSameBits) {
  auto model = open(best_set());
  const auto tokens = random_tokens(12, 200, model->config().vocab_size);
  const std::size_t all[] = {200};
  const Rows whole = run_chunks(*model, tokens, all);
  Rng rng(13);
  for (int round = 0; round < 40; ++round) {
    std::vector<std::size_t> chunks;
    std::size_t left = tokens.size();
    while (left > 0) {
      chunks.push_back(round == 0 ? 1
                                  : 1 + rng.below(std::min<std::size_t>(left, 1 + rng.below(90))));
      chunks.back() = std::min(chunks.back(), left);
      left -= chunks.back();
    }
    const Rows rows = run_chunks(*model, tokens, chunks);
    for (std::size_t r = 0; r < rows.size(); ++r) {
      ASSERT_TRUE(same_bits(rows[r], whole[r])) << "round " << round << " row " << r;
    }
  }
}

TEST_P(Exactness, BatchesOfOneToSeventeenEqualSingleSequences) {
  auto model = open(best_set());
  constexpr std::size_t kSequences = 17;
  std::vector<std::vector<std::int32_t>> tokens;
  std::vector<Rows> alone;
  for (std::size_t s = 0; s < kSequences; ++s) {
    tokens.push_back(random_tokens(100 + s, 20 + 3 * s, model->config().vocab_size));
    const std::size_t all[] = {tokens[s].size()};
    alone.push_back(run_chunks(*model, tokens[s], all));
  }
  for (std::size_t batch = 1; batch <= kSequences; ++batch) {
    std::vector<Sequence> sequences(batch);
    std::vector<std::size_t> at(batch, 0);
    // Prompts of all sequences in one step of unequal chunks, then single tokens of all of them
    // together.
    for (int step = 0; step < 8; ++step) {
      std::vector<Piece> pieces;
      for (std::size_t s = 0; s < batch; ++s) {
        const std::size_t want = step == 0 ? 1 + (s * 5) % 8 : 1;
        pieces.push_back(
            {.sequence = &sequences[s],
             .tokens = {tokens[s].begin() + static_cast<std::ptrdiff_t>(at[s]),
                        tokens[s].begin() + static_cast<std::ptrdiff_t>(at[s] + want)}});
        at[s] += want;
      }
      const StepResult result = model->step(pieces);
      for (std::size_t s = 0; s < batch; ++s) {
        ASSERT_TRUE(same_bits(result.logits[s], alone[s][at[s] - 1]))
            << "batch " << batch << " step " << step;
      }
    }
    for (Sequence& sequence : sequences) {
      model->end(sequence);
    }
  }
}

TEST_P(Exactness, OneTwoAndThreeThreadsGiveTheSameBits) {
  std::vector<Rows> results;
  for (const std::uint32_t threads : {1U, 2U, 3U}) {
    auto model = open(best_set(), threads);
    const auto tokens = random_tokens(14, 100, model->config().vocab_size);
    const std::size_t chunks[] = {60, 1, 1, 30, 8};
    results.push_back(run_chunks(*model, tokens, chunks));
  }
  for (std::size_t r = 0; r < results[0].size(); ++r) {
    ASSERT_TRUE(same_bits(results[0][r], results[1][r])) << "2 threads, row " << r;
    ASSERT_TRUE(same_bits(results[0][r], results[2][r])) << "3 threads, row " << r;
  }
}

TEST_P(Exactness, TheFp32KernelSetsAgreeBitForBit) {
  std::vector<Rows> results;
  std::vector<std::string> names;
  for (const std::string set : {"scalar", "avx2", "avx512"}) {
    if (!find_cpu_kernel_set(set)->available()) {
      continue;
    }
    auto model = open(set);
    const auto tokens = random_tokens(15, 70, model->config().vocab_size);
    const std::size_t chunks[] = {37, 1, 32};
    results.push_back(run_chunks(*model, tokens, chunks));
    names.push_back(set);
  }
  if (results.size() < 2) {
    GTEST_SKIP() << "this processor has only one of the sets scalar, avx2, avx512";
  }
  for (std::size_t i = 1; i < results.size(); ++i) {
    for (std::size_t r = 0; r < results[0].size(); ++r) {
      ASSERT_TRUE(same_bits(results[0][r], results[i][r])) << names[i] << " row " << r;
    }
  }
}

TEST_P(Exactness, SampledTokensDependOnSeedAndPositionOnly) {
  auto model = open(best_set());
  const auto prompt = random_tokens(16, 40, model->config().vocab_size);
  const SampleParams params{.temperature = 0.9F, .top_k = 20, .top_p = 0.95F, .key = 77};
  const auto generate = [&](std::size_t chunk, std::size_t others) {
    std::vector<Sequence> crowd(others);
    Sequence sequence;
    std::vector<std::int32_t> out;
    std::vector<std::int32_t> next;
    for (std::size_t at = 0; at < prompt.size(); at += chunk) {
      const std::size_t end = std::min(prompt.size(), at + chunk);
      const auto result =
          model->step({.sequence = &sequence,
                       .tokens = {prompt.begin() + static_cast<std::ptrdiff_t>(at),
                                  prompt.begin() + static_cast<std::ptrdiff_t>(end)},
                       .params = params});
      next = {result.results[0].token};
    }
    for (int i = 0; i < 30; ++i) {
      out.push_back(next[0]);
      std::vector<Piece> pieces;
      for (Sequence& other : crowd) {
        pieces.push_back({.sequence = &other,
                          .tokens = {static_cast<std::int32_t>(i % 50)},
                          .params = {.temperature = 1, .key = 5}});
      }
      pieces.push_back({.sequence = &sequence, .tokens = next, .params = params});
      next = {model->step(pieces).results.back().token};
    }
    model->end(sequence);
    for (Sequence& other : crowd) {
      model->end(other);
    }
    return out;
  };

  const auto alone = generate(40, 0);

  EXPECT_EQ(generate(7, 0), alone);
  EXPECT_EQ(generate(13, 6), alone);
  EXPECT_GT(std::set<std::int32_t>(alone.begin(), alone.end()).size(), 5U);
}

INSTANTIATE_TEST_SUITE_P(Models,
                         Exactness,
                         testing::Values(Case{"next-tiny", Activation::kF32},
                                         Case{"next-tiny", Activation::kBF16},
                                         Case{"q35-moe-fp8", Activation::kBF16},
                                         Case{"q35-dense", Activation::kF32}),
                         [](const auto& instance) {
                           std::string name =
                               instance.param.model +
                               (instance.param.activation == Activation::kBF16 ? "_bf16" : "_fp32");
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace troupe::test
