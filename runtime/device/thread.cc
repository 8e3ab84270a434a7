#include "runtime/device/thread.h"

#include <chrono>
#include <cstring>
#include <ctime>
#include <memory>
#include <utility>

namespace troupe {

namespace {

void* run_body(void* argument) {
  const std::unique_ptr<std::function<void()>> body(static_cast<std::function<void()>*>(argument));
  (*body)();
  return nullptr;
}

}  // namespace

Status Thread::start(const std::string& name, std::function<void()> body) {
  TROUPE_CHECK(!running_, "a Thread is started once");
  auto owned = std::make_unique<std::function<void()>>(std::move(body));
  const int code = pthread_create(&handle_, nullptr, run_body, owned.get());
  if (code != 0) {
    return error(Kind::kOverloaded,
                 "no thread for " + name + ": " + std::strerror(code) +
                     "; use fewer threads or raise the limit on tasks (ulimit -u, pids.max)");
  }
  (void)owned.release();  // run_body owns it now
  running_ = true;
  (void)pthread_setname_np(handle_, name.substr(0, 15).c_str());
  return {};
}

Time Thread::processor_time() const {
  clockid_t clock{};
  timespec used{};
  if (!running_ || pthread_getcpuclockid(handle_, &clock) != 0 ||
      clock_gettime(clock, &used) != 0) {
    return Time{0};
  }
  return std::chrono::seconds(used.tv_sec) + Time(used.tv_nsec);
}

void Thread::join() {
  if (running_) {
    running_ = false;
    (void)pthread_join(handle_, nullptr);
  }
}

}  // namespace troupe
