// NodeRecord: what a node tells about itself and remembers: telemetry and flight recorder, written
// by its door and its actors, read by anybody. Thread-safe; nobody waits for an actor.
#pragma once

#include "runtime/base/error.h"
#include "runtime/base/flight_recorder.h"
#include "runtime/base/sources.h"
#include "runtime/serve/planner.h"
#include "runtime/serve/request.h"
#include "runtime/serve/step.h"
#include "runtime/serve/telemetry.h"

#include <cstdint>

namespace troupe {

class NodeRecord final {
 public:
  explicit NodeRecord(const Clock& clock);  // the clock outlives the record

  [[nodiscard]] NodeStatus status() const { return telemetry_.snapshot(); }
  [[nodiscard]] const FlightRecorder& flight() const { return flight_; }

  void admitted(RequestId id, const Request& request);
  void refused_invalid();
  void refused_full(std::uint32_t inside, std::uint32_t limit);
  void refused_closed();
  void cancelled(RequestId id);
  void first_tokens(const RequestStats& stats);
  void tokens(std::size_t count, Time since_last);  // since_last of 0: the first ones
  void finished(const RequestEvent& last);

  void planned(const StepPlan& step);
  // What came back, of a step that had these rows.
  struct StepRows {
    std::uint32_t decode = 0;
    std::uint32_t prompt = 0;
  };
  void done(StepId step, StepRows rows, const StepResult& result);
  void planner(const PlannerStatus& status);
  void lost(const Error& why);  // the first reason stays

  // One more piece of work for an actor; some of it got further; one piece is done.
  void begin_work(NodeActor actor);
  void advance_work(NodeActor actor);
  void end_work(NodeActor actor);

 private:
  void note(FlightKind kind, std::uint64_t id, std::uint64_t a = 0, std::uint64_t b = 0);

  const Clock& clock_;
  Telemetry telemetry_;
  FlightRecorder flight_;
};

}  // namespace troupe
