#include "deploy/bench_run.h"

#include "runtime/model/checkpoint.h"
#include "tests/deploy/demo_stage.h"

#include <gtest/gtest.h>

namespace troupe::deploy {
namespace {

TEST(Figures, GiveTheLowerOfTwoMiddleValues) {
  Figures figures;
  EXPECT_TRUE(figures.empty());
  EXPECT_EQ(figures.median(), 0);

  for (const double value : {4.0, 1.0, 3.0, 2.0}) {
    figures.add(value);
  }

  EXPECT_EQ(figures.min(), 1);
  EXPECT_EQ(figures.median(), 2);
  EXPECT_EQ(figures.max(), 4);
}

TEST(DecodeWeightBytes, CountTheExpertsThatABatchIsExpectedToHit) {
  const auto config = read_model_config(kDemo);
  ASSERT_TRUE(config);
  const auto checkpoint = Checkpoint::open(kDemo, *config);
  ASSERT_TRUE(checkpoint);
  // 16 experts of 3 matrices of 64 x 192 in bf16 in each of 8 layers; 2 are chosen a token.
  const double experts = 16.0 * 3 * 64 * 192 * 2 * 8;

  const auto one = static_cast<double>(decode_weight_bytes(*config, **checkpoint, 1));
  const auto two = static_cast<double>(decode_weight_bytes(*config, **checkpoint, 2));
  const auto many = static_cast<double>(decode_weight_bytes(*config, **checkpoint, 1000));

  EXPECT_NEAR(many - one, experts * (1 - 2.0 / 16), 2);
  EXPECT_NEAR(two - one, experts * (2.0 / 16) * (1 - 2.0 / 16), 2);
  // The rest: all but the embedding (4096 x 192) and the MTP layer; the head is as large as the
  // embedding.
  EXPECT_GT(one, 4096.0 * 192 * 2);
  EXPECT_LT(one, static_cast<double>((*checkpoint)->file_bytes()) - experts * 14 / 16);
}

TEST(BenchRun, DrivesPromptsInChunksAndAllSequencesTogether) {
  const SteadyClock clock;
  BenchShape shape{.prompt_tokens = 70, .output_tokens = 3, .batch = 3};
  auto loaded =
      load_demo(shape, "scalar", {.max_rows = 32, .max_segments = 8, .max_sampled = 8}, clock);
  ASSERT_TRUE(loaded) << loaded.error().message;
  BenchRun run(*loaded->stage, shape, clock);

  for (int repetition = 0; repetition < 2; ++repetition) {
    const auto seconds = run.run();

    ASSERT_TRUE(seconds) << seconds.error().message;
    EXPECT_GT(seconds->prefill, 0);
    EXPECT_GT(seconds->decode, 0);
  }
  EXPECT_GE(loaded->device->stats().submissions,
            2U * (3 * 3 + 3));  // 3 chunks of 3 prompts, 3 steps
}

TEST(BenchRun, DecodesWithoutAPrompt) {
  const SteadyClock clock;
  BenchShape shape{.prompt_tokens = 0, .output_tokens = 2, .batch = 2};
  auto loaded = load_demo(shape, "scalar", {}, clock);
  ASSERT_TRUE(loaded) << loaded.error().message;
  BenchRun run(*loaded->stage, shape, clock);

  const auto seconds = run.run();

  ASSERT_TRUE(seconds) << seconds.error().message;
  EXPECT_GT(seconds->decode, 0);
}

}  // namespace
}  // namespace troupe::deploy
