#include "deploy/model_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe::deploy {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

constexpr std::uint32_t kContext = 2048;

// Opened for each test: it takes a few milliseconds.
ModelFiles demo() {
  auto files = open_model_files(TROUPE_SOURCE_DIR "/models/demo");
  EXPECT_TRUE(files) << files.error().message;
  return *std::move(files);
}

ModelFiles without_text() {
  auto files = open_model_files(TROUPE_SOURCE_DIR "/tests/golden/data/next-tiny");
  EXPECT_TRUE(files) << files.error().message;
  return *std::move(files);
}

Question prompt(const std::string& text) {
  Question question;
  question.prompt = text;
  return question;
}

TEST(ModelFiles, OfTheDemoModelAreAllThere) {
  const ModelFiles files = demo();

  ASSERT_NE(files.tokenizer, nullptr);
  ASSERT_NE(files.chat_template, nullptr);
  EXPECT_THAT(files.generation.stop_ids, ElementsAre(4093U, 4095U));
}

TEST(ModelFiles, MayLackATokenizer) {
  const ModelFiles files = without_text();

  EXPECT_EQ(files.tokenizer, nullptr);
  EXPECT_EQ(files.chat_template, nullptr);
}

TEST(MakeRequest, RendersAPromptAsOneUserMessage) {
  const ModelFiles files = demo();

  const auto request = make_request(files, prompt("hi"), {}, kContext);

  ASSERT_TRUE(request) << request.error().message;
  EXPECT_EQ(files.tokenizer->decode(request->prompt),
            "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_EQ(request->max_tokens, 256U);
  EXPECT_THAT(request->stop_tokens, ElementsAre(4093U, 4095U));
}

TEST(MakeRequest, PutsTheSystemMessageFirst) {
  const ModelFiles files = demo();
  TemplateOptions chat;
  chat.system = "be brief";

  const auto request = make_request(files, prompt("hi"), chat, kContext);

  ASSERT_TRUE(request);
  EXPECT_THAT(files.tokenizer->decode(request->prompt),
              testing::StartsWith("<|im_start|>system\nbe brief<|im_end|>\n"));
}

TEST(MakeRequest, LeavesARawPromptAlone) {
  const ModelFiles files = demo();
  TemplateOptions raw;
  raw.raw = true;

  const auto request = make_request(files, prompt("hi"), raw, kContext);

  ASSERT_TRUE(request);
  EXPECT_EQ(files.tokenizer->decode(request->prompt), "hi");
}

TEST(MakeRequest, TakesTokenIdsWithoutATokenizer) {
  Question question;
  question.token_ids = {1, 2, 3};

  const auto request = make_request(without_text(), question, {}, kContext);

  ASSERT_TRUE(request) << request.error().message;
  EXPECT_THAT(request->prompt, ElementsAre(1U, 2U, 3U));
}

TEST(MakeRequest, SaysWhatTextNeeds) {
  EXPECT_THAT(make_request(without_text(), prompt("hi"), {}, kContext).error().message,
              HasSubstr("--token-ids"));
  Question stop;
  stop.token_ids = {1};
  stop.answer.stop = {"x"};
  EXPECT_THAT(make_request(without_text(), stop, {}, kContext).error().message,
              HasSubstr("--stop"));
}

TEST(MakeRequest, RefusesATemplateVariableThatIsNotJson) {
  TemplateOptions chat;
  chat.variables = {{"style", "short"}};

  const auto request = make_request(demo(), prompt("hi"), chat, kContext);

  ASSERT_FALSE(request);
  EXPECT_EQ(request.error().kind, Kind::kInvalid);
  EXPECT_THAT(request.error().message, HasSubstr("style=short"));
}

TEST(MakeRequest, RefusesAnEmptyPrompt) {
  TemplateOptions raw;
  raw.raw = true;

  EXPECT_THAT(make_request(demo(), prompt(""), raw, kContext).error().message,
              HasSubstr("no tokens"));
}

TEST(MakeRequest, RefusesWhatDoesNotFitTheContextWithNumbers) {
  Question question;
  question.token_ids.assign(10, 1);
  const ModelFiles files = without_text();

  const auto full = make_request(files, question, {}, 10);
  ASSERT_FALSE(full);
  EXPECT_EQ(full.error().kind, Kind::kOverloaded);
  EXPECT_THAT(full.error().message, HasSubstr("10 tokens and the context holds 10"));

  question.answer.max_tokens = 6;
  const auto long_answer = make_request(files, question, {}, 15);
  ASSERT_FALSE(long_answer);
  EXPECT_EQ(long_answer.error().kind, Kind::kOverloaded);
  EXPECT_THAT(long_answer.error().message, HasSubstr("at most 5"));
  EXPECT_TRUE(make_request(files, question, {}, 16));
}

TEST(MakeRequest, ShortensAnAnswerThatNobodyAskedToBeLong) {
  Question question;
  question.token_ids.assign(10, 1);

  const auto request = make_request(without_text(), question, {}, 15);

  ASSERT_TRUE(request);
  EXPECT_EQ(request->max_tokens, 5U);
}

GenerationDefaults sampling_model() {
  GenerationDefaults defaults;
  defaults.do_sample = true;
  defaults.temperature = 0.75;
  defaults.top_k = 20;
  defaults.top_p = 0.5;
  return defaults;
}

TEST(SamplingParams, ComeFromTheModelWhereNothingIsAsked) {
  const SamplingParams params = sampling_params({}, sampling_model());

  EXPECT_EQ(params.temperature, 0.75F);
  EXPECT_EQ(params.top_k, 20U);
  EXPECT_EQ(params.top_p, 0.5F);
  EXPECT_EQ(params.repetition_penalty, 1.0F);
}

TEST(SamplingParams, GiveWayToTheCommandLine) {
  SamplingOptions asked;
  asked.temperature = 0;
  asked.top_k = 0;
  asked.logit_bias = {{3, -2}};
  asked.seed = 9;

  const SamplingParams params = sampling_params(asked, sampling_model());

  EXPECT_EQ(params.temperature, 0.0F);
  EXPECT_EQ(params.top_k, 0U);
  EXPECT_EQ(params.top_p, 0.5F);
  EXPECT_EQ(params.seed, 9U);
  EXPECT_THAT(params.logit_bias, ElementsAre(Pair(3U, -2.0F)));
}

TEST(SamplingParams, OfAModelThatDoesNotSampleAreGreedy) {
  GenerationDefaults defaults = sampling_model();
  defaults.do_sample = false;

  EXPECT_EQ(sampling_params({}, defaults).temperature, 0.0F);
  EXPECT_EQ(sampling_params({}, GenerationDefaults{}).temperature, 0.0F);

  SamplingOptions asked;
  asked.temperature = 0.5;
  EXPECT_EQ(sampling_params(asked, defaults).temperature, 0.5F);
}

}  // namespace
}  // namespace troupe::deploy
