#include "tests/deploy/program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe::deploy {
namespace {

using testing::HasSubstr;

constexpr char kCtrlC = '\x03';
constexpr char kCtrlD = '\x04';

std::string key(char code) {
  return std::string(1, code);
}

TEST(TroupeChat, TakesEachLineOfAPipeAsATurnAndRemembers) {
  const Ended ended = run_program({"run"}, "Remember: token=8553.\n\nWhat is token?\n");

  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_EQ(ended.out, "I will remember token=8553.\ntoken=8553\n");
  EXPECT_EQ(ended.err, "");
}

TEST(TroupeChat, ForgetsAfterReset) {
  const Ended ended =
      run_program({"run", "--chat"}, "Remember: token=8553.\n/reset\nWhat is token?\n");

  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_THAT(ended.out, testing::StartsWith("I will remember token=8553.\n"));
  EXPECT_THAT(ended.out, testing::Not(HasSubstr("token=8553\n")));
}

TEST(TroupeChat, EndsAtQuit) {
  const Ended ended = run_program({"run"}, "/quit\nWhat is 2 plus 6?\n");

  EXPECT_EQ(ended.code, 0);
  EXPECT_EQ(ended.out, "");
}

TEST(TroupeChat, GoesOnAfterATurnThatDoesNotFit) {
  std::string too_long;
  for (int i = 0; i < 3000; ++i) {
    too_long += "7 ";
  }

  const Ended ended = run_program({"run"}, too_long + "\nWhat is 2 plus 6?\n");

  EXPECT_EQ(ended.code, 3);
  EXPECT_EQ(ended.out, "2 + 6 = 8\n");
  EXPECT_THAT(ended.err, HasSubstr("2048"));
}

TEST(TroupeChat, AnswersOnATerminalAndEndsAtCtrlD) {
  Program program({"run"}, Program::Files::kTerminal);
  ASSERT_TRUE(program.wait_for("> "));

  program.write("What is 2 plus 6?\n");
  ASSERT_TRUE(program.wait_for("2 + 6 = 8"));
  ASSERT_TRUE(program.wait_for("> "));
  program.write("/help\n");
  ASSERT_TRUE(program.wait_for("/reset"));
  ASSERT_TRUE(program.wait_for("> "));
  program.write(key(kCtrlD));

  const Ended ended = program.finish();
  EXPECT_TRUE(ended.in_time);
  EXPECT_EQ(ended.code, 0);
}

TEST(TroupeChat, StopsAnAnswerAtCtrlCAndEndsAtTheNextOne) {
  Program program({"run", "--ignore-eos", "--max-tokens", "1900"}, Program::Files::kTerminal);
  ASSERT_TRUE(program.wait_for("> "));

  program.write("Please count from 1 to 23.\n");
  ASSERT_TRUE(program.wait_for("1, 2, 3"));
  program.write(key(kCtrlC));
  ASSERT_TRUE(program.wait_for("> "));
  program.write("/help\n");
  ASSERT_TRUE(program.wait_for("/reset"));
  ASSERT_TRUE(program.wait_for("> "));
  program.write(key(kCtrlC));

  const Ended ended = program.finish();
  EXPECT_TRUE(ended.in_time);
  EXPECT_EQ(ended.code, 0);
}

}  // namespace
}  // namespace troupe::deploy
