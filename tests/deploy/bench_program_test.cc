// `troupe bench`, `troupe devices` and `troupe plan`.
#include "tests/deploy/program.h"
#include "tests/support/temp_directory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <fstream>
#include <string>
#include <vector>

namespace troupe::deploy {
namespace {

using nlohmann::json;
using testing::HasSubstr;

json parse(const std::vector<std::string>& arguments) {
  const Ended ended = run_program(arguments);
  EXPECT_EQ(ended.code, 0) << ended.err;
  auto object = json::parse(ended.out, nullptr, false);
  EXPECT_TRUE(object.is_object()) << ended.out;
  return object;
}

TEST(TroupeBench, PrintsFiguresAndTheRoofline) {
  const json object = parse({"bench",
                             "--prompt-tokens",
                             "40",
                             "--output-tokens",
                             "4",
                             "--batch",
                             "2",
                             "--repetitions",
                             "2",
                             "--json"});

  for (const char* rate : {"prefill_tokens_per_s", "decode_tokens_per_s"}) {
    EXPECT_GT(object[rate]["min"].get<double>(), 0);
    EXPECT_LE(object[rate]["min"].get<double>(), object[rate]["median"].get<double>());
    EXPECT_LE(object[rate]["median"].get<double>(), object[rate]["max"].get<double>());
  }
  EXPECT_GT(object["load_s"].get<double>(), 0);
  EXPECT_GT(object["resident_bytes"].get<std::uint64_t>(), 10'000'000U);
  EXPECT_GT(object["roofline"]["read_bytes_per_s"].get<double>(), 1e8);
  EXPECT_LT(object["roofline"]["read_bytes_per_s"].get<double>(), 1e12);
  EXPECT_GT(object["roofline"]["decode_fraction"].get<double>(), 0);
  EXPECT_EQ(object["batch"], 2);
  EXPECT_TRUE(object["kernel_set"].is_string());
}

TEST(TroupeBench, LeavesOutAHalfThatIsNotWanted) {
  const json decode = parse(
      {"bench", "--prompt-tokens", "0", "--output-tokens", "2", "--repetitions", "1", "--json"});
  EXPECT_FALSE(decode.contains("prefill_tokens_per_s"));
  EXPECT_TRUE(decode.contains("decode_tokens_per_s"));

  const json prefill = parse(
      {"bench", "--prompt-tokens", "8", "--output-tokens", "0", "--repetitions", "1", "--json"});
  EXPECT_TRUE(prefill.contains("prefill_tokens_per_s"));
  EXPECT_FALSE(prefill.contains("decode_tokens_per_s"));
  EXPECT_FALSE(prefill["roofline"].contains("decode_fraction"));
}

TEST(TroupeBench, PrintsATableForPeople) {
  const Ended ended =
      run_program({"bench", "--prompt-tokens", "8", "--output-tokens", "2", "--repetitions", "1"});

  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_THAT(ended.out, HasSubstr("prefill    8 tokens x 1: "));
  EXPECT_THAT(ended.out, HasSubstr("decode     2 tokens x 1: "));
}

TEST(TroupeBench, ProfilesOneMoreRun) {
  const test::TempDirectory folder;
  const std::string trace = folder.path() / "trace.json";
  const std::vector<std::string> arguments = {"bench",
                                              "--prompt-tokens",
                                              "8",
                                              "--output-tokens",
                                              "2",
                                              "--repetitions",
                                              "1",
                                              "--profile",
                                              "--trace",
                                              trace};
  const Ended table = run_program(arguments);
  auto with_json = arguments;
  with_json.emplace_back("--json");
  const json object = parse(with_json);

  EXPECT_EQ(table.code, 0) << table.err;
  EXPECT_THAT(table.out, HasSubstr("\ndecode programs "));
  std::uint64_t launches = 0;
  for (const json& kind : object["profile"]) {
    launches += kind["launches"].get<std::uint64_t>();
  }
  EXPECT_GT(launches, 0U);
  std::ifstream file(trace);
  EXPECT_EQ(json::parse(file)["traceEvents"].size(), launches);
}

TEST(TroupeBench, SaysBeforeItMeasuresThatATraceCannotBeWritten) {
  const Ended ended =
      run_program({"bench", "--repetitions", "1000", "--trace", "/no/such/folder/trace.json"});

  EXPECT_EQ(ended.code, 2) << ended.out;
  EXPECT_THAT(ended.err, HasSubstr("--trace /no/such/folder/trace.json"));
}

TEST(TroupeBench, PrintsItsFiguresThoughTheTraceFails) {
  const Ended ended = run_program({"bench",
                                   "--prompt-tokens",
                                   "8",
                                   "--output-tokens",
                                   "2",
                                   "--repetitions",
                                   "1",
                                   "--trace",
                                   "/dev/full"});

  EXPECT_EQ(ended.code, 1);
  EXPECT_THAT(ended.err, HasSubstr("--trace /dev/full can't be written to the end"));
  EXPECT_THAT(ended.out, HasSubstr("decode     2 tokens x 1: "));
}

TEST(TroupeDevices, SaysWhatTheProcessorCanDo) {
  const json object = parse({"devices", "--json"});

  ASSERT_EQ(object["devices"].size(), 1U);
  const json& device = object["devices"][0];
  EXPECT_EQ(device["name"], "cpu:0");
  EXPECT_GE(device["threads"].get<int>(), 1);
  EXPECT_GT(device["memory_bytes"].get<std::uint64_t>(), 0U);
  EXPECT_EQ(device["kernel_sets"][0]["name"], "scalar");
  EXPECT_EQ(device["kernel_sets"][0]["available"], true);
  EXPECT_THAT(device["capabilities"].get<std::vector<std::string>>(),
              testing::Contains("async_pipeline"));
  EXPECT_EQ(device["supports"]["runs"], true);
}

TEST(TroupeDevices, NamesWhatKeepsAModelFromRunning) {
  const json object = parse({"devices", TROUPE_SOURCE_DIR "/models/configs/qwen3.5-27b", "--json"});

  const json& supports = object["devices"][0]["supports"];
  EXPECT_EQ(supports["runs"], false);
  EXPECT_THAT(supports["blocker"].get<std::string>(), HasSubstr("safetensors"));
}

TEST(TroupeDevices, PrintsATableForPeople) {
  const Ended ended = run_program({"devices"});

  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_THAT(ended.out, HasSubstr("cpu:0"));
  EXPECT_THAT(ended.out, HasSubstr("runs"));
}

TEST(TroupePlan, PrintsGroupsDigestsAndMemoryTheSameEveryTime) {
  const std::vector<std::string> arguments = {
      "plan", "--kernels", "scalar", "--mode", "rows", "--rows", "64"};
  const Ended ended = run_program(arguments);

  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_THAT(ended.out, testing::ContainsRegex("arithmetic digest  [0-9a-f]+\n"));
  EXPECT_THAT(ended.out, testing::ContainsRegex("plan digest        [0-9a-f]+\n"));
  EXPECT_THAT(ended.out, HasSubstr("weights"));
  EXPECT_EQ(run_program(arguments).out, ended.out);
}

TEST(TroupePlan, NeedsNoWeights) {
  const Ended ended = run_program({"plan",
                                   TROUPE_SOURCE_DIR "/models/configs/qwen3-next-80b-a3b",
                                   "--mode",
                                   "decode",
                                   "--rows",
                                   "1"});

  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_THAT(ended.out, HasSubstr("arithmetic digest"));
}

TEST(TroupePlan, RefusesMoreRowsThanAStepHas) {
  const Ended ended = run_program({"plan", "--rows", "60000"});

  EXPECT_EQ(ended.code, 2);
  EXPECT_THAT(ended.err, HasSubstr("--rows 60000"));
}

}  // namespace
}  // namespace troupe::deploy
