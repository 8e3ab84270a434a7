// How fast this machine's memory can be read, as the yardstick for a decode rate. Main thread;
// takes about a second.
#pragma once

#include "runtime/base/error.h"
#include "runtime/base/sources.h"
#include "runtime/device/device.h"

#include <cstdint>

namespace troupe::deploy {

// Bytes a second: all workers of the device read their parts of one buffer that no cache holds, the
// best of several passes. kOverloaded: too little memory for the buffer. REQUIRES: nothing is
// submitted meanwhile.
[[nodiscard]] Result<double> read_bandwidth(Device& device, const Clock& clock);

}  // namespace troupe::deploy
