// Signals: SIGINT and SIGTERM as something to poll for. A thread of its own takes them, so that a
// second one ends the process even while the main thread is stuck in a write. Made once in main,
// before any other thread, and used by the main thread.
//
// SG-1: while not graceful (loading, measuring) the first signal ends the process at once, with
// ExitCode::kFailed. SG-2: while graceful the first signal makes fd() readable; one more before
// acknowledge() ends the process at once. SG-3: SIGPIPE is ignored: writing to a reader that is
// gone is an error of the write.
#pragma once

#include "runtime/base/error.h"

#include <memory>

namespace troupe::deploy {

class Signals {
 public:
  // REQUIRES: no other thread runs yet; those made later never see these signals.
  [[nodiscard]] static Result<std::unique_ptr<Signals>> open();
  virtual ~Signals() = default;

  virtual void set_graceful(bool graceful) = 0;
  [[nodiscard]] virtual bool pending() const = 0;
  [[nodiscard]] virtual int fd() const = 0;  // for poll(): readable while pending()
  virtual void acknowledge() = 0;            // the next signal is a first one again
};

}  // namespace troupe::deploy
