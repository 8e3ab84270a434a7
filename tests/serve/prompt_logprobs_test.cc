// What the rows of a prompt report of its own tokens: once each, whatever becomes of the steps
// (SL-6).
#include "tests/serve/driver.h"

#include <gtest/gtest.h>

#include <set>

namespace troupe {
namespace {

Request asking(std::uint32_t length, std::uint32_t max_tokens, std::uint32_t salt = 0) {
  Request request = prompt_request(length, max_tokens, salt);
  request.prompt_logprobs = 2;
  return request;
}

TEST(PromptLogprobs, ComeWithTheFirstTokenAndBelongToEveryTokenButTheFirst) {
  Driver driver({.step_rows_max = 8, .sampled_rows_max = 8});
  const RequestId id = driver.add(asking(6, 2));

  driver.launch();
  EXPECT_EQ(driver.away.front().first.sampled.size(), 6U);
  driver.land();
  ASSERT_EQ(driver.prompts[id].size(), 6U);
  EXPECT_TRUE(driver.prompts[id].front().top.empty());
  EXPECT_EQ(driver.prompts[id].back().top.size(), 2U);
  driver.run();

  driver.expect_answer(id);
  driver.expect_idle();
}

TEST(PromptLogprobs, OfOneTokenAreThatTokenAlone) {
  Driver driver({});
  const RequestId id = driver.add(asking(1, 2));

  driver.run();

  EXPECT_EQ(driver.prompts[id].size(), 1U);
  driver.expect_answer(id);
}

TEST(PromptLogprobs, AreTheSameForEveryCutIntoChunks) {
  for (std::uint32_t rows = 1; rows <= 24; ++rows) {
    for (std::uint32_t sampled = 1; sampled <= rows; ++sampled) {
      Driver driver({.step_rows_max = rows, .sequences_max = 1, .sampled_rows_max = sampled});
      const RequestId id = driver.add(asking(23, 2));

      driver.run();

      driver.expect_answer(id);
      driver.expect_idle();
    }
  }
}

TEST(PromptLogprobs, MakeChunksNoLongerThanWhatMayBeSampled) {
  Driver driver({.step_rows_max = 8, .sequences_max = 2, .sampled_rows_max = 3});
  driver.add(asking(20, 2));

  ASSERT_TRUE(driver.launch());

  EXPECT_EQ(driver.away.front().first.tokens.size(), 3U);
  driver.run();
  driver.expect_idle();
}

TEST(PromptLogprobs, LeaveEveryOtherSequenceItsSampledRow) {
  Driver driver({.step_rows_max = 16, .sequences_max = 3, .sampled_rows_max = 4});
  const RequestId chatting = driver.add(prompt_request(2, 30));
  driver.launch();
  driver.land();
  const RequestId scoring = driver.add(asking(40, 2, 1));
  const RequestId reading = driver.add(prompt_request(5, 2, 2));

  ASSERT_TRUE(driver.launch());
  const StepPlan step = driver.away.front().first;

  ASSERT_EQ(step.segments.size(), 3U);
  EXPECT_EQ(step.segments[1].rows, 2U) << "one of four goes to each of the others";
  EXPECT_EQ(step.segments[2].rows, 5U);
  driver.run();
  driver.expect_answer(chatting);
  driver.expect_answer(scoring);
  driver.expect_answer(reading);
  driver.expect_idle();
}

TEST(PromptLogprobs, AreNotReportedTwiceWhenAStepFails) {
  Driver driver({.pages = 2, .step_rows_max = 4, .sampled_rows_max = 4});
  const RequestId id = driver.add(asking(11, 3));
  driver.launch();
  driver.land();
  driver.launch();  // in place, as there is one page: its failure loses the state
  EXPECT_EQ(driver.away.front().first.segments[0].rows, 1U);
  driver.land();
  driver.next_fault = FakeFault::kFail;
  driver.launch();
  driver.land();

  driver.launch();
  EXPECT_EQ(driver.away.front().first.segments[0].first_position, 0);
  EXPECT_TRUE(driver.away.front().first.sampled.empty()) << "those rows have reported";
  driver.run();

  driver.expect_answer(id);
  driver.expect_idle();
}

TEST(PromptLogprobs, SurviveAPreemptionInTheMiddleOfThePrompt) {
  Driver driver({.blocks = 10, .step_rows_max = 3, .sequences_max = 3});
  const RequestId old = driver.add(prompt_request(64, 400));
  const RequestId middle = driver.add(prompt_request(1, 400, 1));
  const RequestId young = driver.add(asking(380, 1, 2));
  while (driver.planner.status().preemptions == 0) {
    driver.launch();
    driver.land();
  }

  driver.planner.cancel(middle);
  driver.run();

  EXPECT_EQ(driver.ends.at(young).preemptions, 1U);
  driver.expect_answer(old);
  driver.expect_answer(young);
  driver.expect_idle();
}

TEST(PromptLogprobs, EndTheRequestWhenARowHasNoNumber) {
  Driver driver({.step_rows_max = 8, .sampled_rows_max = 8});
  const RequestId id = driver.add(asking(4, 3));
  driver.launch();
  const StepPlan step = driver.away.front().first;
  driver.away.pop_front();
  std::vector<SampleResult> results(step.sampled.size());
  results[0].token = 1;

  ASSERT_TRUE(driver.planner.complete(step.id, results));
  driver.collect();

  EXPECT_EQ(driver.ends.at(id).reason, FinishReason::kError);
  EXPECT_FALSE(driver.prompts.contains(id));
  driver.expect_idle();
}

}  // namespace
}  // namespace troupe
