// /v1/completions, not streamed.
#include "tests/net/api_fixture.h"

namespace troupe::net {
namespace {

using Ids = std::vector<std::uint32_t>;
using Completions = ApiTest;

TokenOutput token(std::uint32_t id, float logprob, std::vector<TokenValue> top = {}) {
  return {id, logprob, std::move(top)};
}

TEST_F(Completions, AnAnswerHasAllOfOpenAisFields) {
  clock.advance(std::chrono::seconds(9));
  const auto exchange = complete();
  backend.say(0, "cd");
  backend.finish(0, "e");

  Json answer = exchange->json();
  EXPECT_TRUE(answer["id"].get<std::string>().starts_with("cmpl-"));
  answer["id"] = "";
  EXPECT_EQ(answer.dump(),
            R"({"id":"","object":"text_completion","created":1700000009,"model":"org/model",)"
            R"("system_fingerprint":"abc","choices":[{"index":0,"text":"cde","logprobs":null,)"
            R"("finish_reason":"stop"}],"usage":{"prompt_tokens":2,"completion_tokens":4,)"
            R"("total_tokens":6}})");
  EXPECT_EQ(exchange->answers, 1);
}

TEST_F(Completions, APromptIsATextATextListTokensOrTokenLists) {
  complete({{"prompt", "hi"}});
  complete({{"prompt", {"a", "b"}}});
  complete({{"prompt", {5, 6.0}}});
  complete({{"prompt", {{7}, {8, 9}}}});

  ASSERT_EQ(backend.submitted.size(), 6U);
  const std::vector<Ids> expected = {{'h', 'i'}, {'a'}, {'b'}, {5, 6}, {7}, {8, 9}};
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(backend.submitted[i].request.prompt, expected[i]) << i;
  }
}

TEST_F(Completions, OtherPromptsAreRefused) {
  const auto why = [this](Json prompt) { return refusal(*complete({{"prompt", prompt}})); };

  EXPECT_EQ(why(""), "400 prompt invalid_value: prompt has no tokens; at least one is needed");
  EXPECT_EQ(why({"a", ""}),
            "400 prompt invalid_value: prompt has no tokens; at least one is needed");
  EXPECT_EQ(why({"a", 1}), "400 prompt[1] invalid_type: prompt[1] is 1; allowed is a text");
  EXPECT_EQ(
      why({1, "a"}),
      "400 prompt[1] invalid_type: prompt[1] is \"a\"; allowed is a whole number from 0 to 299");
  EXPECT_EQ(
      why(Json::array({Json::array({1}), Json::array({1, 300})})),
      "400 prompt[1][1] invalid_value: prompt[1][1] is 300; allowed is a whole number from 0 to "
      "299");
  EXPECT_EQ(why(Json::array()).substr(0, 25), "400 prompt invalid_value:");
  EXPECT_EQ(why(nullptr).substr(0, 24), "400 prompt invalid_type:");
  EXPECT_EQ(why({{"a", 1}}).substr(0, 24), "400 prompt invalid_type:");
  EXPECT_EQ(refusal(*post("/v1/completions", Json{{"model", "org/model"}})),
            "400 prompt missing_required_parameter: prompt is missing");
  EXPECT_TRUE(backend.submitted.empty());
}

TEST_F(Completions, TextsNeedATokenizer) {
  backend.card_.has_tokenizer = false;

  EXPECT_EQ(refusal(*complete()),
            "400 prompt invalid_value: this model has no tokenizer: send the prompt as token ids");
  complete({{"prompt", {1, 2}}});
  EXPECT_EQ(backend.submitted.size(), 1U);
}

TEST_F(Completions, ChoicesOfABatchAreInTheOrderOfPromptsAndN) {
  const auto exchange = complete({{"prompt", {"a", "bc"}}, {"n", 2}, {"seed", 5}});
  ASSERT_EQ(backend.submitted.size(), 4U);
  for (const std::size_t i : {3U, 0U, 2U, 1U}) {
    EXPECT_FALSE(exchange->response);
    backend.finish(i, std::to_string(i), FinishReason::kLength);
  }

  const Json answer = exchange->json();
  for (std::size_t i = 0; i < 4; ++i) {
    const Request& request = backend.submitted[i].request;
    EXPECT_EQ(request.choice, i % 2);
    EXPECT_EQ(request.sampling.seed, 5U);
    EXPECT_EQ(request.prompt.size(), i / 2 + 1);
    EXPECT_EQ(answer["choices"][i]["index"], i);
    EXPECT_EQ(answer["choices"][i]["text"], std::to_string(i));
    EXPECT_EQ(answer["choices"][i]["finish_reason"], "length");
  }
  EXPECT_EQ(answer["usage"].dump(),
            R"({"prompt_tokens":3,"completion_tokens":4,"total_tokens":7})");
}

TEST_F(Completions, LogprobsHaveTheTokenItselfAmongItsAlternatives) {
  const auto exchange = complete({{"logprobs", 1}});
  RequestEvent event;
  event.text = "xy";
  event.tokens = {token('x', -0.5F, {{'x', -0.5F}}), token('y', -2.0F, {{'z', -0.25F}})};
  backend.say(0, event);
  backend.finish(0, "");

  const Json logprobs = exchange->json()["choices"][0]["logprobs"];
  EXPECT_EQ(logprobs.dump(),
            R"({"tokens":["x","y","<end>"],"token_logprobs":[-0.5,-2.0,-0.25],)"
            R"("top_logprobs":[{"x":-0.5},{"z":-0.25,"y":-2.0},{"<end>":-0.25}],)"
            R"("text_offset":[0,1,2]})");
}

// The shape that lm-eval's local-completions reads: the prompt's tokens, the first without a
// logprob, then the one that was generated, which it cuts off.
TEST_F(Completions, EchoWithLogprobsScoresThePrompt) {
  const auto exchange = complete({{"prompt", Json::array({{'a', 'b', 'c'}})},
                                  {"echo", true},
                                  {"logprobs", 1},
                                  {"max_tokens", 1},
                                  {"temperature", 0},
                                  {"seed", 1234}});
  RequestEvent event;
  event.prompt = {token('a', 0), token('b', -1.5F, {{'b', -1.5F}}), token('c', -3, {{'d', -0.5F}})};
  event.tokens = {token(kFakeEnd, -0.125F, {{kFakeEnd, -0.125F}})};
  event.finished = true;
  event.reason = FinishReason::kStop;
  backend.say(0, event);

  const Json choice = exchange->json()["choices"][0];
  EXPECT_EQ(choice.dump(),
            R"({"index":0,"text":"abc","logprobs":{"tokens":["a","b","c","<end>"],)"
            R"("token_logprobs":[null,-1.5,-3.0,-0.125],)"
            R"("top_logprobs":[null,{"b":-1.5},{"d":-0.5,"c":-3.0},{"<end>":-0.125}],)"
            R"("text_offset":[0,1,2,3]},"finish_reason":"stop"})");
}

TEST_F(Completions, EchoWithoutTokensDropsTheOneThatWasRun) {
  const auto exchange =
      complete({{"prompt", {"ab", "ä"}}, {"echo", true}, {"logprobs", 0}, {"max_tokens", 0}});
  for (std::size_t i = 0; i < 2; ++i) {
    RequestEvent event;
    for (const std::uint32_t id : backend.submitted[i].request.prompt) {
      event.prompt.push_back(token(id, -1));
    }
    event.tokens = {token('z', -1)};
    event.text = "z";
    event.finished = true;
    backend.say(i, event);
  }

  const Json answer = exchange->json();
  EXPECT_EQ(answer["choices"][0].dump(),
            R"({"index":0,"text":"ab","logprobs":{"tokens":["a","b"],"token_logprobs":[null,-1.0],)"
            R"("top_logprobs":[null,{"b":-1.0}],"text_offset":[0,1]},"finish_reason":"length"})");
  EXPECT_EQ(answer["choices"][1]["logprobs"]["tokens"].dump(), R"(["bytes:\\xc3","bytes:\\xa4"])");
  EXPECT_EQ(answer["usage"]["completion_tokens"], 0);
}

TEST_F(Completions, EchoWithoutLogprobsIsOnlyText) {
  const auto exchange = complete({{"echo", true}});
  backend.finish(0, "c");

  EXPECT_EQ(exchange->json()["choices"][0]["text"], "abc");
  EXPECT_TRUE(exchange->json()["choices"][0]["logprobs"].is_null());
}

TEST_F(Completions, TextOffsetsCountCharactersAlsoWhenOneIsSplit) {
  const auto exchange = complete({{"logprobs", 0}});
  RequestEvent event;
  event.text = "ä€b";
  for (const unsigned id : {0xc3U, 0xa4U, 0xe2U, 0x82U, 0xacU, 0x62U}) {
    event.tokens.push_back(token(id, -1));
  }
  backend.say(0, event);
  backend.finish(0, "", FinishReason::kLength);

  const Json logprobs = exchange->json()["choices"][0]["logprobs"];
  EXPECT_EQ(logprobs["text_offset"].dump(), "[0,0,1,1,1,2]");
  EXPECT_EQ(logprobs["tokens"][2], "bytes:\\xe2");
}

TEST_F(Completions, AnInfiniteLogprobIsTheLeastOne) {
  const auto exchange = complete({{"logprobs", 0}});
  RequestEvent event;
  event.tokens = {token('x', -std::numeric_limits<float>::infinity())};
  event.finished = true;
  event.reason = FinishReason::kLength;
  backend.say(0, event);

  EXPECT_EQ(exchange->json()["choices"][0]["logprobs"]["token_logprobs"].dump(), "[-9999.0]");
}

TEST_F(Completions, AnIdOfThePromptThatTheModelNeverChoosesHasANumberToo) {
  const auto exchange = complete({{"logprobs", 1}, {"echo", true}, {"prompt", {97, 299}}});
  RequestEvent event;
  event.prompt = {token('a', 0), {299, -std::numeric_limits<float>::infinity(), {{'x', -0.5F}}}};
  event.tokens = {token('y', -1)};
  event.finished = true;
  event.reason = FinishReason::kLength;
  backend.say(0, event);

  const Json logprobs = exchange->json()["choices"][0]["logprobs"];
  EXPECT_EQ(logprobs["token_logprobs"].dump(), "[null,-9999.0,-1.0]");
  EXPECT_EQ(logprobs["top_logprobs"][1]["x"], -0.5);
  for (const auto& [text, logprob] : logprobs["top_logprobs"][1].items()) {
    EXPECT_TRUE(logprob.is_number()) << text;
  }
}

TEST_F(Completions, TheOutcomeIsTold) {
  const auto exchange = send(
      {.method = "POST",
       .path = "/v1/completions",
       .fields = {{"content-type", "application/json; charset=utf-8"}, {"x-request-id", "mine-1"}},
       .body = R"({"model":"org/model","prompt":"abc"})"});
  clock.advance(std::chrono::milliseconds(5));
  EXPECT_TRUE(outcomes.empty());
  backend.finish(0, "de");

  ASSERT_EQ(outcomes.size(), 1U);
  EXPECT_EQ(exchange->field("x-request-id"), "mine-1");
  EXPECT_EQ(outcomes[0].route, "/v1/completions");
  EXPECT_EQ(outcomes[0].status, 200U);
  EXPECT_EQ(outcomes[0].error_code, "");
  EXPECT_EQ(outcomes[0].request_id, "mine-1");
  EXPECT_EQ(outcomes[0].remote, "127.0.0.1:50123");
  EXPECT_EQ(outcomes[0].duration, std::chrono::milliseconds(5));
  EXPECT_EQ(outcomes[0].prompt_tokens, 3U);
  EXPECT_EQ(outcomes[0].completion_tokens, 3U);
  EXPECT_EQ(outcomes[0].finish_reason, "stop");
  EXPECT_FALSE(outcomes[0].streamed);
}

}  // namespace
}  // namespace troupe::net
