// Output: results go to standard output through this and nothing else does. Writes at once, so that
// an answer streams. Main thread.
//
// OU-1: a reader that takes nothing delays us for as long as it likes, but no longer than a second
// once a signal is pending.
#pragma once

#include "deploy/signals.h"
#include "runtime/base/error.h"

#include <string_view>

namespace troupe::deploy {

class Output final {
 public:
  // `signals` may be null: then a slow reader is waited for without end.
  Output(int fd, const Signals* signals) : fd_(fd), signals_(signals) {}

  // kCancelled: the reader took nothing for a second after a signal, or is gone: end quietly.
  // kInternal: the disk is full and such.
  Status write(std::string_view text);
  // The reader is gone: nobody wants the rest.
  [[nodiscard]] bool closed() const { return closed_; }

 private:
  Status wait_writable();

  int fd_;
  const Signals* signals_;
  bool closed_ = false;
};

}  // namespace troupe::deploy
