#include "deploy/signals.h"

#include "deploy/exit_code.h"
#include "runtime/base/file.h"

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <string>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <thread>
#include <unistd.h>

namespace troupe::deploy {
namespace {

void add_one(int fd) {
  const std::uint64_t one = 1;
  // It can only fail when the count is at its limit, and then the descriptor is readable anyway.
  [[maybe_unused]] const auto written = ::write(fd, &one, sizeof one);
}

class SignalThread final : public Signals {
 public:
  SignalThread(File signals, File wake, File quit)
      : signals_(std::move(signals)),
        wake_(std::move(wake)),
        quit_(std::move(quit)),
        thread_([this] { watch(); }) {}
  ~SignalThread() override {
    add_one(quit_.fd());
    thread_.join();
  }

  void set_graceful(bool graceful) override { graceful_ = graceful; }
  bool pending() const override { return pending_; }
  int fd() const override { return wake_.fd(); }
  void acknowledge() override {
    std::uint64_t count = 0;
    [[maybe_unused]] const auto taken = ::read(wake_.fd(), &count, sizeof count);
    pending_ = false;
  }

 private:
  void watch() {
    for (;;) {
      pollfd watched[] = {{signals_.fd(), POLLIN, 0}, {quit_.fd(), POLLIN, 0}};
      if (::poll(watched, 2, -1) < 0 && errno != EINTR) {
        return;
      }
      if (watched[1].revents != 0) {
        return;
      }
      signalfd_siginfo info{};
      if (::read(signals_.fd(), &info, sizeof info) != static_cast<ssize_t>(sizeof info)) {
        continue;
      }
      if (!graceful_ || pending_.exchange(true)) {
        ::_exit(static_cast<int>(ExitCode::kFailed));
      }
      add_one(wake_.fd());
    }
  }

  File signals_;
  File wake_;
  File quit_;
  std::atomic<bool> graceful_{false};
  std::atomic<bool> pending_{false};
  std::thread thread_;
};

}  // namespace

Result<std::unique_ptr<Signals>> Signals::open() {
  sigset_t set;
  ::sigemptyset(&set);
  ::sigaddset(&set, SIGINT);
  ::sigaddset(&set, SIGTERM);
  ::pthread_sigmask(SIG_BLOCK, &set, nullptr);
  struct sigaction ignore {};
  ignore.sa_handler = SIG_IGN;
  ::sigaction(SIGPIPE, &ignore, nullptr);
  File signals(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  File wake(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  File quit(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (signals.fd() < 0 || wake.fd() < 0 || quit.fd() < 0) {
    return error(Kind::kInternal,
                 std::string("no descriptor for signals: ") + std::strerror(errno));
  }
  return std::unique_ptr<Signals>(
      std::make_unique<SignalThread>(std::move(signals), std::move(wake), std::move(quit)));
}

}  // namespace troupe::deploy
