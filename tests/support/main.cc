// The main() of every test binary: runs the tests, then lists what was skipped and why, so that a
// path this machine lacks is never silently unproven.
#include <gtest/gtest.h>

#include <cstdio>
#include <string>
#include <vector>

namespace {

class SkipReport final : public testing::EmptyTestEventListener {
  // At the end of a test, not at its skip: there GoogleTest holds the lock that current_test_info()
  // takes.
  void OnTestEnd(const testing::TestInfo& test) override {
    const testing::TestResult& result = *test.result();
    for (int i = 0; result.Skipped() && i < result.total_part_count(); ++i) {
      lines_.push_back(std::string(test.test_suite_name()) + "." + test.name() + ": " +
                       result.GetTestPartResult(i).message());
    }
  }
  void OnTestProgramEnd(const testing::UnitTest& /*all*/) override {
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
