// Profile: where the time of a run went, launch by launch: what `troupe bench --profile` prints and
// `--trace` writes. Filled on the device's thread while steps run, read when none does.
#pragma once

#include "kernels/ops.h"
#include "runtime/base/sources.h"
#include "runtime/program/stage.h"

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace troupe::deploy {

class Profile final {
 public:
  void add(const Stage::LaunchView& launch);

  // Launches of one kernel for the same node of all layers.
  struct Kind {
    std::uint64_t launches = 0;
    Time time{0};
    LaunchWork work;
  };
  using Key = std::pair<Mode, std::string>;  // of the program; "linear layers.*.gdn.qkv"

  // By mode, most time first.
  [[nodiscard]] std::vector<std::pair<Key, Kind>> kinds() const;
  // The same as a table for each mode; bandwidth in bytes/s, 0: unknown.
  [[nodiscard]] std::string text(double bandwidth) const;
  // The Trace Event Format: {"traceEvents": [...]}.
  [[nodiscard]] std::string trace() const;

 private:
  struct Event {
    KernelId kernel;
    std::string node;
    LaunchTime time;
  };

  std::map<Key, Kind> kinds_;
  std::vector<Event> events_;
};

}  // namespace troupe::deploy
