// /v1/chat/completions, not streamed: what the template gets and what comes back.
#include "tests/net/api_fixture.h"

namespace troupe::net {
namespace {

class Chat : public ApiTest {
 protected:
  // What the template got of these messages.
  std::string rendered(Json messages) {
    const auto exchange = chat({{"messages", std::move(messages)}});
    EXPECT_FALSE(exchange->response) << refusal(*exchange);
    return backend.asked_.messages;
  }
  std::string refused(Json messages) { return refusal(*chat({{"messages", std::move(messages)}})); }
};

Json message(Json content, const char* role = "user") {
  return {{"role", role}, {"content", std::move(content)}};
}

TEST_F(Chat, AnAnswerHasAllOfOpenAisFields) {
  const auto exchange = chat();
  backend.say(0, "<think>");
  backend.finish(0, "a</think>b");

  Json answer = exchange->json();
  EXPECT_TRUE(answer["id"].get<std::string>().starts_with("chatcmpl-"));
  answer["id"] = "";
  EXPECT_EQ(answer.dump(),
            R"({"id":"","object":"chat.completion","created":1700000000,"model":"org/model",)"
            R"("system_fingerprint":"abc","choices":[{"index":0,"message":{"role":"assistant",)"
            R"("content":"<think>a</think>b","refusal":null,"annotations":[]},"logprobs":null,)"
            R"("finish_reason":"stop"}],"usage":{"prompt_tokens":9,"completion_tokens":18,)"
            R"("total_tokens":27}})");
}

TEST_F(Chat, EachChoiceIsARequestWithItsNumber) {
  const auto exchange = chat({{"n", 3}, {"seed", 9}});
  ASSERT_EQ(backend.submitted.size(), 3U);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(backend.submitted[i].request.choice, i);
    EXPECT_EQ(backend.submitted[i].request.sampling.seed, 9U);
    backend.finish(i, std::string(i, 'x'), FinishReason::kLength);
  }

  const Json answer = exchange->json();
  EXPECT_EQ(answer["choices"][2]["message"]["content"], "xx");
  EXPECT_EQ(answer["usage"].dump(),
            R"({"prompt_tokens":9,"completion_tokens":3,"total_tokens":12})");
}

TEST_F(Chat, PartsOfAContentAreJoinedByLineEnds) {
  const Json parts =
      Json::array({{{"type", "text"}, {"text", "a"}}, {{"type", "text"}, {"text", "b"}}});

  EXPECT_EQ(rendered(Json::array({message(parts)})), R"([{"role":"user","content":"a\nb"}])");
  Json empty_first = parts;
  empty_first[0]["text"] = "";
  EXPECT_EQ(rendered(Json::array({message(empty_first)})), R"([{"role":"user","content":"\nb"}])");
  EXPECT_EQ(rendered(Json::array({message(Json::array())})), R"([{"role":"user","content":""}])");
}

TEST_F(Chat, ADeveloperIsASystem) {
  EXPECT_EQ(rendered(Json::array({message("be kind", "developer"), message("hi")})),
            R"([{"role":"system","content":"be kind"},{"role":"user","content":"hi"}])");
}

TEST_F(Chat, AnAnswerMayBeSentBackAsItCame) {
  const auto exchange = chat();
  backend.finish(0, "yes");
  const Json answer = exchange->json()["choices"][0]["message"];

  EXPECT_EQ(rendered(Json::array({message("hi"), answer, message("and?")})),
            R"([{"role":"user","content":"hi"},{"role":"assistant","content":"yes"},)"
            R"({"role":"user","content":"and?"}])");
}

TEST_F(Chat, CallsOfToolsInTheHistoryReachTheTemplate) {
  const Json calls = Json::parse(
      R"([{"id":"c1","type":"function","function":{"name":"f","arguments":"{\"b\":1,\"a\":2}"}}])");
  Json assistant = message(nullptr, "assistant");
  assistant["tool_calls"] = calls;
  Json tool = message("42", "tool");
  tool["tool_call_id"] = "c1";

  EXPECT_EQ(rendered(Json::array({message("hi"), assistant, tool})),
            R"([{"role":"user","content":"hi"},{"role":"assistant","content":"","tool_calls":)" +
                calls.dump() + R"(},{"role":"tool","content":"42","tool_call_id":"c1"}])");
}

TEST_F(Chat, WrongMessagesAreNamed) {
  EXPECT_EQ(refused(Json::array()),
            "400 messages invalid_value: messages is a list of 0; allowed is a list of at least 1");
  EXPECT_EQ(refused("hi"),
            "400 messages invalid_type: messages is \"hi\"; allowed is a list of at "
            "least 1");
  EXPECT_EQ(refused(Json::array({message("a", "robot")})),
            "400 messages[0].role invalid_value: messages[0].role is \"robot\"; allowed is "
            "\"system\", \"developer\", \"user\", \"assistant\" or \"tool\"");
  EXPECT_EQ(refused(Json::array({message(nullptr)})),
            "400 messages[0].content missing_required_parameter: messages[0].content is missing; "
            "only an assistant's may be");
  EXPECT_EQ(
      refused(Json::array({message("a"), message(5)})),
      "400 messages[1].content invalid_type: messages[1].content is 5; allowed is a text or a "
      "list");
  EXPECT_EQ(refused(Json::array({Json{{"content", "a"}}})),
            "400 messages[0].role missing_required_parameter: messages[0].role is missing");
  Json named = message("a");
  named["tool_call_id"] = "c";
  EXPECT_EQ(refused(Json::array({named})),
            "400 messages[0].tool_call_id invalid_value: messages[0].tool_call_id is only for the "
            "message of a tool");
}

TEST_F(Chat, ImagesAreRefused) {
  const Json part = {{"type", "image_url"}, {"image_url", {{"url", "data:,"}}}};

  EXPECT_EQ(refused(Json::array({message(Json::array({part}))})),
            "400 messages[0].content[0].type invalid_value: messages[0].content[0].type is "
            "\"image_url\"; allowed is \"text\"");
}

TEST_F(Chat, WhatTheTemplateRefusesIsABadRequest) {
  EXPECT_EQ(refused(Json::array({message("refuse me")})),
            "400 messages invalid_value: the template refuses this");
}

TEST_F(Chat, AModelWithoutATemplateHasNoChat) {
  backend.card_.has_chat_template = false;

  EXPECT_EQ(refusal(*chat()),
            "400 messages invalid_value: this model has no chat template: use /v1/completions");
}

TEST_F(Chat, LogprobsHaveTheBytesOfEachTokenButNotOfTheEnd) {
  const auto exchange = chat({{"logprobs", true}, {"top_logprobs", 1}});
  RequestEvent event;
  event.text = "ä";
  event.tokens = {{0xc3, -0.5F, {{0xc3, -0.5F}}}, {0xa4, -1, {{'x', -0.25F}}}};
  backend.say(0, event);
  backend.finish(0, "");

  const Json choice = exchange->json()["choices"][0];
  EXPECT_EQ(choice["message"]["content"], "ä");
  EXPECT_EQ(choice["logprobs"].dump(),
            R"({"content":[{"token":"�","logprob":-0.5,"bytes":[195],"top_logprobs":)"
            R"([{"token":"�","logprob":-0.5,"bytes":[195]}]},)"
            R"({"token":"�","logprob":-1.0,"bytes":[164],"top_logprobs":)"
            R"([{"token":"x","logprob":-0.25,"bytes":[120]}]}],"refusal":null})");
}

TEST_F(Chat, ATokenThatEndsByLengthIsKeptThoughItIsAStopToken) {
  const auto exchange = chat({{"logprobs", true}, {"ignore_eos", true}});
  RequestEvent event;
  event.tokens = {{kFakeEnd, -0.5F, {}}};
  event.finished = true;
  event.reason = FinishReason::kLength;
  backend.say(0, event);

  EXPECT_EQ(exchange->json()["choices"][0]["logprobs"]["content"].size(), 1U);
}

}  // namespace
}  // namespace troupe::net
