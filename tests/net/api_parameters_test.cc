// Every parameter: what it changes in the Request, and with which words it is refused.
#include "tests/net/api_fixture.h"

#include <cfloat>

namespace troupe::net {
namespace {

class Parameter : public ApiTest {
 protected:
  // The request that the body makes; fails the test when it is refused.
  const Request& request_of_completion(Json more) {
    const auto exchange = complete(std::move(more));
    EXPECT_FALSE(exchange->response) << refusal(*exchange);
    return last();
  }
  const Request& request_of_chat(Json more) {
    const auto exchange = chat(std::move(more));
    EXPECT_FALSE(exchange->response) << refusal(*exchange);
    return last();
  }
  std::string refused_completion(Json more) { return refusal(*complete(std::move(more))); }
  std::string refused_chat(Json more) { return refusal(*chat(std::move(more))); }

 private:
  const Request& last() {
    static const Request kNone;
    EXPECT_FALSE(backend.submitted.empty());
    return backend.submitted.empty() ? kNone : backend.submitted.back().request;
  }
};

TEST_F(Parameter, AbsentOnesAreTheModelsDefaults) {
  const Request& request = request_of_completion(Json::object());

  EXPECT_EQ(request.sampling.temperature, 0.5F);
  EXPECT_EQ(request.sampling.top_p, 0.75F);
  EXPECT_EQ(request.stop_tokens, std::vector<std::uint32_t>{kFakeEnd});
  EXPECT_EQ(request.max_tokens, 16U);
  EXPECT_EQ(request.choice, 0U);
  EXPECT_FALSE(request.sampling.seed || request.logprobs || request.prompt_logprobs);
  EXPECT_EQ(request_of_chat(Json::object()).max_tokens, 64U - 9U);  // "user:hi|>" leaves that
}

TEST_F(Parameter, NullMeansAbsent) {
  const Request& request = request_of_completion({{"temperature", nullptr},
                                                  {"logprobs", nullptr},
                                                  {"stop", nullptr},
                                                  {"seed", nullptr},
                                                  {"n", nullptr},
                                                  {"suffix", nullptr},
                                                  {"max_tokens", nullptr}});

  EXPECT_EQ(request.sampling.temperature, 0.5F);
  EXPECT_EQ(request.max_tokens, 16U);
}

TEST_F(Parameter, TemperatureIsFromZeroToTwo) {
  EXPECT_EQ(request_of_completion({{"temperature", 0}}).sampling.temperature, 0.0F);
  EXPECT_EQ(request_of_chat({{"temperature", 2}}).sampling.temperature, 2.0F);
  EXPECT_EQ(refused_completion({{"temperature", 2.5}}),
            "400 temperature invalid_value: temperature is 2.5; allowed is a number from 0 to 2");
  EXPECT_EQ(
      refused_chat({{"temperature", "hot"}}),
      "400 temperature invalid_type: temperature is \"hot\"; allowed is a number from 0 to 2");
}

TEST_F(Parameter, TopPOfZeroKeepsTheLikeliestToken) {
  EXPECT_EQ(request_of_completion({{"top_p", 0}}).sampling.top_p, FLT_MIN);
  EXPECT_EQ(request_of_completion({{"top_p", 0.25}}).sampling.top_p, 0.25F);
  EXPECT_EQ(refused_completion({{"top_p", 1.5}}),
            "400 top_p invalid_value: top_p is 1.5; allowed is a number from 0 to 1");
}

TEST_F(Parameter, TopKOfMinusOneIsOff) {
  EXPECT_EQ(request_of_completion({{"top_k", -1}}).sampling.top_k, 0U);
  EXPECT_EQ(request_of_completion({{"top_k", 40}}).sampling.top_k, 40U);
  EXPECT_EQ(request_of_completion({{"top_k", 40.0}}).sampling.top_k, 40U);
  EXPECT_EQ(
      refused_completion({{"top_k", 1.5}}),
      "400 top_k invalid_type: top_k is 1.5; allowed is a whole number from -1 to 2147483647");
  EXPECT_EQ(
      refused_completion({{"top_k", 18446744073709551615ULL}}),
      "400 top_k invalid_value: top_k is 18446744073709551615; allowed is a whole number from "
      "-1 to 2147483647");
}

TEST_F(Parameter, MinPIsAFraction) {
  EXPECT_EQ(request_of_completion({{"min_p", 0.5}}).sampling.min_p, 0.5F);
  EXPECT_EQ(refused_completion({{"min_p", -1}}),
            "400 min_p invalid_value: min_p is -1; allowed is a number from 0 to 1");
}

TEST_F(Parameter, PenaltiesHaveTheirRanges) {
  const Request& request = request_of_completion(
      {{"repetition_penalty", 1.5}, {"presence_penalty", -2}, {"frequency_penalty", 1.25}});

  EXPECT_EQ(request.sampling.repetition_penalty, 1.5F);
  EXPECT_EQ(request.sampling.presence_penalty, -2.0F);
  EXPECT_EQ(request.sampling.frequency_penalty, 1.25F);
  EXPECT_EQ(
      refused_completion({{"repetition_penalty", 0}}),
      "400 repetition_penalty invalid_value: repetition_penalty is 0; allowed is a number from "
      "0.01 to 100");
  EXPECT_EQ(
      refused_completion({{"presence_penalty", 3}}),
      "400 presence_penalty invalid_value: presence_penalty is 3; allowed is a number from -2 "
      "to 2");
  EXPECT_EQ(
      refused_completion({{"frequency_penalty", true}}),
      "400 frequency_penalty invalid_type: frequency_penalty is true; allowed is a number from "
      "-2 to 2");
}

TEST_F(Parameter, LogitBiasIsKeyedByTokenIdsOfTheVocabulary) {
  const Request& request = request_of_completion({{"logit_bias", {{"7", -100}, {"299", 2.5}}}});

  const std::vector<std::pair<std::uint32_t, float>> expected = {{7, -100.0F}, {299, 2.5F}};
  EXPECT_EQ(request.sampling.logit_bias, expected);
  EXPECT_EQ(
      refused_completion({{"logit_bias", {{"300", 1}}}}),
      "400 logit_bias.300 invalid_value: logit_bias names token 300; the vocabulary has ids 0 "
      "to 299");
  EXPECT_EQ(refused_completion({{"logit_bias", {{"9999999999", 1}}}}),
            "400 logit_bias.9999999999 invalid_value: logit_bias names token 9999999999; the "
            "vocabulary has ids 0 to 299");
  EXPECT_EQ(refused_completion({{"logit_bias", {{"01", 1}}}}),
            "400 logit_bias.01 invalid_value: logit_bias.01 is not keyed by a token id");
  EXPECT_EQ(refused_completion({{"logit_bias", {{"1", 101}}}}),
            "400 logit_bias.1 invalid_value: logit_bias.1 is 101; allowed is a number from -100 to "
            "100");
}

TEST_F(Parameter, SeedIsAnyNumberOf64Bits) {
  EXPECT_EQ(request_of_completion({{"seed", 42}}).sampling.seed, 42U);
  EXPECT_EQ(request_of_completion({{"seed", -1}}).sampling.seed, 0xffffffffffffffffU);
  EXPECT_EQ(
      request_of_completion({{"seed", std::numeric_limits<std::int64_t>::max()}}).sampling.seed,
      0x7fffffffffffffffU);
  EXPECT_EQ(refused_completion({{"seed", 9223372036854775808ULL}}),
            "400 seed invalid_value: seed is 9223372036854775808; allowed is a whole number from "
            "-9223372036854775808 to 9223372036854775807");
}

TEST_F(Parameter, StopIsATextOrUpToFour) {
  using Texts = std::vector<std::string>;
  EXPECT_EQ(request_of_completion({{"stop", "x"}}).stop_strings, Texts{"x"});
  EXPECT_EQ(request_of_chat({{"stop", {"a", "b", "c", "d"}}}).stop_strings,
            (Texts{"a", "b", "c", "d"}));
  EXPECT_EQ(request_of_chat({{"stop", Json::array()}}).stop_strings, Texts{});
  EXPECT_EQ(refused_completion({{"stop", ""}}),
            "400 stop invalid_value: stop is \"\"; allowed is a text of 1 to 256 characters");
  EXPECT_EQ(refused_completion({{"stop", {"a", ""}}}),
            "400 stop[1] invalid_value: stop[1] is \"\"; allowed is a text of 1 to 256 characters");
  EXPECT_EQ(refused_completion({{"stop", {"a", "b", "c", "d", "e"}}}),
            "400 stop invalid_value: stop is a list of 5; allowed is a list of 0 to 4");
  EXPECT_EQ(
      refused_completion({{"stop", 5}}),
      "400 stop invalid_type: stop is 5; allowed is a text of 1 to 256 characters or a list of "
      "0 to 4");
}

TEST_F(Parameter, StopNeedsATokenizer) {
  backend.card_.has_tokenizer = false;

  EXPECT_EQ(refused_completion({{"prompt", {1, 2}}, {"stop", "x"}}),
            "400 stop invalid_value: stop needs a tokenizer, which this model does not have; use "
            "stop_token_ids");
}

TEST_F(Parameter, StopTokenIdsComeBesideTheModelsOwn) {
  using Ids = std::vector<std::uint32_t>;
  EXPECT_EQ(request_of_completion({{"stop_token_ids", {5, kFakeEnd}}}).stop_tokens,
            (Ids{kFakeEnd, 5}));
  EXPECT_EQ(request_of_completion({{"stop_token_ids", {5}}, {"ignore_eos", true}}).stop_tokens,
            Ids{5});
  EXPECT_EQ(request_of_completion({{"ignore_eos", true}}).stop_tokens, Ids{});
  EXPECT_EQ(
      refused_completion({{"stop_token_ids", {300}}}),
      "400 stop_token_ids[0] invalid_value: stop_token_ids[0] is 300; allowed is a whole number "
      "from 0 to 299");
}

TEST_F(Parameter, LogprobsOfACompletionAreACount) {
  EXPECT_EQ(request_of_completion({{"logprobs", 0}}).logprobs, 0U);
  EXPECT_EQ(request_of_completion({{"logprobs", 20}}).logprobs, 20U);
  EXPECT_FALSE(request_of_completion({{"logprobs", 20}}).prompt_logprobs);
  EXPECT_EQ(refused_completion({{"logprobs", 21}}),
            "400 logprobs invalid_value: logprobs is 21; allowed is a whole number from 0 to 20");
  EXPECT_EQ(refused_completion({{"logprobs", true}}),
            "400 logprobs invalid_type: logprobs is true; allowed is a whole number from 0 to 20");
}

TEST_F(Parameter, LogprobsOfAChatAreAFlagAndACount) {
  EXPECT_EQ(request_of_chat({{"logprobs", true}}).logprobs, 0U);
  EXPECT_EQ(request_of_chat({{"logprobs", true}, {"top_logprobs", 20}}).logprobs, 20U);
  EXPECT_FALSE(request_of_chat({{"logprobs", false}}).logprobs);
  EXPECT_EQ(
      refused_chat({{"logprobs", true}, {"top_logprobs", 21}}),
      "400 top_logprobs invalid_value: top_logprobs is 21; allowed is a whole number from 0 to "
      "20");
  EXPECT_EQ(refused_chat({{"top_logprobs", 1}}),
            "400 top_logprobs invalid_value: top_logprobs is only allowed when logprobs is true");
}

TEST_F(Parameter, EchoWithLogprobsAsksForThoseOfThePrompt) {
  EXPECT_EQ(request_of_completion({{"echo", true}, {"logprobs", 3}}).prompt_logprobs, 3U);
  EXPECT_FALSE(request_of_completion({{"echo", true}}).prompt_logprobs);
}

TEST_F(Parameter, MaxTokensOfZeroNeedsEcho) {
  EXPECT_EQ(request_of_completion({{"max_tokens", 0}, {"echo", true}}).max_tokens, 1U);
  EXPECT_EQ(refused_completion({{"max_tokens", 0}}),
            "400 max_tokens invalid_value: max_tokens is 0; without echo at least 1 is needed");
  EXPECT_EQ(refused_completion({{"max_tokens", -1}}),
            "400 max_tokens invalid_value: max_tokens is -1; allowed is a whole number from 0 to "
            "2147483647");
}

TEST_F(Parameter, MaxTokensOfAChatHasTwoNames) {
  EXPECT_EQ(request_of_chat({{"max_tokens", 5}}).max_tokens, 5U);
  EXPECT_EQ(request_of_chat({{"max_completion_tokens", 6}}).max_tokens, 6U);
  EXPECT_EQ(request_of_chat({{"max_tokens", 7}, {"max_completion_tokens", 7}}).max_tokens, 7U);
  EXPECT_EQ(
      refused_chat({{"max_tokens", 5}, {"max_completion_tokens", 6}}),
      "400 max_tokens invalid_value: max_tokens is 5 and max_completion_tokens is 6; they mean "
      "the same");
  EXPECT_EQ(refused_completion({{"max_completion_tokens", 5}}),
            "400 max_completion_tokens unknown_parameter: max_completion_tokens is not supported; "
            "leave it out");
}

TEST_F(Parameter, TooLongIsRefusedWithTheNumbers) {
  EXPECT_EQ(
      refused_completion({{"max_tokens", 63}}),
      "400 prompt context_length_exceeded: the context holds 64 tokens, but 2 in prompt and 63 "
      "for the answer make 65; shorten prompt or lower max_tokens");
  EXPECT_EQ(
      refused_completion({{"prompt", std::string(64, 'a')}}),
      "400 prompt context_length_exceeded: the context holds 64 tokens, but 64 in prompt and at "
      "least one for the answer make 65; shorten prompt");
  EXPECT_EQ(
      refused_chat({{"max_tokens", 100}}),
      "400 messages context_length_exceeded: the context holds 64 tokens, but 9 in messages and "
      "100 for the answer make 109; shorten messages or lower max_tokens");
  EXPECT_EQ(request_of_completion({{"prompt", std::string(60, 'a')}}).max_tokens, 4U);
}

TEST_F(Parameter, BestOfIsOnlyN) {
  request_of_completion({{"n", 2}, {"best_of", 2}});
  EXPECT_EQ(refused_completion({{"n", 2}, {"best_of", 3}}),
            "400 best_of invalid_value: best_of is 3 and n is 2; only best_of equal to n is "
            "supported");
}

TEST_F(Parameter, StreamOptionsNeedAStream) {
  EXPECT_EQ(refused_chat({{"stream_options", {{"include_usage", true}}}}),
            "400 stream_options invalid_value: stream_options is only allowed when stream is true");
  EXPECT_EQ(
      refused_chat({{"stream", true}, {"stream_options", {{"foo", 1}}}}),
      "400 stream_options.foo unknown_parameter: stream_options.foo is not supported; leave it "
      "out");
  EXPECT_EQ(
      refused_chat({{"stream", true}, {"stream_options", {{"include_obfuscation", true}}}}),
      "400 stream_options.include_obfuscation invalid_value: stream_options.include_obfuscation "
      "is true; allowed is false");
}

TEST_F(Parameter, OnesThatChangeNothingAreAccepted) {
  const Json harmless = {{"user", "me"},
                         {"metadata", {{"a", 1}}},
                         {"store", false},
                         {"service_tier", "auto"},
                         {"safety_identifier", "x"},
                         {"prompt_cache_key", "x"},
                         {"min_tokens", 0},
                         {"include_stop_str_in_output", false}};
  request_of_completion(harmless);
  request_of_chat(harmless);
  request_of_chat({{"parallel_tool_calls", true},
                   {"response_format", {{"type", "text"}}},
                   {"modalities", {"text"}},
                   {"continue_final_message", false}});
}

TEST_F(Parameter, OnesThatWouldChangeTheAnswerAreRefused) {
  EXPECT_EQ(refused_chat({{"store", true}}),
            "400 store invalid_value: store is true; allowed is false");
  EXPECT_EQ(refused_chat({{"min_tokens", 3}}),
            "400 min_tokens invalid_value: min_tokens is 3; allowed is 0");
  EXPECT_EQ(refused_completion({{"suffix", "end"}}),
            "400 suffix invalid_value: suffix is \"end\"; allowed is \"\"");
  EXPECT_EQ(
      refused_chat({{"response_format", {{"type", "json_object"}}}}),
      "400 response_format.type invalid_value: response_format.type is \"json_object\"; allowed "
      "is \"text\"");
  EXPECT_EQ(refused_chat({{"reasoning_effort", "low"}}),
            "400 reasoning_effort unknown_parameter: reasoning_effort is not supported; leave it "
            "out");
  EXPECT_EQ(refused_chat({{"made_up", 1}}),
            "400 made_up unknown_parameter: made_up is not supported; leave it out");
}

TEST_F(Parameter, ToolsAreRefusedUnlessNoneMayBeCalled) {
  const Json tools = Json::array({{{"type", "function"}, {"function", {{"name", "f"}}}}});

  EXPECT_EQ(
      refused_chat({{"tools", tools}}),
      "400 tools unsupported: tools are not supported yet; leave them out, or set tool_choice "
      "to \"none\"");
  EXPECT_EQ(refused_chat({{"tools", tools}, {"tool_choice", "required"}}).substr(0, 9),
            "400 tools");
  EXPECT_EQ(refused_chat({{"tool_choice", "required"}}),
            "400 tool_choice unsupported: tool_choice asks for a call of a tool, which is not "
            "supported yet; allowed is \"none\", and \"auto\" without tools");
  EXPECT_EQ(refused_chat({{"tool_choice", {{"type", "function"}}}}).substr(0, 15),
            "400 tool_choice");
  request_of_chat({{"tools", tools}, {"tool_choice", "none"}});
  EXPECT_EQ(backend.asked_.tools, "");
  request_of_chat({{"tools", Json::array()}, {"tool_choice", "auto"}});
}

TEST_F(Parameter, TemplateVariablesReachTheTemplate) {
  request_of_chat({{"chat_template_kwargs", {{"enable_thinking", false}}}});
  EXPECT_EQ(backend.asked_.variables, R"({"enable_thinking":false})");

  request_of_chat({{"add_generation_prompt", false}});
  EXPECT_FALSE(backend.asked_.add_generation_prompt);
}

TEST_F(Parameter, TheModelIsNeededAndMustBeThisOne) {
  EXPECT_EQ(refusal(*post("/v1/completions", Json{{"prompt", "a"}})),
            "400 model missing_required_parameter: model is missing");
  EXPECT_EQ(
      refused_chat({{"model", "gpt-4"}}),
      "404 model model_not_found: there is no model \"gpt-4\"; this server has \"org/model\"");
  EXPECT_EQ(refused_chat({{"model", 4}}),
            "400 model invalid_value: model is 4; allowed is \"org/model\"");
}

TEST_F(Parameter, NIsBounded) {
  request_of_completion({{"n", 128}});
  EXPECT_EQ(backend.submitted.size(), 128U);
  EXPECT_EQ(refused_completion({{"n", 0}}),
            "400 n invalid_value: n is 0; allowed is a whole number from 1 to 128");
  EXPECT_EQ(refused_chat({{"n", 129}}),
            "400 n invalid_value: n is 129; allowed is a whole number from 1 to 128");
  EXPECT_EQ(
      refused_completion({{"n", 65}, {"prompt", {"a", "b"}}}),
      "400 prompt invalid_value: 2 prompts and n 65 make 130 choices; at most 128 are allowed "
      "in one request");
}

}  // namespace
}  // namespace troupe::net
