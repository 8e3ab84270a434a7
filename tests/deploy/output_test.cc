#include "deploy/output.h"

#include "runtime/base/file.h"

#include <gtest/gtest.h>

#include <array>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string>
#include <sys/eventfd.h>
#include <thread>
#include <unistd.h>

namespace troupe::deploy {
namespace {

struct Pipe {
  File reader;
  File writer;
};

Pipe make_pipe() {
  ::signal(SIGPIPE, SIG_IGN);
  std::array<int, 2> ends{};
  EXPECT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);
  return {File(ends[0]), File(ends[1])};
}

// A signal that is pending from the start or never comes.
class FakeSignals final : public Signals {
 public:
  explicit FakeSignals(bool is_pending) : pending_(is_pending) {}
  void set_graceful(bool) override {}
  bool pending() const override { return pending_; }
  int fd() const override { return never_.fd(); }
  void acknowledge() override {}

 private:
  bool pending_;
  File never_{::eventfd(0, EFD_CLOEXEC)};
};

TEST(Output, WritesMoreThanAPipeHolds) {
  Pipe pipe = make_pipe();
  const std::string text(300'000, 'x');
  std::string got;
  std::thread reader([&pipe, &got] {
    std::array<char, 4096> bytes{};
    for (ssize_t count = 1; count > 0;) {
      count = ::read(pipe.reader.fd(), bytes.data(), bytes.size());
      got.append(bytes.data(), count > 0 ? static_cast<std::size_t>(count) : 0);
    }
  });
  const FakeSignals signals(false);
  Output output(pipe.writer.fd(), &signals);

  const Status status = output.write(text);
  pipe.writer = File();
  reader.join();

  EXPECT_TRUE(status);
  EXPECT_EQ(got, text);
}

TEST(Output, NoticesThatTheReaderIsGone) {
  Pipe pipe = make_pipe();
  pipe.reader = File();
  Output output(pipe.writer.fd(), nullptr);

  const Status status = output.write("x");

  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().kind, Kind::kCancelled);
  EXPECT_TRUE(output.closed());
  EXPECT_FALSE(output.write("y"));
}

TEST(Output, GivesUpOnAStalledReaderOnceASignalIsPending) {
  Pipe pipe = make_pipe();
  const FakeSignals signals(true);
  Output output(pipe.writer.fd(), &signals);

  const Status status = output.write(std::string(300'000, 'x'));

  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().kind, Kind::kCancelled);
  EXPECT_FALSE(output.closed());
}

TEST(Output, ReportsAFullDisk) {
  const File full(::open("/dev/full", O_WRONLY | O_CLOEXEC));
  Output output(full.fd(), nullptr);

  const Status status = output.write("x");

  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().kind, Kind::kInternal);
}

}  // namespace
}  // namespace troupe::deploy
