#include "tests/deploy/program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <unistd.h>
#include <vector>

namespace troupe::deploy {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr const char* kQuestion = "How much is 60 + 39?";
constexpr const char* kAnswer = "60 + 39: ones 0+9=9, tens 6+3=9, result 99";
constexpr const char* kTiny = TROUPE_SOURCE_DIR "/tests/golden/data/next-tiny";

json parse(const Ended& ended) {
  EXPECT_EQ(ended.code, 0) << ended.err;
  auto object = json::parse(ended.out, nullptr, false);
  EXPECT_FALSE(object.is_discarded()) << ended.out;
  return object;
}

TEST(TroupeRun, AnswersAPromptWithTheDemoModel) {
  const Ended ended = run_program({"run", "--prompt", kQuestion});

  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_EQ(ended.out, std::string(kAnswer) + "\n");
  EXPECT_THAT(ended.err, IsEmpty());
}

TEST(TroupeRun, PrintsAJsonObject) {
  const json object =
      parse(run_program({"run", "--prompt", kQuestion, "--json", "--logprobs", "2"}));

  EXPECT_EQ(object["text"], kAnswer);
  EXPECT_EQ(object["finish_reason"], "stop");
  EXPECT_EQ(object["token_ids"].back(), 4095);
  EXPECT_EQ(object["prompt_token_ids"].front(), 4094);
  ASSERT_EQ(object["logprobs"].size(), object["token_ids"].size());
  const json& first = object["logprobs"][0];
  EXPECT_EQ(first["token_id"], object["token_ids"][0]);
  EXPECT_EQ(first["top"].size(), 2U);
  EXPECT_EQ(first["top"][0][0], first["token_id"]);
  EXPECT_LE(first["logprob"].get<double>(), 0);
  EXPECT_EQ(object["stats"]["prompt_tokens"], object["prompt_token_ids"].size());
  EXPECT_EQ(object["stats"]["generated_tokens"], object["token_ids"].size());
}

TEST(TroupeRun, ContinuesTokenIdsAsItDoesTheirText) {
  const json text = parse(run_program({"run", "--prompt", kQuestion, "--json"}));
  std::string ids;
  for (const auto& id : text["prompt_token_ids"]) {
    ids += (ids.empty() ? "" : ",") + std::to_string(id.get<int>());
  }

  const json continued = parse(run_program({"run", "--token-ids", ids, "--json"}));

  EXPECT_EQ(continued["token_ids"], text["token_ids"]);
  EXPECT_EQ(continued["text"], text["text"]);
}

TEST(TroupeRun, NeedsNoTokenizerForTokenIds) {
  const Ended ended =
      run_program({"run", kTiny, "--token-ids", "1,2,3", "--max-tokens", "4", "--ignore-eos"});

  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_THAT(ended.out, testing::ContainsRegex("^[0-9]+,[0-9]+,[0-9]+,[0-9]+\n$"));
}

TEST(TroupeRun, EndsAtMaxTokens) {
  const json object =
      parse(run_program({"run", "--prompt", kQuestion, "--max-tokens", "3", "--json"}));

  EXPECT_EQ(object["finish_reason"], "length");
  EXPECT_EQ(object["token_ids"].size(), 3U);
}

TEST(TroupeRun, EndsAtAStopTextWithoutIt) {
  const json object =
      parse(run_program({"run", "--prompt", kQuestion, "--stop", ", tens", "--json"}));

  EXPECT_EQ(object["finish_reason"], "stop");
  EXPECT_EQ(object["text"], "60 + 39: ones 0+9=9");
}

TEST(TroupeRun, IsTheSameWithFp32ActivationsAndOneThread) {
  EXPECT_EQ(
      run_program({"run", "--prompt", kQuestion, "--activations", "fp32", "--threads", "1"}).out,
      std::string(kAnswer) + "\n");
}

TEST(TroupeRun, RepeatsASampledAnswerFromItsSeed) {
  const std::vector<std::string> arguments = {
      "run", "--prompt", "Write a story about a frog.", "--temperature", "2", "--json"};
  const json first = parse(run_program(arguments));
  auto with_seed = arguments;
  with_seed.insert(with_seed.end(),
                   {"--seed", std::to_string(first["stats"]["seed"].get<std::uint64_t>())});

  EXPECT_EQ(parse(run_program(with_seed))["token_ids"], first["token_ids"]);
}

TEST(TroupeRun, BiasesALogit) {
  const json plain =
      parse(run_program({"run", "--prompt", kQuestion, "--max-tokens", "1", "--json"}));
  const std::string id = std::to_string(plain["token_ids"][0].get<int>());

  const json biased = parse(run_program(
      {"run", "--prompt", kQuestion, "--max-tokens", "1", "--json", "--logit-bias", id + "=-100"}));

  EXPECT_NE(biased["token_ids"], plain["token_ids"]);
}

TEST(TroupeRun, ContinuesARawPromptWithoutTheTemplate) {
  const json object =
      parse(run_program({"run", "--prompt", "hello", "--raw", "--max-tokens", "1", "--json"}));

  EXPECT_LT(object["prompt_token_ids"].size(), 5U);
  EXPECT_NE(object["prompt_token_ids"][0], 4094);
}

TEST(TroupeRun, PutsFiguresOnStandardError) {
  const Ended ended = run_program({"run", "--prompt", kQuestion, "--stats"});

  EXPECT_EQ(ended.out, std::string(kAnswer) + "\n");
  EXPECT_THAT(ended.err, HasSubstr("tokens/s"));
  EXPECT_THAT(ended.err, HasSubstr("kernels: "));
  EXPECT_THAT(ended.err, HasSubstr("resident"));
}

struct Refused {
  std::vector<std::string> arguments;
  int code;
  const char* named;
};

class RefusedRuns : public testing::TestWithParam<Refused> {};

TEST_P(RefusedRuns, SayWhatIsWrongAndHowTheyEnded) {
  const Ended ended = run_program(GetParam().arguments);

  EXPECT_EQ(ended.code, GetParam().code);
  EXPECT_THAT(ended.out, IsEmpty());
  EXPECT_THAT(ended.err, testing::StartsWith("troupe: "));
  EXPECT_THAT(ended.err, HasSubstr(GetParam().named));
}

// More tokens than the demo model's context of 2048.
std::string long_prompt() {
  std::string text;
  for (int i = 0; i < 3000; ++i) {
    text += "7 ";
  }
  return text;
}

INSTANTIATE_TEST_SUITE_P(
    All,
    RefusedRuns,
    testing::Values(Refused{{}, 2, "--help"},
                    Refused{{"run", "--frobnicate"}, 2, "--frobnicate"},
                    Refused{{"run", "/nowhere", "--prompt", "x"}, 2, "/nowhere"},
                    Refused{
                        {"run", TROUPE_SOURCE_DIR "/deploy", "--prompt", "x"}, 2, "config.json"},
                    Refused{{"run", kTiny, "--prompt", "x"}, 2, "tokenizer"},
                    Refused{{"run", kTiny}, 2, "--token-ids"},
                    Refused{{"run", "--prompt", "x", "--kernels", "mmx"}, 2, "mmx"},
                    Refused{{"run", "--token-ids", "1,4096"}, 2, "4096"},
                    Refused{{"run", "--requests", "/nowhere.jsonl"}, 2, "/nowhere.jsonl"},
                    Refused{{"run", "--prompt", long_prompt()}, 3, "2048"},
                    Refused{{"run", "--prompt", "x", "--max-tokens", "5000"}, 3, "2048"},
                    Refused{{"bench", "--prompt-tokens", "5000"}, 3, "2048"}));

TEST(TroupeRun, PrintsHelpAndVersion) {
  EXPECT_THAT(run_program({"--help"}).out, HasSubstr("devices"));
  EXPECT_THAT(run_program({"run", "--help"}).out, HasSubstr("--max-tokens"));
  EXPECT_THAT(run_program({"--version"}).out, testing::StartsWith("troupe "));
  EXPECT_EQ(run_program({"--version"}).code, 0);
}

TEST(TroupeRunRequests, AnswersLinesInOrderAndFailsOnlyThoseThatAreWrong) {
  const auto file = std::filesystem::temp_directory_path() /
                    ("troupe_requests_" + std::to_string(::getpid()) + ".jsonl");
  std::ofstream(file) << "{\"prompt\": \"" << kQuestion << "\", \"logprobs\": 0}\n"
                      << "{\"token_ids\": [1], \"max_tokens\": 4000}\n"
                      << "{\"token_ids\": [1, 2], \"max_tokens\": 2, \"ignore_eos\": true}\n";

  const Ended ended = run_program({"run", "--requests", file.string()});
  std::filesystem::remove(file);

  EXPECT_EQ(ended.code, 3) << ended.err;
  std::istringstream lines(ended.out);
  std::vector<json> objects;
  for (std::string line; std::getline(lines, line);) {
    objects.push_back(json::parse(line));
  }
  ASSERT_EQ(objects.size(), 3U);
  EXPECT_EQ(objects[0]["index"], 0);
  EXPECT_EQ(objects[0]["text"], kAnswer);
  EXPECT_TRUE(objects[0].contains("logprobs"));
  EXPECT_EQ(objects[1]["index"], 1);
  EXPECT_THAT(objects[1]["error"]["message"].get<std::string>(), HasSubstr("2048"));
  EXPECT_EQ(objects[2]["token_ids"].size(), 2U);
  EXPECT_FALSE(objects[2].contains("logprobs"));
}

}  // namespace
}  // namespace troupe::deploy
