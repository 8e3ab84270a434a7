#include "runtime/base/error.h"

#include "runtime/base/check_hook.h"

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <vector>

namespace troupe {

std::string_view name(Kind kind) {
  switch (kind) {
    case Kind::kInvalid:
      return "invalid";
    case Kind::kUnsupported:
      return "unsupported";
    case Kind::kOverloaded:
      return "overloaded";
    case Kind::kCancelled:
      return "cancelled";
    case Kind::kDisconnected:
      return "disconnected";
    case Kind::kInternal:
      return "internal";
  }
  return "unknown";
}

tl::unexpected<Error> error(Kind kind, std::string message, std::source_location where) {
  return tl::unexpected<Error>(Error{kind, std::move(message), where});
}

namespace {

// The one thing that a process has only one of: a bug anywhere must find those who can tell what
// led there, and it has no way to be handed them.
struct Hooks {
  std::timed_mutex mutex;
  std::vector<const CheckHook*> all;
};

Hooks& hooks() {
  static Hooks instance;
  return instance;
}

constexpr std::chrono::milliseconds kPatience(200);

}  // namespace

CheckHook::CheckHook(std::function<void()> print) : print_(std::move(print)) {
  const std::lock_guard lock(hooks().mutex);
  hooks().all.push_back(this);
}

CheckHook::~CheckHook() {
  const std::lock_guard lock(hooks().mutex);
  std::erase(hooks().all, this);
}

void check_failed(const char* condition, std::string_view detail, std::source_location where) {
  std::fprintf(stderr,
               "troupe: bug at %s:%u: check `%s` failed%s%.*s\n",
               where.file_name(),
               static_cast<unsigned>(where.line()),
               condition,
               detail.empty() ? "" : ": ",
               static_cast<int>(detail.size()),
               detail.data());
  std::fflush(stderr);
  // A hook that has a bug itself, or whose owner is going away meanwhile, does not keep the
  // process.
  static std::atomic_flag failing;
  if (!failing.test_and_set() && hooks().mutex.try_lock_for(kPatience)) {
    for (const CheckHook* hook : hooks().all) {
      hook->print();
    }
    std::fflush(stderr);
  }
  std::abort();
}

}  // namespace troupe
