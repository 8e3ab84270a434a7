// How many connections the system's limit of open files leaves to `troupe serve`. Main thread.
#pragma once

#include "runtime/base/error.h"

#include <cstdint>

namespace troupe::deploy {

// Connections of the public listener; each is an open file.
struct ConnectionShare {
  std::uint32_t connections = 0;  // served at once
  std::uint32_t refused = 0;      // told at once that there are too many
};

// What fits into `files` open ones when `wanted` connections were asked for. kInvalid: too few for
// any.
[[nodiscard]] Result<ConnectionShare> share_files(std::uint64_t files, std::uint32_t wanted);

// Raises the soft limit of open files (ulimit -Sn) to what `wanted` connections need beside the
// files that are open now and a reserve, up to the hard one. Logs a warning when that is too few.
// kInvalid: too few for any connection.
[[nodiscard]] Result<ConnectionShare> make_room_for(std::uint32_t wanted);

}  // namespace troupe::deploy
