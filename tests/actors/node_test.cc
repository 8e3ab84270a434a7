#include "actors/node.h"

#include "tests/support/fake_stage.h"

#include <gtest/gtest.h>

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <vector>

namespace troupe {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// Runs a fake stage's steps on a thread of its own, as a device does.
class Worker {
 public:
  Worker() : thread_([this] { loop(); }) {}
  ~Worker() {
    post({});
    thread_.join();
  }
  void post(std::function<void()> work) {
    const std::lock_guard lock(mutex_);
    queue_.push_back(std::move(work));
    ready_.notify_one();
  }

 private:
  void loop() {
    for (;;) {
      std::unique_lock lock(mutex_);
      ready_.wait(lock, [this] { return !queue_.empty(); });
      const auto work = std::move(queue_.front());
      queue_.pop_front();
      lock.unlock();
      if (!work) {
        return;
      }
      work();
    }
  }
  std::mutex mutex_;
  std::condition_variable ready_;
  std::deque<std::function<void()>> queue_;
  std::thread thread_;
};

// Collects the events of many requests from the actors' threads.
class Inbox {
 public:
  RequestSink sink() {
    return [this](const RequestEvent& event) {
      const std::lock_guard lock(mutex_);
      for (const auto& output : event.tokens) {
        tokens_[event.id].push_back(output.token);
      }
      if (event.finished) {
        ends_.emplace(event.id, event);
        ++end_count_;
      }
      changed_.notify_all();
    };
  }
  bool wait_ends(std::size_t count) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, seconds(60), [&] { return end_count_ >= count; });
  }
  bool wait_tokens(RequestId id, std::size_t count) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, seconds(60), [&] { return tokens_[id].size() >= count; });
  }
  std::vector<std::uint32_t> tokens(RequestId id) {
    const std::lock_guard lock(mutex_);
    return tokens_[id];
  }
  RequestEvent end(RequestId id) {
    const std::lock_guard lock(mutex_);
    return ends_.at(id);
  }
  std::size_t end_count() {
    const std::lock_guard lock(mutex_);
    return end_count_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<RequestId, std::vector<std::uint32_t>> tokens_;
  std::map<RequestId, RequestEvent> ends_;
  std::size_t end_count_ = 0;
};

Request request(std::uint32_t salt, std::uint32_t max_tokens) {
  Request made;
  made.prompt = {salt % 64, 2, 3};
  made.max_tokens = max_tokens;
  return made;
}

struct Bench {
  std::unique_ptr<Node> start(FakeStageOptions stage = {}, NodeOptions options = {}) {
    stage.defer = [this](std::function<void()> work) { worker.post(std::move(work)); };
    auto node = Node::start(make_fake_device(), make_fake_stage(stage), nullptr, clock, options);
    EXPECT_TRUE(node) << node.error().message;
    return std::move(*node);
  }
  SteadyClock clock;
  Worker worker;
  Inbox inbox;
};

TEST(Node, AnswersRequestsFromManyThreads) {
  Bench bench;
  const auto node = bench.start();
  std::vector<std::thread> clients;
  std::mutex mutex;
  std::map<RequestId, std::uint32_t> salts;
  for (std::uint32_t client = 0; client < 4; ++client) {
    clients.emplace_back([&, client] {
      for (std::uint32_t i = 0; i < 10; ++i) {
        const std::uint32_t salt = client * 10 + i;
        const auto id = node->submit(request(salt, 12), bench.inbox.sink());
        ASSERT_TRUE(id);
        const std::lock_guard lock(mutex);
        salts[*id] = salt;
      }
    });
  }
  for (auto& client : clients) {
    client.join();
  }

  ASSERT_TRUE(bench.inbox.wait_ends(40));
  for (const auto& [id, salt] : salts) {
    EXPECT_EQ(bench.inbox.tokens(id), fake_answer(request(salt, 12), 0, 64).tokens);
  }
  const NodeStatus status = node->status();
  EXPECT_EQ(status.admitted, 40U);
  EXPECT_EQ(status.finished[static_cast<std::size_t>(FinishReason::kLength)], 40U);
  EXPECT_EQ(status.generated_tokens, 480U);
}

TEST(Node, StartsAndStopsFiftyTimesWithWorkInFlight) {
  Bench bench;
  for (std::uint32_t i = 0; i < 50; ++i) {
    auto node = bench.start();
    ASSERT_TRUE(node->submit(request(i, 500), bench.inbox.sink()));
    ASSERT_TRUE(node->submit(request(i, 2), bench.inbox.sink()));
    if (i % 2 == 0) {
      const Status stopped = node->stop(seconds(30));
      EXPECT_TRUE(stopped) << stopped.error().message;
    }
    node.reset();
    ASSERT_EQ(bench.inbox.end_count(), 2 * (i + 1))
        << "every request has ended when the node is gone";
  }
}

TEST(Node, CancelsARequest) {
  Bench bench;
  const auto node = bench.start();
  const RequestId id = node->submit(request(1, 900), bench.inbox.sink()).value();
  ASSERT_TRUE(bench.inbox.wait_tokens(id, 3));

  node->cancel(id);
  node->cancel(RequestId{12345});

  ASSERT_TRUE(bench.inbox.wait_ends(1));
  const FinishReason reason = bench.inbox.end(id).reason;
  EXPECT_TRUE(reason == FinishReason::kCancelled || reason == FinishReason::kLength);
}

TEST(Node, DrainsAndThenRefuses) {
  Bench bench;
  const auto node = bench.start();
  const RequestId id = node->submit(request(1, 20), bench.inbox.sink()).value();

  const Status drained = node->drain(seconds(60));

  EXPECT_TRUE(drained) << drained.error().message;
  EXPECT_EQ(bench.inbox.end(id).reason, FinishReason::kLength);
  EXPECT_EQ(node->submit(request(1, 2), bench.inbox.sink()).error().kind, Kind::kDisconnected);
  const NodeStatus status = node->status();
  EXPECT_EQ(status.refused_closed, 1U);
  EXPECT_EQ(status.running + status.waiting + status.pages.used + status.blocks.used, 0U);
  EXPECT_TRUE(node->stop(seconds(1)));
}

TEST(Node, CancelsWhatHasNotEndedWhenTheDrainTakesTooLong) {
  Bench bench;
  FakeStageOptions stage;
  stage.fault = [](TicketId) { return FakeFault::kSilent; };
  const auto node = bench.start(stage);
  const RequestId id = node->submit(request(1, 20), bench.inbox.sink()).value();

  const Status drained = node->drain(milliseconds(50));

  ASSERT_FALSE(drained);
  EXPECT_EQ(drained.error().message, "1 requests had not ended within 50 ms and were cancelled");
  EXPECT_EQ(bench.inbox.end(id).reason, FinishReason::kCancelled);
}

TEST(Node, RefusesBadRequestsAndStopStringsWithoutATokenizer) {
  Bench bench;
  const auto node = bench.start();
  Request stops = request(1, 2);
  stops.stop_strings = {"x"};

  EXPECT_EQ(node->submit(Request{}, bench.inbox.sink()).error().message,
            "the prompt has no tokens; at least one is needed");
  EXPECT_EQ(node->submit(stops, bench.inbox.sink()).error().message,
            "stop strings need a tokenizer; this node was started without one");
  EXPECT_EQ(bench.inbox.end_count(), 0U);
}

TEST(Node, TellsItsStateWhileTheDeviceHangs) {
  Bench bench;
  FakeStageOptions stage;
  stage.fault = [](TicketId ticket) {
    return ticket.value == 3 ? FakeFault::kSilent : FakeFault::kNone;
  };
  const auto node = bench.start(stage);
  const RequestId id = node->submit(request(1, 20), bench.inbox.sink()).value();
  ASSERT_TRUE(bench.inbox.wait_tokens(id, 2));
  while (node->status().steps < 3) {
    std::this_thread::yield();
  }
  while (!node->status().progress[static_cast<std::size_t>(NodeActor::kDevice)].busy) {
    std::this_thread::yield();
  }

  const Time before = bench.clock.now();
  const NodeStatus status = node->status();

  EXPECT_LT(bench.clock.now() - before, seconds(1));
  EXPECT_EQ(status.running, 1U);
  EXPECT_EQ(status.steps_away, 1U);
  EXPECT_TRUE(status.progress[static_cast<std::size_t>(NodeActor::kCoordinator)].busy);
  EXPECT_FALSE(node->flight().events().empty());
}

TEST(Node, SaysWhatIsWrongWithItsOptions) {
  SteadyClock clock;
  const auto node =
      Node::start(make_fake_device(), make_fake_stage({}), nullptr, clock, {.sequences_max = 0});

  ASSERT_FALSE(node);
  EXPECT_EQ(node.error().message,
            "sequences_max, step_rows_max, queue_max and step_deadline must be positive");
}

}  // namespace
}  // namespace troupe
