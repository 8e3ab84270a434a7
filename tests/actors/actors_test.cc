#include "tests/world/sim_node.h"

#include <gtest/gtest.h>

namespace troupe {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::seconds;

// A node under the seeded scheduler whose steps take a millisecond.
class ActorsTest : public ::testing::Test {
 protected:
  SimNode& start(FakeStageOptions stage = {},
                 NodeOptions options = {},
                 TextStreamFactory text = {}) {
    stage.defer = [this](std::function<void()> work) {
      scheduler_.at(milliseconds(1), std::move(work));
    };
    options.step_deadline = seconds(2);
    node_.emplace(scheduler_, stage, options, std::move(text));
    return *node_;
  }
  bool finish() {
    return scheduler_.run_until([this] { return node_->all_told(); }, hours(1));
  }
  static Request request(std::uint32_t length = 5, std::uint32_t max_tokens = 8) {
    Request made;
    for (std::uint32_t i = 0; i < length; ++i) {
      made.prompt.push_back((i * 5 + 1) % 64);
    }
    made.max_tokens = max_tokens;
    return made;
  }
  static caf::strong_actor_ptr pointer(const auto& handle) {
    return caf::actor_cast<caf::strong_actor_ptr>(handle);
  }

  SimScheduler scheduler_{1};
  std::optional<SimNode> node_;
};

TEST_F(ActorsTest, AnswerARequestWithTheOraclesTokens) {
  SimNode& node = start();

  const RequestId id = node.submit(request()).value();

  ASSERT_TRUE(finish());
  EXPECT_EQ(node.told[id].tokens, fake_answer(request(), 0, 64).tokens);
  EXPECT_EQ(node.told[id].last.reason, FinishReason::kLength);
  EXPECT_EQ(node.told[id].last.stats.generated_tokens, 8U);
  EXPECT_EQ(node.told[id].last.stats.prompt_tokens, 5U);
  EXPECT_EQ(node.told[id].last.stats.total_ns, 8000000);
  EXPECT_EQ(node.told[id].last.stats.first_token_ns, 1000000);
  EXPECT_EQ(node.status().steps, 8U);
}

TEST_F(ActorsTest, DrawASeedOnlyForRequestsWithoutOne) {
  SimNode& node = start();
  Request sampled = request();
  sampled.sampling.temperature = 1;
  const RequestId drawn = node.submit(sampled).value();
  sampled.sampling.seed = 77;
  const RequestId given = node.submit(sampled).value();

  ASSERT_TRUE(finish());
  EXPECT_NE(node.told[drawn].last.stats.seed, 0U);
  EXPECT_EQ(node.told[given].last.stats.seed, 77U);
  EXPECT_EQ(node.told[drawn].tokens,
            fake_answer(sampled, node.told[drawn].last.stats.seed, 64).tokens);
  EXPECT_EQ(node.told[given].tokens, fake_answer(sampled, 77, 64).tokens);
}

TEST_F(ActorsTest, EndARequestOnceAlthoughTheDeviceFailsAStep) {
  FakeStageOptions stage;
  stage.fault = [](TicketId ticket) {
    return ticket.value == 3 ? FakeFault::kFail : FakeFault::kNone;
  };
  SimNode& node = start(stage);

  const RequestId id = node.submit(request()).value();

  ASSERT_TRUE(finish());
  EXPECT_EQ(node.told[id].ends, 1U);
  EXPECT_EQ(node.told[id].tokens, fake_answer(request(), 0, 64).tokens);
}

TEST_F(ActorsTest, EndARequestWithTheDevicesErrorWhenEveryStepFails) {
  FakeStageOptions stage;
  stage.fault = [](TicketId) { return FakeFault::kFail; };
  SimNode& node = start(stage);

  const RequestId id = node.submit(request()).value();

  ASSERT_TRUE(finish());
  EXPECT_EQ(node.told[id].last.reason, FinishReason::kError);
  EXPECT_EQ(node.told[id].last.failure->kind, Kind::kInternal);
  EXPECT_EQ(node.told[id].ends, 1U);
  const NodeStatus status = node.status();
  EXPECT_EQ(status.finished, (std::array<std::uint64_t, 4>{0, 0, 0, 1}));
  EXPECT_EQ(status.failed, (std::array<std::uint64_t, 6>{0, 0, 0, 0, 0, 1}));
}

TEST_F(ActorsTest, IgnoreACompletionThatIsReportedTwice) {
  FakeStageOptions stage;
  stage.fault = [](TicketId) { return FakeFault::kTwice; };
  SimNode& node = start(stage);

  const RequestId id = node.submit(request()).value();

  ASSERT_TRUE(finish());
  EXPECT_EQ(node.told[id].tokens, fake_answer(request(), 0, 64).tokens);
}

TEST_F(ActorsTest, CancelWithinAStep) {
  SimNode& node = start();
  const RequestId id = node.submit(request(5, 200)).value();
  scheduler_.run_until([&] { return node.told[id].tokens.size() == 10; }, hours(1));

  node.cancel(id);
  node.cancel(RequestId{99});

  ASSERT_TRUE(finish());
  EXPECT_EQ(node.told[id].last.reason, FinishReason::kCancelled);
  EXPECT_LE(node.told[id].tokens.size(), 11U);
  EXPECT_EQ(node.status().pages.used, 0U);
}

TEST_F(ActorsTest, RefuseMoreThanTheQueueHolds) {
  SimNode& node = start({}, {.queue_max = 2, .sequences_max = 1});
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(node.submit(request()));
  }

  const auto refused = node.submit(request());

  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind, Kind::kOverloaded);
  EXPECT_EQ(refused.error().message,
            "the queue is full: 3 requests are running or waiting, at most 3 may; try again later");
  ASSERT_TRUE(finish());
  EXPECT_TRUE(node.submit(request()));
  EXPECT_TRUE(finish());
}

TEST_F(ActorsTest, EndTheTextBeforeAStopString) {
  SimNode& node = start({}, {}, letters());
  Request stopping = request(5, 40);
  const auto tokens = fake_answer(stopping, 0, 64).tokens;
  stopping.stop_strings = {std::string{letter(tokens[5]), letter(tokens[6])}};
  std::string whole;
  for (const std::uint32_t token : tokens) {
    whole += letter(token);
  }

  const RequestId id = node.submit(stopping).value();

  ASSERT_TRUE(finish());
  scheduler_.run_for(seconds(1));
  const Told& told = node.told[id];
  EXPECT_EQ(told.last.reason, FinishReason::kStop);
  EXPECT_EQ(told.text, whole.substr(0, whole.find(stopping.stop_strings.front())));
  EXPECT_EQ(told.tokens.size(), told.text.size() + 2);
  EXPECT_EQ(told.late_events, 0U);
  EXPECT_EQ(node.status().running, 0U);
}

TEST_F(ActorsTest, LeaveTheStopTokenOutOfTheText) {
  SimNode& node = start({}, {}, letters());
  Request stopping = request(5, 40);
  const auto tokens = fake_answer(stopping, 0, 64).tokens;
  stopping.stop_tokens = {tokens[3]};

  const RequestId id = node.submit(stopping).value();

  ASSERT_TRUE(finish());
  EXPECT_EQ(node.told[id].tokens.back(), tokens[3]);
  EXPECT_EQ(node.told[id].text.size(), node.told[id].tokens.size() - 1);
}

TEST_F(ActorsTest, CountASilentDeviceAsLostAfterTheDeadline) {
  FakeStageOptions stage;
  stage.fault = [](TicketId ticket) {
    return ticket.value == 2 ? FakeFault::kSilent : FakeFault::kNone;
  };
  SimNode& node = start(stage);
  const RequestId id = node.submit(request()).value();
  const RequestId waiting = node.submit(request()).value();

  ASSERT_TRUE(finish());
  EXPECT_EQ(node.told[id].last.failure->kind, Kind::kDisconnected);
  EXPECT_EQ(node.told[waiting].last.failure->kind, Kind::kDisconnected);
  EXPECT_NE(node.told[id].last.failure->message.find("did not answer for step 2 within 2000 ms"),
            std::string::npos)
      << node.told[id].last.failure->message;
  scheduler_.run_for(milliseconds(1));
  EXPECT_EQ(node.submit(request()).error().kind, Kind::kDisconnected);
}

TEST_F(ActorsTest, EndEveryRequestWhenAnActorDies) {
  for (int victim = 0; victim < 3; ++victim) {
    SimNode& node = start();
    const RequestId first = node.submit(request(5, 100)).value();
    const RequestId second = node.submit(request(9, 100)).value();
    scheduler_.run_for(milliseconds(5));

    node.kill(victim == 0   ? pointer(node.actors().device)
              : victim == 1 ? pointer(node.actors().coordinator)
                            : pointer(node.actors().gateway));

    ASSERT_TRUE(finish()) << victim;
    scheduler_.run_for(seconds(5));
    EXPECT_EQ(node.told[first].ends, 1U);
    EXPECT_EQ(node.told[first].last.failure->kind, Kind::kDisconnected) << victim;
    EXPECT_EQ(node.told[second].last.failure->kind, Kind::kDisconnected) << victim;
    EXPECT_EQ(node.submit(request()).error().kind, Kind::kDisconnected) << victim;
    EXPECT_EQ(node.inside(), 0U);
  }
}

TEST_F(ActorsTest, EndWhatRunsAndTakeNothingNewWhileDraining) {
  SimNode& node = start();
  const RequestId id = node.submit(request()).value();
  scheduler_.run_for(milliseconds(2));

  node.close_gate();

  EXPECT_EQ(node.submit(request()).error().message,
            "the node is draining and takes no more requests");
  ASSERT_TRUE(finish());
  EXPECT_EQ(node.told[id].last.reason, FinishReason::kLength);
}

TEST_F(ActorsTest, CancelWhatRunsWhenStopped) {
  SimNode& node = start();
  const RequestId id = node.submit(request(5, 200)).value();
  const RequestId fresh = node.submit(request(5, 200)).value();
  scheduler_.run_for(milliseconds(4));

  node.stop();
  node.stop();

  ASSERT_TRUE(scheduler_.run_until([&] { return node.ended(); }, seconds(10)));
  scheduler_.run_for(seconds(10));
  EXPECT_EQ(node.told[id].last.reason, FinishReason::kCancelled);
  EXPECT_EQ(node.told[fresh].last.reason, FinishReason::kCancelled);
  EXPECT_EQ(node.events_after_stop, 0U);
}

TEST_F(ActorsTest, LeaveHalfOfAStepAndAPageToPrompts) {
  const auto limits = [](const FakeStageOptions& stage, const NodeOptions& options) {
    return planner_limits(*make_fake_stage(stage), options).value().sequences_max;
  };
  const FakeStageOptions stage{
      .pages = 40, .blocks = 16, .max_rows = 16, .max_segments = 16, .max_sampled = 16};

  EXPECT_EQ(limits(stage, {.sequences_max = 6}), 6U);
  EXPECT_EQ(limits(stage, {.sequences_max = 16}), 8U);
  EXPECT_EQ(limits(stage, {.sequences_max = 16, .step_rows_max = 1}), 1U);
  FakeStageOptions few = stage;
  few.pages = 5;
  EXPECT_EQ(limits(few, {.sequences_max = 16}), 3U) << "of four that can be used";
  few.pages = 2;
  EXPECT_EQ(limits(few, {.sequences_max = 16}), 1U);
}

TEST_F(ActorsTest, CountWhatBecomesOfRequests) {
  SimNode& node = start({}, {.queue_max = 1, .sequences_max = 2});
  Request scored = request(6, 10);
  scored.prompt_logprobs = 1;
  const RequestId length = node.submit(scored).value();
  Request stopping = request(4, 30);
  stopping.stop_tokens = {fake_answer(stopping, 0, 64).tokens[2]};
  ASSERT_TRUE(node.submit(stopping));
  const RequestId unwanted = node.submit(request(7, 100)).value();
  EXPECT_FALSE(node.submit(request()));
  scheduler_.run_for(milliseconds(4));

  node.cancel(unwanted);

  ASSERT_TRUE(finish());
  node.close_gate();
  EXPECT_FALSE(node.submit(request()));
  const NodeStatus status = node.status();
  EXPECT_EQ(status.admitted, 3U);
  EXPECT_EQ(status.finished, (std::array<std::uint64_t, 4>{1, 1, 1, 0}));
  EXPECT_EQ(status.refused_full, 1U);
  EXPECT_EQ(status.refused_closed, 1U);
  EXPECT_EQ(status.prompt_tokens, 17U);
  EXPECT_EQ(status.generated_tokens, node.told[unwanted].tokens.size() + 10 + 3);
  EXPECT_EQ(status.first_token_s.count(), node.told[unwanted].tokens.empty() ? 2U : 3U);
  EXPECT_EQ(status.between_tokens_s.count() + status.first_token_s.count(),
            status.generated_tokens);
  EXPECT_EQ(status.total_s.count(), 3U);
  EXPECT_NEAR(status.first_token_s.sum(), 0.001 * 2, 0.004);
  EXPECT_EQ(status.rows.count(), status.steps);
  EXPECT_EQ(node.told[length].prompt, fake_answer(scored, 0, 64).prompt);
}

TEST_F(ActorsTest, CountRowsPagesAndStepsAsTheyAre) {
  SimNode& node = start();
  ASSERT_TRUE(node.submit(request(5, 4)));
  scheduler_.run_for(std::chrono::microseconds(1500));

  const NodeStatus during = node.status();
  ASSERT_TRUE(finish());
  const NodeStatus after = node.status();

  EXPECT_EQ(during.running, 1U);
  EXPECT_EQ(during.steps_away, 1U);
  EXPECT_EQ(during.pages.used, 1U);
  EXPECT_EQ(during.blocks.used, 1U);
  EXPECT_EQ(during.last_prompt_rows, 5U);
  EXPECT_EQ(after.prompt_rows, 5U);
  EXPECT_EQ(after.decode_rows, 3U);
  EXPECT_EQ(after.last_decode_rows, 1U);
  EXPECT_EQ(after.pages.total, 8U);
  EXPECT_EQ(after.pages.used + after.blocks.used + after.running + after.steps_away, 0U);
}

TEST_F(ActorsTest, TellAStalledDeviceFromAnIdleOneAndABusyOneFromADeadOne) {
  FakeStageOptions stage;
  stage.fault = [](TicketId ticket) {
    return ticket.value == 9 ? FakeFault::kSilent : FakeFault::kNone;
  };
  SimNode& node = start(stage);
  const auto progress = [&node](NodeActor actor) {
    return node.status().progress[static_cast<std::size_t>(actor)];
  };
  const auto age = [&](NodeActor actor) { return scheduler_.clock().now() - progress(actor).last; };
  ASSERT_TRUE(node.submit(request(5, 8)));
  ASSERT_TRUE(finish());

  scheduler_.run_for(hours(1));
  EXPECT_FALSE(progress(NodeActor::kDevice).busy) << "idle for an hour is not stalled";
  EXPECT_FALSE(progress(NodeActor::kCoordinator).busy);
  EXPECT_FALSE(progress(NodeActor::kGateway).busy);
  ASSERT_TRUE(node.submit(request(5, 8)));
  scheduler_.run_for(seconds(1));

  EXPECT_TRUE(progress(NodeActor::kDevice).busy);
  EXPECT_EQ(age(NodeActor::kDevice), seconds(1)) << "since it got work, not since its last step";
  EXPECT_TRUE(progress(NodeActor::kCoordinator).busy);
  EXPECT_FALSE(progress(NodeActor::kGateway).busy) << "it has taken its messages";
  EXPECT_FALSE(node.status().lost);
  ASSERT_TRUE(finish());
  EXPECT_EQ(node.status().lost->kind, Kind::kDisconnected);
}

TEST_F(ActorsTest, RememberWhatHappenedInTheFlightRecorder) {
  FakeStageOptions stage;
  stage.blocks = 3;
  SimNode& node = start(stage);
  ASSERT_TRUE(node.submit(request(60, 70)));
  ASSERT_TRUE(node.submit(request(50, 70)));
  const RequestId last = node.submit(request(3, 3)).value();
  node.cancel(last);
  ASSERT_TRUE(finish());

  std::map<FlightKind, std::uint64_t> kinds;
  for (const FlightEvent& event : node.flight().events()) {
    ++kinds[event.kind];
  }
  const NodeStatus status = node.status();
  EXPECT_EQ(kinds[FlightKind::kAdmitted], 3U);
  EXPECT_EQ(kinds[FlightKind::kFinished], 3U);
  EXPECT_EQ(kinds[FlightKind::kCancelled], 1U);
  EXPECT_EQ(kinds[FlightKind::kStepPlanned], status.steps);
  EXPECT_EQ(kinds[FlightKind::kStepDone], status.steps);
  EXPECT_EQ(kinds[FlightKind::kPreempted], status.preemptions);
  EXPECT_GT(status.preemptions, 0U);
  EXPECT_GT(status.recomputed_tokens, 0U);
}

TEST_F(ActorsTest, KeepTwoStepsAwayWhenTheFirstIsFull) {
  FakeStageOptions stage;
  stage.max_rows = 4;
  stage.max_segments = 4;
  SimNode& node = start(stage, {.sequences_max = 4, .step_rows_max = 4});
  std::vector<RequestId> ids;
  for (std::uint32_t i = 0; i < 4; ++i) {
    ids.push_back(node.submit(request(10 + i, 5)).value());
  }

  ASSERT_TRUE(finish());
  for (std::uint32_t i = 0; i < 4; ++i) {
    EXPECT_EQ(node.told[ids[i]].tokens, fake_answer(request(10 + i, 5), 0, 64).tokens);
  }
  EXPECT_EQ(node.stage().violations(), std::vector<std::string>{});
}

}  // namespace
}  // namespace troupe
