#include "tests/deploy/program.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <signal.h>
#include <string>

namespace troupe::deploy {
namespace {

// Takes seconds when nobody stops it.
const std::vector<std::string> kLong = {"run",
                                        "--prompt",
                                        "Please count from 1 to 23.",
                                        "--ignore-eos",
                                        "--max-tokens",
                                        "1900",
                                        "--threads",
                                        "1",
                                        "--kernels",
                                        "scalar"};

class Signalled : public testing::TestWithParam<int> {};

TEST_P(Signalled, RunEndsSoonAndShowsWhatThereIs) {
  Program program(kLong);
  ASSERT_TRUE(program.wait_for("1, 2, 3"));

  program.signal(GetParam());
  const Ended ended = program.finish();

  EXPECT_EQ(ended.code, 1) << ended.err;
  EXPECT_LT(ended.seconds, 5);
  EXPECT_EQ(ended.out.back(), '\n');
}

INSTANTIATE_TEST_SUITE_P(All, Signalled, testing::Values(SIGINT, SIGTERM));

TEST(Signals, EndAJsonRunWithACancelledObject) {
  auto arguments = kLong;
  arguments.push_back("--json");
  arguments.push_back("--log-level");
  arguments.push_back("info");
  Program program(arguments);
  ASSERT_TRUE(program.wait_for_error("loaded"));

  program.signal(SIGINT);
  const Ended ended = program.finish();

  ASSERT_EQ(ended.code, 1) << ended.err;
  const auto object = nlohmann::json::parse(ended.out);
  EXPECT_EQ(object["finish_reason"], "cancelled");
  EXPECT_LT(object["token_ids"].size(), 1900U);
}

TEST(Signals, EndTheProcessAtTheSecondOne) {
  Program program(kLong);
  ASSERT_TRUE(program.wait_for("1, 2, 3"));

  program.signal(SIGINT);
  program.signal(SIGINT);
  const Ended ended = program.finish();

  EXPECT_EQ(ended.code, 1);
  EXPECT_LT(ended.seconds, 2);
}

TEST(Signals, EndAChatThatWaitsForInput) {
  Program program({"run"});
  program.write("What is 2 plus 6?\n");
  ASSERT_TRUE(program.wait_for("2 + 6 = 8\n"));

  program.signal(SIGTERM);
  const Ended ended = program.finish();

  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_LT(ended.seconds, 5);
}

TEST(ClosedOutput, EndsARunQuietlyAndSoon) {
  Program program(kLong);
  ASSERT_TRUE(program.wait_for("1, 2, 3"));

  program.close_output();
  const Ended ended = program.finish();

  EXPECT_EQ(ended.code, 0);
  EXPECT_EQ(ended.err, "");
  EXPECT_LT(ended.seconds, 5);
}

TEST(ClosedOutput, EndsARequestsFileQuietly) {
  Program program({"run", "--requests", TROUPE_SOURCE_DIR "/models/demo/eval.jsonl"});
  ASSERT_TRUE(program.wait_for("\n"));

  program.close_output();
  const Ended ended = program.finish();

  EXPECT_EQ(ended.code, 0);
  EXPECT_EQ(ended.err, "");
}

}  // namespace
}  // namespace troupe::deploy
