// What this processor offers to kernel sets, for `troupe devices`. Pure but for reading
// /proc/cpuinfo.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace troupe::deploy {

struct Processor {
  std::string name;                // "AMD EPYC ..."; empty: unknown
  std::vector<std::string> flags;  // as Linux spells them
};

// `text` is that of /proc/cpuinfo; only its first processor is read.
[[nodiscard]] Processor parse_processor(std::string_view text);
[[nodiscard]] Processor read_processor();

// Which of the flags that a kernel set needs are missing. A set that is unknown here needs nothing.
[[nodiscard]] std::vector<std::string_view> missing_flags(std::string_view kernel_set,
                                                          const Processor& processor);

}  // namespace troupe::deploy
