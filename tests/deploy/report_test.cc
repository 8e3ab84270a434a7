#include "deploy/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace troupe::deploy {
namespace {

using testing::HasSubstr;

Answer made_answer() {
  Answer answer;
  answer.tokens = {{.token = 5, .logprob = -0.5F, .top = {{5, -0.5F}, {7, -1.5F}}},
                   {.token = 6, .logprob = -1.0F, .top = {}}};
  answer.text = "hi \xff";
  answer.reason = FinishReason::kLength;
  answer.stats = {.prompt_tokens = 3,
                  .generated_tokens = 11,
                  .preemptions = 1,
                  .seed = 18446744073709551615U,
                  .queue_ns = 1'000'000,
                  .first_token_ns = 500'000'000,
                  .total_ns = 1'500'000'000};
  return answer;
}

Setting made_setting() {
  Setting setting;
  setting.device.kernel_set = "avx2";
  setting.device.threads = 2;
  setting.stage.arithmetic_digest = "abc";
  setting.load_s = 0.25;
  return setting;
}

TEST(AnswerJson, IsOneLineWithAllMembersInOrder) {
  const std::string text = answer_json({1, 2, 3}, made_answer(), true, made_setting());

  EXPECT_EQ(text.find('\n'), text.size() - 1);
  const auto json = nlohmann::ordered_json::parse(text);
  std::vector<std::string> names;
  for (const auto& [name, value] : json.items()) {
    names.push_back(name);
  }
  EXPECT_THAT(names,
              testing::ElementsAre(
                  "prompt_token_ids", "token_ids", "text", "finish_reason", "logprobs", "stats"));
  EXPECT_EQ(json["prompt_token_ids"], (std::vector<int>{1, 2, 3}));
  EXPECT_EQ(json["token_ids"], (std::vector<int>{5, 6}));
  EXPECT_EQ(json["text"], "hi \xEF\xBF\xBD");
  EXPECT_EQ(json["finish_reason"], "length");
  EXPECT_EQ(json["logprobs"][0]["token_id"], 5);
  EXPECT_EQ(json["logprobs"][0]["top"][1][0], 7);
  EXPECT_EQ(json["logprobs"][0]["top"][1][1], -1.5);
  EXPECT_EQ(json["stats"]["seed"], 18446744073709551615U);
  EXPECT_EQ(json["stats"]["decode_tokens_per_s"], 10.0);
  EXPECT_EQ(json["stats"]["kernel_set"], "avx2");
}

TEST(AnswerJson, LeavesOutWhatWasNotAskedFor) {
  const auto json =
      nlohmann::json::parse(answer_json({1}, made_answer(), false, made_setting(), 4));

  EXPECT_FALSE(json.contains("logprobs"));
  EXPECT_EQ(json["index"], 4);
}

TEST(FailureJson, NamesKindAndLine) {
  const auto json = nlohmann::json::parse(failure_json({Kind::kOverloaded, "too \"long\"", {}}, 2));

  EXPECT_EQ(json["index"], 2);
  EXPECT_EQ(json["error"]["message"], "too \"long\"");
  EXPECT_EQ(json["error"]["kind"], std::string(name(Kind::kOverloaded)));
}

TEST(Stats, CountOnlyTokensAfterTheFirstForTheDecodeRate) {
  EXPECT_EQ(decode_rate(made_answer().stats), 10.0);
  EXPECT_EQ(decode_rate({}), 0.0);
  EXPECT_THAT(stats_text(made_answer()), HasSubstr("11 tokens in 1.500 s, 10.0 tokens/s"));
}

TEST(Stats, ShowKernelsThreadsAndMemory) {
  const std::string text = setting_text(made_setting(), 3U << 20U);

  EXPECT_THAT(text, HasSubstr("kernels: avx2, threads: 2"));
  EXPECT_THAT(text, HasSubstr("3.0 MiB"));
}

TEST(Rates, OverNoTimeAreNotMadeUp) {
  EXPECT_EQ(rate_text(10, 4), "2.5");
  EXPECT_EQ(rate_text(10, 0), "-");
}

TEST(ResidentBytes, AreMoreThanThisProgramsCode) {
  EXPECT_GT(resident_bytes(), 100'000U);
}

}  // namespace
}  // namespace troupe::deploy
