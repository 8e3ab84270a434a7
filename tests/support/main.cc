// The main() of every test binary: runs the tests, then lists what was skipped and why, so that a path this machine lacks is
// never silently unproven.
#include <cstdio>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace {

class SkipReport final : public testing::EmptyTestEventListener {
  void OnTestPartResult(const testing::TestPartResult& part) override {
    if (part.skipped()) {
      const auto* test = testing::UnitTest::GetInstance()->current_test_info();
      lines_.push_back(std::string(test != nullptr ? test->test_suite_name() : "?") + "." +
                       (test != nullptr ? test->name() : "?") + ": " + part.summary());
    }
  }
  void OnTestProgramEnd(const testing::UnitTest&) override {
    if (!lines_.empty()) {
      std::printf("not proven on this machine (%zu):\n", lines_.size());
      for (const auto& line : lines_) {
        std::printf("  %s\n", line.c_str());
      }
    }
  }
  std::vector<std::string> lines_;
};

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  testing::UnitTest::GetInstance()->listeners().Append(new SkipReport);
  return RUN_ALL_TESTS();
}
