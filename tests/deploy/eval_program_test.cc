// The demo model's held-out prompts, all together through continuous batching: its answers are
// those that its makers recorded with another implementation.
#include "tests/deploy/program.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace troupe::deploy {
namespace {

using nlohmann::json;

constexpr const char* kEval = TROUPE_SOURCE_DIR "/models/demo/eval.jsonl";

std::vector<json> parse_lines(std::istream& in) {
  std::vector<json> objects;
  for (std::string line; std::getline(in, line);) {
    objects.push_back(json::parse(line));
  }
  return objects;
}

TEST(DemoModelEval, ReproducesTheRecordedAnswers) {
  std::ifstream file(kEval);
  const auto recorded = parse_lines(file);
  ASSERT_EQ(recorded.size(), 200U);

  const Ended ended = run_program({"run", "--requests", kEval});
  ASSERT_EQ(ended.code, 0) << ended.err;
  std::istringstream out(ended.out);
  const auto answers = parse_lines(out);

  ASSERT_EQ(answers.size(), recorded.size());
  int correct = 0;
  int same = 0;
  for (std::size_t i = 0; i < recorded.size(); ++i) {
    EXPECT_EQ(answers[i]["index"], i);
    if (!recorded[i]["correct"].get<bool>()) {
      continue;
    }
    ++correct;
    const bool equal = answers[i]["text"] == recorded[i]["output"];
    same += equal ? 1 : 0;
    if (!equal) {
      std::printf("line %zu, margin %.3f: \"%s\", recorded \"%s\"\n",
                  i + 1,
                  recorded[i]["margin"].get<double>(),
                  answers[i]["text"].get<std::string>().c_str(),
                  recorded[i]["output"].get<std::string>().c_str());
    }
  }
  EXPECT_GE(same * 100, correct * 99) << same << " of " << correct;
}

TEST(DemoModelEval, GivesTheSameTokensAloneAsInTheBatch) {
  std::ifstream file(kEval);
  const auto recorded = parse_lines(file);
  const Ended together = run_program({"run", "--requests", kEval});
  std::istringstream out(together.out);
  const auto answers = parse_lines(out);
  ASSERT_EQ(answers.size(), recorded.size());

  for (const std::size_t i : {3U, 77U, 150U, 199U}) {
    std::string ids;
    for (const auto& id : answers[i]["prompt_token_ids"]) {
      ids += (ids.empty() ? "" : ",") + std::to_string(id.get<int>());
    }
    const Ended alone = run_program({"run", "--token-ids", ids, "--json", "--threads", "1"});
    ASSERT_EQ(alone.code, 0) << alone.err;
    EXPECT_EQ(json::parse(alone.out)["token_ids"], answers[i]["token_ids"]) << "line " << i + 1;
  }
}

}  // namespace
}  // namespace troupe::deploy
