// Who gets which rows of a step: answers and prompts hold each other up no longer than the sizes
// say, and with hardly any memory everybody still gets to the end.
#include "tests/serve/driver.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace troupe {
namespace {

TEST(Fairness, GivesEveryAnswerATokenInEveryStepWhileALongPromptIsRead) {
  Driver driver({.blocks = 40, .step_rows_max = 16, .sequences_max = 5});
  std::vector<RequestId> answers;
  for (std::uint32_t i = 0; i < 4; ++i) {
    answers.push_back(driver.add(prompt_request(2, 40, i)));
  }
  driver.launch();
  driver.land();
  const RequestId reading = driver.add(prompt_request(300, 2, 9));

  for (std::size_t step = 2; step <= 20; ++step) {
    ASSERT_TRUE(driver.launch());
    ASSERT_EQ(driver.away.front().first.decode_rows, 4U);
    driver.land();
    for (const RequestId id : answers) {
      ASSERT_EQ(driver.tokens[id].size(), step);
    }
  }
  driver.run();

  driver.expect_answer(reading);
  driver.expect_idle();
}

TEST(Fairness, ReadsAPromptWithEveryRowThatAnswersLeave) {
  Driver driver({.pages = 10, .blocks = 40, .step_rows_max = 16, .sequences_max = 8});
  for (std::uint32_t i = 0; i < 7; ++i) {
    driver.add(prompt_request(1, 200, i));
  }
  driver.launch();
  driver.land();
  const RequestId reading = driver.add(prompt_request(90, 2, 9));

  std::uint32_t steps = 0;
  while (driver.tokens[reading].empty()) {
    ASSERT_TRUE(driver.launch());
    driver.land();
    ++steps;
  }

  EXPECT_EQ(steps, 10U) << "90 rows, 9 in a step";
  driver.run();
  driver.expect_idle();
}

TEST(Fairness, ReadsPromptsInTheOrderOfTheirArrival) {
  Driver driver({.blocks = 40, .step_rows_max = 8, .sequences_max = 4});
  std::vector<RequestId> ids;
  for (std::uint32_t i = 0; i < 4; ++i) {
    ids.push_back(driver.add(prompt_request(20, 1, i)));
  }
  std::vector<RequestId> order;

  while (order.size() < ids.size()) {
    driver.launch();
    driver.land();
    for (const RequestId id : ids) {
      if (driver.ends.contains(id) && std::find(order.begin(), order.end(), id) == order.end()) {
        order.push_back(id);
      }
    }
  }

  EXPECT_EQ(order, ids);
}

TEST(Fairness, LetsASequenceWhoseListsDoNotFitWaitForAStepThatHasRoom) {
  Driver driver({.step_rows_max = 16, .values_max = 40});
  std::vector<RequestId> ids;
  for (std::uint32_t i = 0; i < 3; ++i) {
    Request request = prompt_request(10, 20, i);
    request.sampling.repetition_penalty = 1.5F;
    ids.push_back(driver.add(request));
  }

  while (driver.launch()) {
    EXPECT_LE(driver.away.front().first.values.size(), 40U);
    driver.land();
  }

  for (const RequestId id : ids) {
    driver.expect_answer(id);
  }
  driver.expect_idle();
}

TEST(Fairness, RefusesListsThatNoStepCouldHold) {
  Driver driver({.values_max = 40});
  Request request = prompt_request(10, 100);
  request.sampling.repetition_penalty = 1.5F;

  const Status status =
      driver.planner.add(RequestId{9}, std::make_shared<const Request>(request), 1, Time{0});

  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().kind, Kind::kInvalid);
  EXPECT_EQ(status.error().message,
            "penalties and logit_bias may need 64 entries; a step holds 40: lower max_tokens, or "
            "leave the penalties out");
}

// A chat without max_tokens may take the rest of the context; that promise reserves nothing.
TEST(Fairness, RunsEightRequestsTogetherThoughEachMayFillAllBlocks) {
  Driver driver({.pages = 18, .blocks = 16, .step_rows_max = 24, .sequences_max = 8});
  std::vector<RequestId> all;
  for (std::uint32_t i = 0; i < 8; ++i) {
    all.push_back(driver.add(prompt_request(3, 16 * kBlockTokens - 2, i)));
  }

  ASSERT_TRUE(driver.launch());

  EXPECT_EQ(driver.planner.status().running, 8U);
  EXPECT_EQ(driver.planner.status().blocks.used, 8U);
  for (const RequestId id : all) {
    driver.planner.cancel(id);
  }
  driver.run();
  driver.expect_idle();
}

TEST(Fairness, EndsACancelledRequestInEveryPhaseWithinAStep) {
  for (int steps = 0; steps < 12; ++steps) {
    Driver driver({.step_rows_max = 8, .sequences_max = 2});
    Request wanted = prompt_request(30, 8);
    wanted.prompt_logprobs = 1;
    const RequestId id = driver.add(wanted);
    for (int i = 0; i < steps; ++i) {
      ASSERT_TRUE(driver.launch());
      driver.land();
    }
    const bool away = driver.launch();

    driver.planner.cancel(id);
    driver.collect();
    if (away && !driver.ends.contains(id)) {
      driver.land();
    }

    ASSERT_TRUE(driver.ends.contains(id)) << "after " << steps << " steps";
    while (!driver.away.empty()) {
      driver.land();
    }
    driver.expect_idle();
  }
}

// Random loads on pools that hold little more than the largest request. Every step that comes back
// brings the oldest request further, so a load is done after a number of steps that its sizes
// bound, and nobody waits for ever for its turn (SL-2).
class Progress : public ::testing::TestWithParam<std::uint64_t> {};

TEST_P(Progress, OfTheOldestRequestIsMadeInEveryRoundWithHardlyAnyMemory) {
  Rng rng(GetParam() + 1000);
  const auto blocks = static_cast<std::uint32_t>(2 + rng.below(4));
  const auto sequences = static_cast<std::uint32_t>(2 + rng.below(4));
  const auto rows = static_cast<std::uint32_t>(sequences + rng.below(24));
  Driver driver({.pages = static_cast<std::uint32_t>(2 + rng.below(4)),
                 .blocks = blocks,
                 .step_rows_max = rows,
                 .sequences_max = sequences,
                 .sampled_rows_max = static_cast<std::uint32_t>(sequences + rng.below(4))});
  std::uint64_t bound = 0;
  for (std::uint32_t i = 0; i < 10; ++i) {
    const auto room = blocks * kBlockTokens;
    const auto length = static_cast<std::uint32_t>(1 + rng.below(room - 1));
    const auto answer = static_cast<std::uint32_t>(1 + rng.below(room - length));
    Request request = prompt_request(length, answer, i);
    if (rng.below(2) == 0) {
      request.prompt_logprobs = 1;
    }
    driver.add(request);
    // Alone, one row a step at worst; read again at most once for each of its own preemptions, of
    // which there is none while it is the oldest.
    bound += 2 * (std::uint64_t{length} + answer) + 2;
  }

  std::uint64_t steps = 0;
  while (driver.launch() || !driver.away.empty()) {
    driver.land();
    ASSERT_LE(++steps, bound) << "too many steps: the oldest request did not get further";
  }

  for (const auto& [id, request] : driver.requests) {
    driver.expect_answer(id);
  }
  driver.expect_idle();
}

INSTANTIATE_TEST_SUITE_P(Seeds, Progress, ::testing::Range<std::uint64_t>(0, 150));

}  // namespace
}  // namespace troupe
