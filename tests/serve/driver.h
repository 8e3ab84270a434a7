// Driver: plays coordinator and device around a StepPlanner for its tests, with a FakeStage that
// runs at once.
#pragma once

#include "runtime/serve/planner.h"
#include "tests/support/fake_stage.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <utility>
#include <vector>

namespace troupe {

struct DriverOptions {
  std::uint32_t pages = 9, blocks = 16, step_rows_max = 8, sequences_max = 4, steps_max = 2,
                vocab = 64, sampled_rows_max = 0;  // 0: as many as sequences
  std::uint32_t values_max = 1000;
};

class Driver {
 public:
  explicit Driver(const DriverOptions& options)
      : planner({.pages = options.pages,
                 .blocks = options.blocks,
                 .step_rows_max = options.step_rows_max,
                 .sampled_rows_max = std::max(options.sampled_rows_max, options.sequences_max),
                 .sequences_max = options.sequences_max,
                 .steps_max = options.steps_max,
                 .attempts_max = 3,
                 .vocab = options.vocab,
                 .values_max = options.values_max}),
        options_(options),
        stage(make_fake_stage(
            {.pages = options.pages,
             .blocks = options.blocks,
             .contexts = 4,
             .max_rows = options.step_rows_max,
             .max_segments = options.sequences_max,
             .max_sampled = options.sampled_rows_max,
             .vocab = options.vocab,
             .max_context = 0,
             .defer = [this](std::function<void()> work) { deferred_.push_back(std::move(work)); },
             .fault = [this](TicketId) { return std::exchange(next_fault, FakeFault::kNone); }})),
        pipeline_(stage->executable().query<AsyncPipeline>()) {}

  RequestId add(Request request, std::uint64_t seed = 1) {
    const RequestId id{++last_};
    requests.emplace(id, std::make_pair(request, seed));
    EXPECT_TRUE(
        planner.add(id, std::make_shared<const Request>(std::move(request)), seed, Time{0}));
    return id;
  }

  // Plans a step and commits it; false when there is none.
  bool launch() {
    StepPlan step = planner.plan(Time{0});
    collect();
    if (step.empty()) {
      return false;
    }
    const auto ticket = pipeline_->commit_no_wait(step.inputs());
    EXPECT_TRUE(ticket) << ticket.error().message;
    away.emplace_back(std::move(step), *ticket);
    return true;
  }

  // Lets the oldest step away run and come back.
  void land() {
    const auto [step, ticket] = std::move(away.front());
    away.pop_front();
    deferred_.front()();
    deferred_.pop_front();
    if (const auto outputs = pipeline_->outputs(ticket)) {
      EXPECT_TRUE(planner.complete(step.id, outputs->results));
    } else {
      EXPECT_TRUE(planner.fail(step.id, outputs.error()));
    }
    EXPECT_TRUE(pipeline_->release(ticket));
    collect();
  }

  void run(int steps_max = 100000) {
    while ((launch() || !away.empty()) && steps_max-- > 0) {
      land();
    }
    EXPECT_GT(steps_max, 0) << "does not come to an end";
  }

  void collect() {
    const Status balance = planner.check();
    EXPECT_TRUE(balance) << balance.error().message;
    for (auto& event : planner.take_events()) {
      EXPECT_FALSE(ends.contains(event.id))
          << "news of request " << event.id.value << " after its end";
      for (const auto& output : event.tokens) {
        tokens[event.id].push_back(output.token);
        reported[event.id].push_back(output);
      }
      if (!event.prompt.empty()) {
        EXPECT_TRUE(prompts.emplace(event.id, event.prompt).second) << "a prompt reported twice";
      }
      if (event.finished) {
        ends.emplace(event.id, std::move(event));
      }
    }
  }

  // The request ended as the oracle says.
  void expect_answer(RequestId id) {
    const auto& [request, seed] = requests.at(id);
    const FakeAnswer answer = fake_answer(request, seed, options_.vocab);
    ASSERT_TRUE(ends.contains(id)) << "request " << id.value << " has not ended";
    EXPECT_EQ(ends.at(id).reason, answer.reason) << "request " << id.value;
    EXPECT_EQ(tokens[id], answer.tokens) << "request " << id.value;
    EXPECT_TRUE(reported[id] == answer.outputs) << "request " << id.value << ": logprobs";
    EXPECT_TRUE(prompts[id] == answer.prompt) << "request " << id.value << ": prompt logprobs";
  }

  void expect_idle() {
    EXPECT_TRUE(planner.idle());
    EXPECT_EQ(planner.status().pages.used, 0U);
    EXPECT_EQ(planner.status().blocks.used, 0U);
    EXPECT_EQ(planner.status().imbalances, 0U);
    EXPECT_EQ(stage->violations(), std::vector<std::string>{});
  }

  StepPlanner planner;
  FakeFault next_fault = FakeFault::kNone;
  std::deque<std::pair<StepPlan, TicketId>> away;
  std::map<RequestId, std::pair<Request, std::uint64_t>> requests;
  std::map<RequestId, std::vector<std::uint32_t>> tokens;
  std::map<RequestId, std::vector<TokenOutput>> reported;
  std::map<RequestId, std::vector<TokenOutput>> prompts;
  std::map<RequestId, SequenceEvent> ends;

 private:
  DriverOptions options_;
  std::deque<std::function<void()>> deferred_;
  std::uint64_t last_ = 0;

 public:
  std::unique_ptr<FakeStage> stage;

 private:
  AsyncPipeline* pipeline_;
};

// `length` tokens that depend on `salt`.
inline Request prompt_request(std::uint32_t length,
                              std::uint32_t max_tokens,
                              std::uint32_t salt = 0) {
  Request request;
  for (std::uint32_t i = 0; i < length; ++i) {
    request.prompt.push_back((i * 7 + salt * 13 + 3) % 64);
  }
  request.max_tokens = max_tokens;
  return request;
}

}  // namespace troupe
