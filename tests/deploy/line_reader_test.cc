#include "deploy/line_reader.h"

#include "runtime/base/file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <fcntl.h>
#include <string>
#include <sys/eventfd.h>
#include <unistd.h>
#include <vector>

namespace troupe::deploy {
namespace {

using Got = LineReader::Got;

class FakeSignals final : public Signals {
 public:
  void set_graceful(bool) override {}
  bool pending() const override { return raised_; }
  int fd() const override { return wake_.fd(); }
  void acknowledge() override {}
  void raise() {
    raised_ = true;
    const std::uint64_t one = 1;
    EXPECT_EQ(::write(wake_.fd(), &one, sizeof one), static_cast<ssize_t>(sizeof one));
  }

 private:
  bool raised_ = false;
  File wake_{::eventfd(0, EFD_CLOEXEC)};
};

// A pipe that holds `text` and then ends.
File source(const std::string& text) {
  std::array<int, 2> ends{};
  EXPECT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);
  EXPECT_EQ(::write(ends[1], text.data(), text.size()), static_cast<ssize_t>(text.size()));
  ::close(ends[1]);
  return File(ends[0]);
}

std::vector<std::string> lines_of(const std::string& text) {
  const FakeSignals signals;
  const File file = source(text);
  LineReader reader(file.fd(), signals);
  std::vector<std::string> lines;
  for (std::string line; reader.read(line) == Got::kLine;) {
    lines.push_back(line);
  }
  return lines;
}

TEST(LineReader, GivesLinesWithoutTheirEnds) {
  EXPECT_THAT(lines_of("a\n\nb\r\n"), testing::ElementsAre("a", "", "b"));
}

TEST(LineReader, GivesALastLineWithoutAnEnd) {
  EXPECT_THAT(lines_of("a\nb"), testing::ElementsAre("a", "b"));
  EXPECT_THAT(lines_of(""), testing::IsEmpty());
}

TEST(LineReader, LetsASignalInterruptTheWait) {
  FakeSignals signals;
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);
  const File input(ends[0]);
  const File quiet(ends[1]);
  LineReader reader(input.fd(), signals);
  signals.raise();

  std::string line;
  EXPECT_EQ(reader.read(line), Got::kSignal);
}

}  // namespace
}  // namespace troupe::deploy
