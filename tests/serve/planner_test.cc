#include "runtime/serve/planner.h"

#include "tests/serve/driver.h"

#include <gtest/gtest.h>

namespace troupe {
namespace {

const Error kBroken{Kind::kInternal, "broken", std::source_location::current()};

TEST(Planner, AnswersOneRequestTokenByToken) {
  Driver driver({});
  const RequestId id = driver.add(prompt_request(5, 10));

  driver.run();

  driver.expect_answer(id);
  EXPECT_EQ(driver.planner.status().steps, 10U)
      << "one step for the prompt and its token, nine for the others";
  driver.expect_idle();
}

TEST(Planner, SplitsALongPromptIntoChunks) {
  Driver driver({.step_rows_max = 8});
  const RequestId id = driver.add(prompt_request(30, 1));

  ASSERT_TRUE(driver.launch());
  EXPECT_EQ(driver.away.front().first.tokens.size(), 8U);
  EXPECT_TRUE(driver.away.front().first.sampled.empty());
  driver.run();

  driver.expect_answer(id);
  EXPECT_EQ(driver.planner.status().steps, 4U);
  driver.expect_idle();
}

TEST(Planner, PutsDecodeRowsBeforePromptChunks) {
  Driver driver({.step_rows_max = 8});
  const RequestId chatting = driver.add(prompt_request(2, 20));
  driver.launch();
  driver.land();
  const RequestId reading = driver.add(prompt_request(20, 2, 1));

  ASSERT_TRUE(driver.launch());
  const StepPlan step = driver.away.front().first;
  ASSERT_EQ(step.segments.size(), 2U);
  EXPECT_EQ(step.segments[0].rows, 1U);
  EXPECT_EQ(step.segments[0].first_position, 2);
  EXPECT_EQ(step.segments[1].rows, 7U);
  driver.run();

  driver.expect_answer(chatting);
  driver.expect_answer(reading);
  driver.expect_idle();
}

TEST(Planner, WritesADecodeRowInPlaceAndAChunkToANewPage) {
  Driver driver({.step_rows_max = 4});
  driver.add(prompt_request(6, 3));

  driver.launch();
  const PageRef first = driver.away.front().first.write_pages.back();
  driver.land();
  driver.launch();
  const StepPlan second = driver.away.front().first;
  driver.land();
  driver.launch();
  const StepPlan third = driver.away.front().first;

  EXPECT_EQ(second.segments[0].read_page, first);
  EXPECT_NE(second.write_pages.back(), first);
  EXPECT_EQ(third.segments[0].read_page, second.write_pages.back());
  EXPECT_EQ(third.write_pages.back(), second.write_pages.back());
  EXPECT_EQ(third.freed_pages, std::vector<PageRef>{first});
  driver.run();
  driver.expect_idle();
}

TEST(Planner, ReadsAPromptInPlaceWhenOnlyOnePageExists) {
  Driver driver({.pages = 2, .step_rows_max = 4});
  const RequestId first = driver.add(prompt_request(11, 3));
  const RequestId second = driver.add(prompt_request(9, 3, 1));

  driver.run();

  driver.expect_answer(first);
  driver.expect_answer(second);
  driver.expect_idle();
}

TEST(Planner, TakesABlockEvery64Tokens) {
  Driver driver({});
  const RequestId id = driver.add(prompt_request(60, 10));

  for (int i = 0; i < 8; ++i) {
    driver.launch();
    driver.land();
  }
  EXPECT_EQ(driver.planner.status().blocks.used, 1U);
  driver.run();

  driver.expect_answer(id);
  driver.expect_idle();
}

TEST(Planner, KeepsTheSecondStepBackUnlessTheFirstIsFull) {
  Driver driver({.step_rows_max = 8});
  driver.add(prompt_request(4, 3));
  ASSERT_TRUE(driver.launch());
  const RequestId late = driver.add(prompt_request(8, 3, 1));
  EXPECT_FALSE(driver.launch());
  driver.land();

  ASSERT_TRUE(driver.launch());
  EXPECT_TRUE(driver.launch() == false) << "the rest of the prompt is in the step that is away";
  driver.add(prompt_request(3, 3, 2));
  EXPECT_TRUE(driver.launch()) << "a full step is away and another sequence is ready";
  EXPECT_EQ(driver.planner.status().steps_away, 2U);
  driver.add(prompt_request(3, 3, 3));
  EXPECT_FALSE(driver.launch());
  driver.run();

  driver.expect_answer(late);
  driver.expect_idle();
}

TEST(Planner, PreemptsTheYoungestWhenBlocksRunOut) {
  Driver driver({.blocks = 4, .step_rows_max = 64});
  const RequestId old = driver.add(prompt_request(60, 80));
  const RequestId young = driver.add(prompt_request(60, 80, 1));

  driver.run();

  driver.expect_answer(old);
  driver.expect_answer(young);
  EXPECT_EQ(driver.ends.at(old).preemptions, 0U);
  EXPECT_GT(driver.ends.at(young).preemptions, 0U);
  driver.expect_idle();
}

TEST(Planner, TakesNoBlocksFromASequenceThatIsAway) {
  Driver driver({.blocks = 23, .step_rows_max = 3, .sequences_max = 3});
  const RequestId old = driver.add(prompt_request(1, 250));
  const RequestId reading = driver.add(prompt_request(640, 2, 1));
  const RequestId away = driver.add(prompt_request(640, 2, 2));

  // Two steps are always away: the oldest's, and one of the youngest alone.
  while (driver.planner.status().preemptions == 0) {
    while (driver.launch()) {
    }
    ASSERT_FALSE(driver.away.empty());
    driver.land();
  }
  driver.planner.cancel(reading);
  driver.run();

  EXPECT_EQ(driver.ends.at(reading).preemptions, 1U);
  EXPECT_EQ(driver.ends.at(away).preemptions, 0U);
  driver.expect_answer(old);
  driver.expect_answer(away);
  driver.expect_idle();
}

TEST(Planner, SparesAResumedSequenceUntilItHasEmittedAToken) {
  Driver driver({.blocks = 10, .step_rows_max = 3, .sequences_max = 3});
  const RequestId old = driver.add(prompt_request(64, 400));
  const RequestId middle = driver.add(prompt_request(1, 400, 1));
  const RequestId young = driver.add(prompt_request(380, 1, 2));
  while (driver.planner.status().preemptions == 0) {
    driver.launch();
    driver.land();
  }

  driver.planner.cancel(
      middle);  // makes room for the young one again, but not for its whole prompt's time
  driver.run();

  EXPECT_EQ(driver.ends.at(young).preemptions, 1U);
  driver.expect_answer(old);
  driver.expect_answer(young);
  driver.expect_idle();
}

TEST(Planner, RefusesWhatTheBlocksCanNeverHold) {
  Driver driver({.blocks = 2});

  const Status status = driver.planner.add(
      RequestId{9}, std::make_shared<const Request>(prompt_request(100, 30)), 1, Time{0});

  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().kind, Kind::kInvalid);
  EXPECT_EQ(status.error().message,
            "request 9 needs 3 KV blocks for 129 tokens; there are 2 (128 tokens): shorten the "
            "prompt or max_tokens, or "
            "give more memory");
  EXPECT_TRUE(driver.planner.idle());
}

TEST(Planner, RunsAtMostSoManySequencesAtOnce) {
  Driver driver({.step_rows_max = 8, .sequences_max = 2});
  for (std::uint32_t i = 0; i < 5; ++i) {
    driver.add(prompt_request(2, 4, i));
  }

  driver.launch();
  EXPECT_EQ(driver.planner.status().running, 2U);
  EXPECT_EQ(driver.planner.status().waiting, 3U);
  driver.run();

  for (const auto& [id, request] : driver.requests) {
    driver.expect_answer(id);
  }
  driver.expect_idle();
}

TEST(Planner, ReplaysAFailedChunkFromItsReadPage) {
  Driver driver({.step_rows_max = 8});
  const RequestId id = driver.add(prompt_request(20, 2));
  driver.launch();
  driver.land();
  driver.next_fault = FakeFault::kFail;
  driver.launch();
  driver.land();

  driver.launch();
  EXPECT_EQ(driver.away.front().first.segments[0].first_position, 8);
  driver.run();

  driver.expect_answer(id);
  driver.expect_idle();
}

TEST(Planner, RecomputesASequenceWhoseStepInPlaceFailed) {
  Driver driver({});
  const RequestId id = driver.add(prompt_request(4, 6));
  driver.launch();
  driver.land();
  driver.next_fault = FakeFault::kFail;
  driver.launch();
  driver.land();

  driver.launch();
  EXPECT_EQ(driver.away.front().first.segments[0].first_position, 0);
  EXPECT_EQ(driver.away.front().first.segments[0].rows, 5U);
  driver.run();

  driver.expect_answer(id);
  driver.expect_idle();
}

TEST(Planner, EndsASequenceAfterThreeFailedSteps) {
  Driver driver({});
  const RequestId id = driver.add(prompt_request(4, 6));
  for (int i = 0; i < 3; ++i) {
    driver.next_fault = FakeFault::kFail;
    ASSERT_TRUE(driver.launch());
    driver.land();
  }

  ASSERT_TRUE(driver.ends.contains(id));
  EXPECT_EQ(driver.ends.at(id).reason, FinishReason::kError);
  EXPECT_EQ(driver.ends.at(id).failure->message,
            "request 1 failed 3 times, the last time with: the fake device failed as asked");
  driver.expect_idle();
}

TEST(Planner, RefusesCompletionsOfStepsThatAreNotAway) {
  Driver driver({});
  driver.add(prompt_request(4, 6));
  driver.launch();
  const StepId step = driver.away.front().first.id;
  driver.land();

  const std::vector<SampleResult> results(1);
  EXPECT_EQ(driver.planner.complete(step, results).error().message,
            "step 1 is not away: its completion is stale");
  EXPECT_EQ(driver.planner.complete(StepId{99}, results).error().kind, Kind::kInvalid);
  EXPECT_EQ(driver.planner.fail(step, kBroken).error().message,
            "step 1 is not away: its failure is stale");
  driver.run();
  driver.expect_idle();
}

TEST(Planner, TakesTooFewResultsForAFailure) {
  Driver driver({});
  driver.add(prompt_request(4, 6));
  driver.launch();
  const StepId step = driver.away.front().first.id;
  driver.away.pop_front();

  EXPECT_TRUE(driver.planner.complete(step, {}));

  EXPECT_EQ(driver.planner.status().failed_steps, 1U);
}

TEST(Planner, EndsARequestThatSampledNoToken) {
  Driver driver({});
  const RequestId id = driver.add(prompt_request(4, 6));
  driver.launch();
  const StepId step = driver.away.front().first.id;
  driver.away.pop_front();

  ASSERT_TRUE(driver.planner.complete(step, std::vector<SampleResult>(1)));
  driver.collect();

  EXPECT_EQ(driver.ends.at(id).failure->message,
            "request 1 sampled token -1; the vocabulary has 64: the logits may hold no number");
  driver.expect_idle();
}

TEST(Planner, CancelsAWaitingRequestAtOnceAndAnAwayOneWithItsStep) {
  Driver driver({.step_rows_max = 8, .sequences_max = 1});
  const RequestId away = driver.add(prompt_request(4, 6));
  const RequestId waiting = driver.add(prompt_request(4, 6, 1));
  driver.launch();

  driver.planner.cancel(away);
  driver.planner.cancel(waiting);
  driver.planner.cancel(RequestId{77});
  driver.collect();
  EXPECT_TRUE(driver.ends.contains(waiting));
  EXPECT_FALSE(driver.ends.contains(away));
  driver.land();

  EXPECT_EQ(driver.ends.at(away).reason, FinishReason::kCancelled);
  driver.expect_idle();
}

TEST(Planner, StopsAtAStopTokenAndReportsIt) {
  Driver driver({});
  Request request = prompt_request(4, 40);
  const std::uint32_t third = fake_answer(request, 1, 64).tokens[2];
  request.stop_tokens = {third};
  const RequestId id = driver.add(request);
  request.ignore_stop_tokens = true;
  const RequestId deaf = driver.add(request);

  driver.run();

  driver.expect_answer(id);
  EXPECT_EQ(driver.tokens[id].back(), third);
  EXPECT_EQ(driver.ends.at(id).reason, FinishReason::kStop);
  EXPECT_EQ(driver.tokens[deaf].size(), 40U);
  driver.expect_idle();
}

TEST(Planner, TranslatesSamplingParametersIntoSparseLists) {
  Driver driver({});
  Request request = prompt_request(6, 12);
  request.sampling.temperature = 1;
  request.sampling.repetition_penalty = 1.5F;
  request.sampling.frequency_penalty = 0.5F;
  request.sampling.logit_bias = {{9, 1.0F}, {4, -1.0F}};
  request.logprobs = 3;
  const RequestId id = driver.add(request, 42);

  driver.launch();
  driver.land();
  driver.launch();
  const StepPlan step = driver.away.front().first;
  const SampleParams params = step.sampled.front().params;
  const std::uint32_t first = driver.tokens[id].front();

  EXPECT_EQ(params.key, 42U);
  EXPECT_EQ(params.top_logprobs, 3U);
  EXPECT_EQ(params.want_logprob, 1U);
  ASSERT_EQ(params.generated_end - params.generated_begin, 1U);
  EXPECT_EQ(step.values[params.generated_begin].token, first);
  ASSERT_EQ(params.bias_end - params.bias_begin, 2U);
  EXPECT_EQ(step.values[params.bias_begin].token, 4U);
  for (std::uint32_t i = params.prompt_begin; i < params.prompt_end; ++i) {
    EXPECT_NE(step.values[i].token, first);
  }
  driver.run();
  driver.expect_answer(id);
}

TEST(Planner, AbortsEverythingWhenTheDeviceIsLost) {
  Driver driver({.step_rows_max = 4, .sequences_max = 2});
  for (std::uint32_t i = 0; i < 4; ++i) {
    driver.add(prompt_request(6, 4, i));
  }
  driver.launch();
  driver.launch();

  driver.planner.abort(Error{Kind::kDisconnected, "gone", std::source_location::current()});
  driver.collect();

  EXPECT_EQ(driver.ends.size(), 4U);
  EXPECT_EQ(driver.ends.begin()->second.failure->kind, Kind::kDisconnected);
  EXPECT_FALSE(driver.planner.complete(StepId{1}, {}));
  driver.expect_idle();
}

// Random operations by seed; Driver::collect checks conservation and the end of every event stream
// after each.
class PlannerProperty : public ::testing::TestWithParam<std::uint64_t> {};

TEST_P(PlannerProperty, AnswersEveryRequestAsTheOracleWhateverHappens) {
  Rng rng(GetParam());
  const auto sequences = static_cast<std::uint32_t>(1 + rng.below(5));
  Driver driver({.pages = static_cast<std::uint32_t>(2 + rng.below(8)),
                 .blocks = static_cast<std::uint32_t>(3 + rng.below(8)),
                 .step_rows_max = static_cast<std::uint32_t>(sequences + rng.below(40)),
                 .sequences_max = sequences,
                 .sampled_rows_max = static_cast<std::uint32_t>(sequences + rng.below(12))});
  std::set<RequestId> cancelled;
  std::uint32_t fails = 0;
  for (int operation = 0; operation < 400; ++operation) {
    switch (rng.below(8)) {
      case 0: {
        Request request = prompt_request(static_cast<std::uint32_t>(1 + rng.below(120)),
                                         static_cast<std::uint32_t>(1 + rng.below(60)),
                                         static_cast<std::uint32_t>(rng.below(1000)));
        request.sampling.temperature = rng.below(2) != 0 ? 1.0F : 0.0F;
        request.sampling.repetition_penalty = rng.below(3) == 0 ? 1.25F : 1.0F;
        request.stop_tokens = {static_cast<std::uint32_t>(rng.below(64))};
        if (rng.below(3) == 0) {
          request.prompt_logprobs = static_cast<std::uint32_t>(rng.below(4));
        }
        if (rng.below(3) == 0) {
          request.logprobs = static_cast<std::uint32_t>(rng.below(4));
        }
        driver.add(std::move(request), rng.next());
        break;
      }
      case 1:
        if (!driver.requests.empty() && rng.below(4) == 0) {
          const RequestId id{1 + rng.below(driver.requests.size())};
          driver.planner.cancel(id);
          driver.collect();
          cancelled.insert(id);
        }
        break;
      case 2:
        if (rng.below(6) == 0) {
          driver.next_fault = FakeFault::kFail;
          ++fails;
        }
        break;
      default:
        if (rng.below(2) != 0 || !driver.launch()) {
          if (!driver.away.empty()) {
            driver.land();
          }
        }
    }
  }
  driver.next_fault = FakeFault::kNone;
  driver.run();

  for (const auto& [id, request] : driver.requests) {
    ASSERT_TRUE(driver.ends.contains(id));
    const FinishReason reason = driver.ends.at(id).reason;
    if (reason == FinishReason::kError) {
      EXPECT_GE(fails, 3U) << driver.ends.at(id).failure->message;
    } else if (!cancelled.contains(id) || reason != FinishReason::kCancelled) {
      driver.expect_answer(id);
    }
  }
  driver.expect_idle();
}

INSTANTIATE_TEST_SUITE_P(Seeds, PlannerProperty, ::testing::Range<std::uint64_t>(0, 200));

}  // namespace
}  // namespace troupe
