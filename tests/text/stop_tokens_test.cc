#include "runtime/text/stop_tokens.h"

#include "tests/text/text_fixture.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace troupe {
namespace {

using Ids = std::vector<std::uint32_t>;
using testing::TempDirectory;

std::shared_ptr<const Tokenizer> tiny() {
  return Tokenizer::parse(testing::tiny_tokenizer_json()).value();
}

TEST(GenerationConfig, IsEmptyWithoutFiles) {
  const TempDirectory folder;

  EXPECT_EQ(read_generation_config(folder.path(), tiny().get()).value(), GenerationConfig{});
}

TEST(GenerationConfig, UnitesTheStopIdsOfAllFiles) {
  const TempDirectory folder;
  folder.write("generation_config.json", R"({"eos_token_id": [9, 7]})");
  folder.write("tokenizer_config.json", R"({"eos_token": "<|end|>"})");
  folder.write("config.json", R"({"eos_token_id": 7, "text_config": {"eos_token_id": 3}})");

  EXPECT_EQ(read_generation_config(folder.path(), tiny().get()).value().stop_ids,
            (Ids{3, 7, 9, 258}));
}

TEST(GenerationConfig, LeavesOutTheTokenTextWithoutATokenizer) {
  const TempDirectory folder;
  folder.write("tokenizer_config.json", R"({"eos_token": "<|end|>"})");
  folder.write("config.json", R"({"eos_token_id": [5]})");

  EXPECT_EQ(read_generation_config(folder.path(), nullptr).value().stop_ids, (Ids{5}));
}

TEST(GenerationConfig, ReadsAnEosTokenThatIsAnObject) {
  const TempDirectory folder;
  folder.write("tokenizer_config.json",
               R"({"eos_token": {"content": "<think>", "special": false}})");

  EXPECT_EQ(read_generation_config(folder.path(), tiny().get()).value().stop_ids, (Ids{259}));
}

TEST(GenerationConfig, ReadsTheSamplingDefaults) {
  const TempDirectory folder;
  folder.write("generation_config.json",
               R"({"do_sample": true, "temperature": 0.7, "top_k": 20, "top_p": 0.8, "min_p": 0.01,
                   "repetition_penalty": 1.05, "max_new_tokens": 512, "transformers_version": "5.0"})");

  const GenerationDefaults expected{.do_sample = true,
                                    .temperature = 0.7,
                                    .top_k = 20,
                                    .top_p = 0.8,
                                    .min_p = 0.01,
                                    .repetition_penalty = 1.05,
                                    .max_new_tokens = 512};
  EXPECT_EQ(read_generation_config(folder.path(), nullptr).value().defaults, expected);
}

TEST(GenerationConfig, ReadsTheDemoModel) {
  const std::filesystem::path folder = std::filesystem::path(TROUPE_SOURCE_DIR) / "models/demo";
  const auto tokenizer = Tokenizer::open(folder).value();

  const auto config = read_generation_config(folder, tokenizer.get()).value();

  EXPECT_EQ(config.stop_ids, (Ids{4093, 4095}));
  EXPECT_EQ(config.defaults.do_sample, false);
  EXPECT_EQ(config.defaults.max_new_tokens, 256U);
}

TEST(GenerationConfig, NamesAWrongStopId) {
  const TempDirectory folder;
  folder.write("generation_config.json", R"({"eos_token_id": [1, "two"]})");

  EXPECT_EQ(read_generation_config(folder.path(), nullptr).error().message,
            (folder.path() / "generation_config.json").string() +
                ": eos_token_id[1] is \"two\"; expected an integer from 0 to 4194303");
}

TEST(GenerationConfig, NamesAnEosTokenTheTokenizerLacks) {
  const TempDirectory folder;
  folder.write("tokenizer_config.json", R"({"eos_token": "</s>"})");

  EXPECT_EQ(read_generation_config(folder.path(), tiny().get()).error().message,
            (folder.path() / "tokenizer_config.json").string() +
                ": eos_token is \"</s>\"; expected a token of tokenizer.json");
}

TEST(GenerationConfig, NamesASamplingDefaultOutOfRange) {
  const TempDirectory folder;
  folder.write("generation_config.json", R"({"top_p": 1.5})");

  EXPECT_EQ(read_generation_config(folder.path(), nullptr).error().message,
            (folder.path() / "generation_config.json").string() +
                ": top_p is 1.5; expected a number from 0 to 1");
}

}  // namespace
}  // namespace troupe
