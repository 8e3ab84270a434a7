#include "runtime/serve/request.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

namespace troupe {
namespace {

Request good() {
  Request request;
  request.prompt = {1, 2, 3};
  request.max_tokens = 5;
  return request;
}

std::string refusal(const std::function<void(Request&)>& change) {
  Request request = good();
  change(request);
  const Status status = check_request(request, 100, 64);
  EXPECT_TRUE(status || status.error().kind == Kind::kInvalid);
  return status ? "accepted" : status.error().message;
}

TEST(Request, AcceptsDefaultsAndLimits) {
  EXPECT_TRUE(check_request(good(), 100, 8));
  EXPECT_EQ(refusal([](Request& r) {
              r.sampling.temperature = 100;
              r.sampling.min_p = 1;
              r.sampling.presence_penalty = -2;
              r.sampling.logit_bias = {{99, 100.0F}, {0, -100.0F}};
              r.logprobs = r.prompt_logprobs = 20;
              r.stop_strings = {"x"};
              r.stop_tokens = {4000};
            }),
            "accepted");
}

TEST(Request, RefusesAnEmptyPrompt) {
  EXPECT_EQ(refusal([](Request& r) { r.prompt.clear(); }),
            "the prompt has no tokens; at least one is needed");
}

TEST(Request, RefusesAnIdBeyondTheVocabulary) {
  EXPECT_EQ(refusal([](Request& r) { r.prompt[1] = 100; }),
            "prompt token 1 is 100; the vocabulary has ids 0 to 99");
}

TEST(Request, RefusesMoreThanTheContextHolds) {
  EXPECT_EQ(refusal([](Request& r) { r.max_tokens = 62; }),
            "the prompt's 3 tokens and max_tokens 62 make 65; the context holds 64");
  EXPECT_EQ(
      refusal([](Request& r) { r.max_tokens = std::numeric_limits<std::uint32_t>::max(); }),
      "the prompt's 3 tokens and max_tokens 4294967295 make 4294967298; the context holds 64");
  EXPECT_EQ(refusal([](Request& r) { r.max_tokens = 0; }), "max_tokens is 0; at least 1 is needed");
}

TEST(Request, RefusesSamplingParametersOutOfRange) {
  EXPECT_EQ(refusal([](Request& r) { r.sampling.temperature = -1; }),
            "temperature is -1; allowed is 0 to 100");
  EXPECT_EQ(refusal([](Request& r) { r.sampling.temperature = std::nanf(""); }),
            "temperature is nan; allowed is 0 to 100");
  EXPECT_EQ(refusal([](Request& r) { r.sampling.top_p = 0; }),
            "top_p is 0; allowed is more than 0, up to 1");
  EXPECT_EQ(refusal([](Request& r) { r.sampling.min_p = 1.5F; }),
            "min_p is 1.5; allowed is 0 to 1");
  EXPECT_EQ(refusal([](Request& r) { r.sampling.repetition_penalty = 0; }),
            "repetition_penalty is 0; allowed is more than 0, up to 100");
  EXPECT_EQ(refusal([](Request& r) { r.sampling.presence_penalty = 3; }),
            "presence_penalty is 3; allowed is -2 to 2");
  EXPECT_EQ(refusal([](Request& r) { r.sampling.frequency_penalty = -3; }),
            "frequency_penalty is -3; allowed is -2 to 2");
}

TEST(Request, RefusesABiasOnNoTokenOrTwiceOnOne) {
  EXPECT_EQ(refusal([](Request& r) {
              r.sampling.logit_bias = {{100, 1.0F}};
            }),
            "a token of logit_bias is 100; the vocabulary has ids 0 to 99");
  EXPECT_EQ(refusal([](Request& r) {
              r.sampling.logit_bias = {{1, 101.0F}};
            }),
            "a logit_bias is 101; allowed is -100 to 100");
  EXPECT_EQ(refusal([](Request& r) {
              r.sampling.logit_bias = {{1, 1.0F}, {1, 2.0F}};
            }),
            "logit_bias names token 1 twice");
}

TEST(Request, RefusesTooManyLogprobs) {
  EXPECT_EQ(refusal([](Request& r) { r.logprobs = 21; }), "logprobs is 21; allowed is 0 to 20");
  EXPECT_EQ(refusal([](Request& r) { r.prompt_logprobs = 21; }),
            "prompt_logprobs is 21; allowed is 0 to 20");
}

TEST(Request, RefusesEmptyLongAndManyStopStrings) {
  EXPECT_EQ(refusal([](Request& r) { r.stop_strings = {""}; }),
            "a stop string has 0 bytes; allowed is 1 to 1024");
  EXPECT_EQ(refusal([](Request& r) { r.stop_strings = {std::string(1025, 'x')}; }),
            "a stop string has 1025 bytes; allowed is 1 to 1024");
  EXPECT_EQ(refusal([](Request& r) { r.stop_strings.assign(17, "x"); }),
            "there are 17 stop strings; at most 16 are allowed");
}

TEST(Request, SpellsTheReasonsOfItsEnd) {
  EXPECT_EQ(name(FinishReason::kStop), "stop");
  EXPECT_EQ(name(FinishReason::kLength), "length");
  EXPECT_EQ(name(FinishReason::kCancelled), "cancelled");
  EXPECT_EQ(name(FinishReason::kError), "error");
}

}  // namespace
}  // namespace troupe
