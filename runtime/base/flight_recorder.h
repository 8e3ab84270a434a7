// FlightRecorder: the last events of a node in a ring of fixed size, for whoever asks what happened
// before a fault. Thread-safe; recording costs a lock and a copy of one small struct, and nothing
// is allocated.
//
// FR-1: the ring holds the newest kEvents; older ones are gone, and `dropped` says how many.
#pragma once

#include "runtime/base/sources.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

enum class FlightKind : std::uint8_t {
  kAdmitted,     // request; a: prompt tokens, b: most tokens of the answer
  kRefused,      // a: requests inside, b: at most
  kCancelled,    // request
  kPreempted,    // request; a: tokens to compute again
  kFinished,     // request; a: FinishReason, b: tokens of the answer
  kStepPlanned,  // step; a: decode rows, b: prompt rows
  kStepDone,     // step; a: microseconds, b: 0 good, 1 failed
  kLost,         // no more steps will be run
};
[[nodiscard]] std::string_view name(FlightKind kind);  // "admitted", ...

struct FlightEvent {
  Time at{0};
  FlightKind kind = FlightKind::kAdmitted;
  std::uint64_t id = 0;  // request or step
  std::uint64_t a = 0;
  std::uint64_t b = 0;
};

class FlightRecorder final {
 public:
  static constexpr std::size_t kEvents = 4096;

  void record(const FlightEvent& event);
  [[nodiscard]] std::vector<FlightEvent> events() const;  // oldest first
  [[nodiscard]] std::uint64_t dropped() const;
  // One JSON object a line, oldest first: {"at_s": ..., "event": "...", "id": ..., ...}.
  [[nodiscard]] std::string json_lines() const;
  // The newest ones on stderr, for a process that ends: without them if a thread is just recording.
  void print_newest(std::size_t count) const;

 private:
  [[nodiscard]] std::vector<FlightEvent> newest(std::size_t count) const;  // REQUIRES: mutex_ held

  mutable std::mutex mutex_;
  std::array<FlightEvent, kEvents> ring_{};
  std::uint64_t recorded_ = 0;
};

}  // namespace troupe
