#include "deploy/exit_code.h"

#include <cstdio>

namespace troupe::deploy {

ExitCode exit_code(Kind kind) {
  switch (kind) {
    case Kind::kInvalid:
    case Kind::kUnsupported:
      return ExitCode::kUsage;
    case Kind::kOverloaded:
      return ExitCode::kRefused;
    case Kind::kDisconnected:
      return ExitCode::kPeerLost;
    case Kind::kCancelled:
    case Kind::kInternal:
      return ExitCode::kFailed;
  }
  return ExitCode::kFailed;
}

void print_error(const std::string& message) {
  std::fprintf(stderr, "troupe: %s\n", message.c_str());
}

}  // namespace troupe::deploy
