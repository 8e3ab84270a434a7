// Answers in server-sent events, and what happens when one side goes away.
#include "tests/net/api_fixture.h"

#include <algorithm>

namespace troupe::net {
namespace {

class Stream : public ApiTest {
 protected:
  // The choices of the events, each as text.
  static std::vector<std::string> choices(const FakeExchange& exchange) {
    std::vector<std::string> texts;
    for (const auto& event : exchange.events()) {
      for (const auto& choice : event["choices"]) {
        texts.push_back(choice.dump());
      }
    }
    return texts;
  }
  std::size_t cancelled() const {
    return static_cast<std::size_t>(std::count_if(backend.submitted.begin(),
                                                  backend.submitted.end(),
                                                  [](const auto& each) { return each.cancelled; }));
  }
};

using Texts = std::vector<std::string>;

TEST_F(Stream, AChatIsRoleThenTextsThenReason) {
  const auto exchange = chat({{"stream", true}});
  EXPECT_FALSE(exchange->head) << "nothing is said before the first token";
  backend.say(0, "a");
  EXPECT_EQ(exchange->events().size(), 2U);
  backend.say(0, "bc");
  backend.finish(0, "d");

  EXPECT_EQ(exchange->head->content_type, "text/event-stream");
  EXPECT_EQ(exchange->field("cache-control"), "no-cache");
  EXPECT_EQ(
      choices(*exchange),
      (Texts{
          R"({"index":0,"delta":{"role":"assistant","content":"","refusal":null},"logprobs":null,"finish_reason":null})",
          R"({"index":0,"delta":{"content":"a"},"logprobs":null,"finish_reason":null})",
          R"({"index":0,"delta":{"content":"bc"},"logprobs":null,"finish_reason":null})",
          R"({"index":0,"delta":{"content":"d"},"logprobs":null,"finish_reason":null})",
          R"({"index":0,"delta":{},"logprobs":null,"finish_reason":"stop"})"}));
  EXPECT_TRUE(exchange->body.ends_with("data: [DONE]\n\n"));
  EXPECT_EQ(exchange->body.find('\r'), std::string::npos);
  EXPECT_TRUE(exchange->ended);
  EXPECT_EQ(exchange->answers, 1);
}

TEST_F(Stream, EveryEventOfAChatHasTheSameHead) {
  const auto exchange = chat({{"stream", true}});
  backend.say(0, "a");
  clock.advance(std::chrono::seconds(5));
  backend.finish(0, "b");

  const auto events = exchange->events();
  const auto head = [](Json event) {
    event.erase("choices");
    return event.dump();
  };
  for (const auto& event : events) {
    EXPECT_EQ(head(event), head(events[0]));
  }
  EXPECT_EQ(events[0]["object"], "chat.completion.chunk");
  EXPECT_EQ(events[0]["created"], 1700000000);
  EXPECT_EQ(events[0]["system_fingerprint"], "abc");
  EXPECT_FALSE(events[0].contains("usage"));
}

TEST_F(Stream, ACompletionIsTextsOfWhichTheLastHasTheReason) {
  const auto exchange = complete({{"stream", true}});
  backend.say(0, "a");
  backend.finish(0, "b", FinishReason::kLength);

  EXPECT_EQ(choices(*exchange),
            (Texts{R"({"index":0,"text":"a","logprobs":null,"finish_reason":null})",
                   R"({"index":0,"text":"b","logprobs":null,"finish_reason":"length"})"}));
  EXPECT_EQ(exchange->events()[0]["object"], "text_completion");
}

TEST_F(Stream, UsageIsInALastEventWithoutChoices) {
  const auto exchange = chat({{"stream", true}, {"stream_options", {{"include_usage", true}}}});
  backend.say(0, "a");
  backend.finish(0, "b");

  const auto events = exchange->events();
  EXPECT_TRUE(events[0]["usage"].is_null());
  EXPECT_EQ(events.back()["choices"].dump(), "[]");
  EXPECT_EQ(events.back()["usage"].dump(),
            R"({"prompt_tokens":9,"completion_tokens":3,"total_tokens":12})");
}

TEST_F(Stream, UsageMayBeInEveryEvent) {
  const auto exchange =
      complete({{"stream", true},
                {"stream_options", {{"include_usage", true}, {"continuous_usage_stats", true}}}});
  backend.say(0, "a");
  backend.finish(0, "b");

  const auto events = exchange->events();
  ASSERT_EQ(events.size(), 3U);
  EXPECT_EQ(events[0]["usage"]["completion_tokens"], 1);
  EXPECT_EQ(events[1]["usage"]["completion_tokens"], 3);
  EXPECT_EQ(events[2]["usage"]["completion_tokens"], 3);
}

TEST_F(Stream, TokensWithoutTextMakeNoEventUnlessTheyHaveLogprobs) {
  const auto plain = complete({{"stream", true}});
  RequestEvent half;
  half.tokens = {{0xc3, -1, {}}};
  backend.say(0, half);
  EXPECT_FALSE(plain->head);

  const auto scored = complete({{"stream", true}, {"logprobs", 0}});
  backend.say(1, half);
  EXPECT_EQ(choices(*scored).size(), 1U);
}

TEST_F(Stream, ACharacterSplitOverTokensComesWhole) {
  const auto exchange = chat({{"stream", true}, {"logprobs", true}});
  RequestEvent first;
  first.tokens = {{0xc3, -1, {}}};
  RequestEvent second;
  second.tokens = {{0xa4, -2, {}}};
  second.text = "ä";
  backend.say(0, first);
  backend.say(0, second);
  backend.finish(0, "");

  const auto events = exchange->events();
  ASSERT_EQ(events.size(), 4U);
  EXPECT_EQ(events[1]["choices"][0]["delta"]["content"], "");
  EXPECT_EQ(events[1]["choices"][0]["logprobs"]["content"][0]["bytes"].dump(), "[195]");
  EXPECT_EQ(events[2]["choices"][0]["delta"]["content"], "ä");
  EXPECT_EQ(events[2]["choices"][0]["logprobs"]["content"][0]["bytes"].dump(), "[164]");
}

TEST_F(Stream, TextOffsetsGoOnOverEvents) {
  const auto exchange = complete({{"stream", true}, {"logprobs", 0}, {"echo", true}});
  RequestEvent first;
  first.prompt = {{'a', 0, {}}, {'b', -1, {}}};
  first.tokens = {{'c', -1, {}}};
  first.text = "c";
  backend.say(0, first);
  backend.finish(0, "d", FinishReason::kLength);

  const auto events = exchange->events();
  EXPECT_EQ(events[0]["choices"][0]["text"], "abc");
  EXPECT_EQ(events[0]["choices"][0]["logprobs"]["text_offset"].dump(), "[0,1,2]");
  EXPECT_EQ(events[1]["choices"][0]["text"], "d");
  EXPECT_EQ(events[1]["choices"][0]["logprobs"]["text_offset"].dump(), "[3]");
}

TEST_F(Stream, ChoicesInterleaveAndTheStreamEndsWithTheLast) {
  const auto exchange = chat({{"stream", true}, {"n", 2}});
  backend.say(1, "x");
  backend.finish(0, "a");
  EXPECT_FALSE(exchange->ended);
  backend.finish(1, "y", FinishReason::kLength);

  std::map<int, std::string> texts;
  std::map<int, int> reasons;
  std::map<int, int> roles;
  for (const auto& event : exchange->events()) {
    const Json& choice = event["choices"][0];
    texts[choice["index"]] += choice["delta"].value("content", "");
    reasons[choice["index"]] += choice["finish_reason"].is_null() ? 0 : 1;
    roles[choice["index"]] += choice["delta"].contains("role") ? 1 : 0;
  }
  EXPECT_EQ(texts, (std::map<int, std::string>{{0, "a"}, {1, "xy"}}));
  EXPECT_EQ(reasons, (std::map<int, int>{{0, 1}, {1, 1}}));
  EXPECT_EQ(roles, (std::map<int, int>{{0, 1}, {1, 1}}));
  EXPECT_TRUE(exchange->ended);
}

TEST_F(Stream, AFailureBeforeTheFirstTokenHasItsStatus) {
  const auto exchange = chat({{"stream", true}});
  backend.fail(0, {Kind::kDisconnected, "the device is gone", {}});

  EXPECT_EQ(refusal(*exchange), "503 null unavailable: the device is gone");
  EXPECT_EQ(exchange->field("retry-after"), "1");
  ASSERT_EQ(outcomes.size(), 1U);
  EXPECT_EQ(outcomes[0].status, 503U);
}

TEST_F(Stream, AFailureWithinIsAnEventAndCancelsTheOtherChoices) {
  const auto exchange = chat({{"stream", true}, {"n", 2}});
  backend.say(0, "a");
  backend.fail(0, {Kind::kInternal, "broken", {}});

  const auto events = exchange->events();
  EXPECT_EQ(events.back().dump(),
            R"({"error":{"message":"broken","type":"server_error","param":null,)"
            R"("code":"internal_error"}})");
  EXPECT_TRUE(exchange->body.ends_with("data: [DONE]\n\n"));
  EXPECT_TRUE(exchange->ended);
  EXPECT_TRUE(backend.submitted[1].cancelled);
  EXPECT_FALSE(backend.submitted[0].cancelled);
  backend.say(1, "late");
  ASSERT_EQ(outcomes.size(), 1U);
  EXPECT_EQ(outcomes[0].error_code, "internal_error");
  EXPECT_EQ(outcomes[0].finish_reason, "error");
  EXPECT_TRUE(outcomes[0].streamed);
}

TEST_F(Stream, AClientThatLeavesInTheQueueIsCancelled) {
  const auto exchange = chat({{"stream", true}, {"n", 2}});
  exchange->leave();

  EXPECT_EQ(cancelled(), 2U);
  ASSERT_EQ(outcomes.size(), 1U);
  EXPECT_EQ(outcomes[0].status, 499U);
  EXPECT_EQ(outcomes[0].error_code, "client_gone");
  EXPECT_EQ(outcomes[0].finish_reason, "cancelled");
}

TEST_F(Stream, AClientThatLeavesWhileItReadsIsCancelled) {
  const auto exchange = chat({{"stream", true}, {"n", 2}});
  backend.finish(0, "a");
  backend.say(1, "b");
  const std::string before = exchange->body;
  exchange->leave();
  backend.say(1, "c");

  EXPECT_FALSE(backend.submitted[0].cancelled);
  EXPECT_TRUE(backend.submitted[1].cancelled);
  EXPECT_EQ(exchange->body, before);
  EXPECT_EQ(outcomes.size(), 1U);
  EXPECT_EQ(outcomes[0].completion_tokens, 3U);
}

TEST_F(Stream, AClientThatWasDroppedIsNoticedByTheNextWrite) {
  const auto exchange = complete({{"stream", true}});
  backend.say(0, "a");
  exchange->refuse_writes();
  backend.say(0, "b");

  EXPECT_EQ(cancelled(), 1U);
  backend.finish(0, "c");
  EXPECT_EQ(outcomes.size(), 1U);
  EXPECT_FALSE(exchange->ended);
}

TEST_F(Stream, AClientThatHasLeftBeforeTheHandlerIsNotServed) {
  auto exchange = std::make_shared<FakeExchange>(
      HttpRequest{.method = "POST",
                  .path = "/v1/completions",
                  .fields = {{"content-type", "application/json"}},
                  .body = R"({"model":"org/model","prompt":"a","n":3,"stream":true})"});
  exchange->leave();
  EXPECT_TRUE(api->handle(exchange));

  EXPECT_TRUE(backend.submitted.empty());
  EXPECT_EQ(outcomes.size(), 1U);
}

TEST_F(Stream, AClientThatLeavesWhileItsChoicesAreSubmittedIsCancelled) {
  auto exchange = std::make_shared<FakeExchange>(
      HttpRequest{.method = "POST",
                  .path = "/v1/completions",
                  .fields = {{"content-type", "application/json"}},
                  .body = R"({"model":"org/model","prompt":"a","n":3})"});
  backend.on_submit = [&](std::size_t index) {
    if (index == 1) {
      exchange->leave();
    }
  };
  EXPECT_TRUE(api->handle(exchange));

  EXPECT_EQ(backend.submitted.size(), 2U);
  EXPECT_EQ(cancelled(), 2U);
  EXPECT_EQ(outcomes.size(), 1U);
}

TEST_F(Stream, AnAnswerThatComesWithinSubmitIsWhole) {
  backend.on_submit = [&](std::size_t index) {
    backend.say(index, "a");
    backend.finish(index, "b");
  };
  const auto exchange = chat({{"stream", true}, {"n", 2}});

  EXPECT_TRUE(exchange->ended);
  EXPECT_EQ(choices(*exchange).size(), 8U);
  EXPECT_EQ(cancelled(), 0U);
  EXPECT_EQ(outcomes.size(), 1U);
}

TEST_F(Stream, CancellingMayEndTheRequestAtOnce) {
  backend.on_cancel = [this](RequestId id) {
    RequestEvent event;
    event.finished = true;
    event.reason = FinishReason::kCancelled;
    backend.say(id.value - 100, event);
  };
  const auto exchange = chat({{"stream", true}, {"n", 2}});
  backend.say(0, "a");
  exchange->leave();

  EXPECT_EQ(cancelled(), 2U);
  EXPECT_EQ(outcomes.size(), 1U);
}

}  // namespace
}  // namespace troupe::net
