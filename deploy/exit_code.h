// The exit codes of the program, which scripts and supervisors act on. Pure; any thread.
#pragma once

#include "runtime/base/error.h"

#include <string>

namespace troupe::deploy {

enum class ExitCode : int {
  kDone = 0,
  kFailed = 1,        // also: stopped by a signal before it was done
  kUsage = 2,         // bad usage or configuration: trying again is useless
  kRefused = 3,       // a limit was reached
  kTimedOut = 4,      // somebody was silent for too long
  kIncompatible = 5,  // the other side speaks another version or serves another model
  kPeerLost = 6,      // a device or another node is gone
};

// What an error means to whoever started the program.
[[nodiscard]] ExitCode exit_code(Kind kind);

// "troupe: MESSAGE" on standard error.
void print_error(const std::string& message);

}  // namespace troupe::deploy
