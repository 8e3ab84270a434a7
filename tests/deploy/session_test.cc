#include "deploy/session.h"

#include "runtime/base/file.h"

#include <gtest/gtest.h>

#include <string>
#include <sys/eventfd.h>
#include <unistd.h>
#include <vector>

namespace troupe::deploy {
namespace {

RequestEvent text_event(const std::string& text) {
  RequestEvent event;
  event.text = text;
  event.tokens = {TokenOutput{.token = 1, .logprob = 0, .top = {}}};
  return event;
}

RequestEvent last_event(FinishReason reason) {
  RequestEvent event;
  event.finished = true;
  event.reason = reason;
  event.stats.generated_tokens = 3;
  return event;
}

// Answers at once with the events given; those after a cancel come when it is cancelled.
class FakeNode final : public Node {
 public:
  std::vector<RequestEvent> at_submit;
  std::vector<RequestEvent> at_cancel;
  int cancels = 0;

  Result<RequestId> submit(Request, RequestSink sink) override {
    sink_ = std::move(sink);
    for (const auto& event : at_submit) {
      sink_(event);
    }
    return RequestId{7};
  }
  void cancel(RequestId id) override {
    EXPECT_EQ(id, RequestId{7});
    ++cancels;
    for (const auto& event : at_cancel) {
      sink_(event);
    }
  }
  NodeStatus status() const override { return {}; }
  const FlightRecorder& flight() const override { return flight_; }
  Status drain(Time) override { return {}; }
  Status stop(Time) override { return {}; }

 private:
  RequestSink sink_;
  FlightRecorder flight_;
};

class FakeSignals final : public Signals {
 public:
  void set_graceful(bool) override {}
  bool pending() const override { return raised_; }
  int fd() const override { return wake_.fd(); }
  void acknowledge() override {}
  void raise() {
    raised_ = true;
    const std::uint64_t one = 1;
    EXPECT_EQ(::write(wake_.fd(), &one, sizeof one), static_cast<ssize_t>(sizeof one));
  }

 private:
  bool raised_ = false;
  File wake_{::eventfd(0, EFD_CLOEXEC)};
};

class SessionTest : public testing::Test {
 protected:
  Asked ask_now(const Status& shown = {}) {
    Session session(node_, signals_, clock_, std::chrono::seconds(100));
    auto asked = ask(session, Request{}, [this, shown](const std::string& text) {
      text_ += text;
      return shown;
    });
    EXPECT_TRUE(asked);
    return *std::move(asked);
  }

  FakeNode node_;
  FakeSignals signals_;
  ManualClock clock_;
  std::string text_;
};

TEST_F(SessionTest, GathersTheEventsOfAnAnswer) {
  node_.at_submit = {text_event("a"), text_event("b"), last_event(FinishReason::kStop)};

  const Asked asked = ask_now();

  EXPECT_EQ(text_, "ab");
  EXPECT_EQ(asked.answer.text, "ab");
  EXPECT_EQ(asked.answer.tokens.size(), 2U);
  EXPECT_EQ(asked.answer.reason, FinishReason::kStop);
  EXPECT_EQ(asked.answer.stats.generated_tokens, 3U);
  EXPECT_FALSE(asked.interrupted);
  EXPECT_EQ(node_.cancels, 0);
}

TEST_F(SessionTest, CancelsOnceOnASignalAndWaitsForTheEnd) {
  node_.at_submit = {text_event("a")};
  node_.at_cancel = {last_event(FinishReason::kCancelled)};
  signals_.raise();

  const Asked asked = ask_now();

  EXPECT_TRUE(asked.interrupted);
  EXPECT_EQ(node_.cancels, 1);
  EXPECT_EQ(asked.answer.text, "a");
  EXPECT_EQ(asked.answer.reason, FinishReason::kCancelled);
}

TEST_F(SessionTest, CancelsWhenTheAnswerCanNotBeShown) {
  node_.at_submit = {text_event("a"), text_event("b")};
  node_.at_cancel = {last_event(FinishReason::kCancelled)};

  const Asked asked = ask_now(error(Kind::kCancelled, "closed"));

  EXPECT_EQ(text_, "a");
  EXPECT_FALSE(asked.output);
  EXPECT_EQ(node_.cancels, 1);
}

TEST_F(SessionTest, PassesOnTheNodesRefusal) {
  class Refusing final : public Node {
    Result<RequestId> submit(Request, RequestSink) override {
      return error(Kind::kOverloaded, "full");
    }
    void cancel(RequestId) override {}
    NodeStatus status() const override { return {}; }
    const FlightRecorder& flight() const override { return flight_; }
    Status drain(Time) override { return {}; }
    Status stop(Time) override { return {}; }
    FlightRecorder flight_;
  } refusing;
  Session session(refusing, signals_, clock_, std::chrono::seconds(1));

  const auto asked = ask(session, Request{}, [](const std::string&) { return Status(); });

  ASSERT_FALSE(asked);
  EXPECT_EQ(asked.error().message, "full");
  EXPECT_EQ(session.running(), 0U);
}

}  // namespace
}  // namespace troupe::deploy
