// What this process may use of the machine: its processors and its memory, after affinity masks and
// control groups (v1 and v2). Read once when a device is made; any thread.
#pragma once

#include <cstdint>
#include <string>

namespace troupe {

struct SystemLimits {
  // Those of the affinity mask, but no more than the quota's whole processors; at least 1.
  std::uint32_t processors = 1;
  std::uint64_t available_bytes = 0;  // MemAvailable, or less where a control group leaves less
};

// `root` is put before /proc and /sys: tests give a folder of their own. Files that can't be read
// limit nothing; without meminfo 0 bytes are available.
[[nodiscard]] SystemLimits read_system_limits(const std::string& root = "");

}  // namespace troupe
