#include "runtime/base/flight_recorder.h"

#include <algorithm>
#include <cstdio>

namespace troupe {
namespace {

// What a and b are called; empty: not shown.
struct Labels {
  std::string_view name, a, b;
};

Labels labels(FlightKind kind) {
  switch (kind) {
    case FlightKind::kAdmitted:
      return {"admitted", "prompt_tokens", "max_tokens"};
    case FlightKind::kRefused:
      return {"refused", "inside", "limit"};
    case FlightKind::kCancelled:
      return {"cancelled", {}, {}};
    case FlightKind::kPreempted:
      return {"preempted", "tokens", {}};
    case FlightKind::kFinished:
      return {"finished", "reason", "tokens"};
    case FlightKind::kStepPlanned:
      return {"step_planned", "decode_rows", "prompt_rows"};
    case FlightKind::kStepDone:
      return {"step_done", "us", "failed"};
    case FlightKind::kLost:
      break;
  }
  return {"lost", {}, {}};
}

void add(std::string& line, std::string_view key, std::uint64_t value) {
  if (!key.empty()) {
    line += ",\"" + std::string(key) + "\":" + std::to_string(value);
  }
}

std::string lines_of(const std::vector<FlightEvent>& events) {
  std::string text;
  for (const auto& event : events) {
    const Labels label = labels(event.kind);
    std::array<char, 64> head{};
    const double at = in_seconds(event.at);
    static_cast<void>(std::snprintf(head.data(), head.size(), "{\"at_s\":%.6f,\"event\":\"", at));
    std::string line = head.data();
    line += std::string(label.name) + "\",\"id\":" + std::to_string(event.id);
    add(line, label.a, event.a);
    add(line, label.b, event.b);
    text += line + "}\n";
  }
  return text;
}

}  // namespace

std::string_view name(FlightKind kind) {
  return labels(kind).name;
}

void FlightRecorder::record(const FlightEvent& event) {
  const std::lock_guard lock(mutex_);
  ring_[recorded_++ % kEvents] = event;
}

std::vector<FlightEvent> FlightRecorder::newest(std::size_t count) const {
  const std::uint64_t known = std::min<std::uint64_t>({recorded_, kEvents, count});
  std::vector<FlightEvent> out;
  out.reserve(known);
  for (std::uint64_t i = recorded_ - known; i < recorded_; ++i) {
    out.push_back(ring_[i % kEvents]);
  }
  return out;
}

std::vector<FlightEvent> FlightRecorder::events() const {
  const std::lock_guard lock(mutex_);
  return newest(kEvents);
}

std::uint64_t FlightRecorder::dropped() const {
  const std::lock_guard lock(mutex_);
  return recorded_ > kEvents ? recorded_ - kEvents : 0;
}

std::string FlightRecorder::json_lines() const {
  return lines_of(events());
}

void FlightRecorder::print_newest(std::size_t count) const {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (lock.owns_lock()) {
    const std::string text = lines_of(newest(count));
    std::fwrite(text.data(), 1, text.size(), stderr);
  }
}

}  // namespace troupe
