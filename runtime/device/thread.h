// A thread whose start can fail without an exception: a process at its limit of threads gets an
// error that says so.
#pragma once

#include "runtime/base/error.h"
#include "runtime/base/sources.h"

#include <functional>
#include <pthread.h>
#include <string>

namespace troupe {

// Owned by one thread, which starts it at most once. The destructor joins, so the body must be told
// to end before.
class Thread final {
 public:
  Thread() = default;
  ~Thread() { join(); }
  Thread(const Thread&) = delete;
  Thread& operator=(const Thread&) = delete;

  // `name` (shown by top and gdb) is cut to 15 characters. kOverloaded when the system gives no
  // thread.
  [[nodiscard]] Status start(const std::string& name, std::function<void()> body);
  void join();

  // Processor time the thread has had; 0 when it never started. Any thread, before join().
  [[nodiscard]] Time processor_time() const;

 private:
  pthread_t handle_{};
  bool running_ = false;
};

}  // namespace troupe
