#include "actors/node_record.h"

#include <chrono>

namespace troupe {

namespace {

double seconds(std::int64_t ns) {
  return in_seconds(Time(ns));
}

}  // namespace

NodeRecord::NodeRecord(const Clock& clock) : clock_(clock) {
  telemetry_.update([now = clock.now()](NodeStatus& status) {
    for (const char* actor : {"gateway", "coordinator", "device"}) {  // in NodeActor's order
      status.progress.push_back({.actor = actor, .last = now});
    }
  });
}

void NodeRecord::note(FlightKind kind, std::uint64_t id, std::uint64_t a, std::uint64_t b) {
  flight_.record({.at = clock_.now(), .kind = kind, .id = id, .a = a, .b = b});
}

void NodeRecord::admitted(RequestId id, const Request& request) {
  telemetry_.update([&request](NodeStatus& status) {
    ++status.admitted;
    status.prompt_tokens += request.prompt.size();
  });
  note(FlightKind::kAdmitted, id.value, request.prompt.size(), request.max_tokens);
}

void NodeRecord::refused_invalid() {
  telemetry_.update([](NodeStatus& status) { ++status.refused_invalid; });
}

void NodeRecord::refused_full(std::uint32_t inside, std::uint32_t limit) {
  telemetry_.update([](NodeStatus& status) { ++status.refused_full; });
  note(FlightKind::kRefused, 0, inside, limit);
}

void NodeRecord::refused_closed() {
  telemetry_.update([](NodeStatus& status) { ++status.refused_closed; });
}

void NodeRecord::cancelled(RequestId id) {
  note(FlightKind::kCancelled, id.value);
}

void NodeRecord::first_tokens(const RequestStats& stats) {
  telemetry_.update([&stats](NodeStatus& status) {
    status.queue_s.add(seconds(stats.queue_ns));
    status.first_token_s.add(seconds(stats.first_token_ns));
  });
}

void NodeRecord::tokens(std::size_t count, Time since_last) {
  telemetry_.update([count, since_last](NodeStatus& status) {
    status.generated_tokens += count;
    if (count > 0 && since_last > Time{0}) {
      status.between_tokens_s.add(in_seconds(since_last) / static_cast<double>(count), count);
    }
  });
}

void NodeRecord::finished(const RequestEvent& last) {
  const auto reason = static_cast<std::size_t>(last.reason);
  telemetry_.update([&last, reason](NodeStatus& status) {
    ++status.finished[reason];
    if (last.reason == FinishReason::kError) {
      const Kind kind = last.failure ? last.failure->kind : Kind::kInternal;
      ++status.failed[static_cast<std::size_t>(kind)];
    }
    status.total_s.add(seconds(last.stats.total_ns));
  });
  note(FlightKind::kFinished, last.id.value, reason, last.stats.generated_tokens);
}

void NodeRecord::planned(const StepPlan& step) {
  for (const auto& [id, tokens] : step.preempted) {
    note(FlightKind::kPreempted, id.value, tokens);
  }
  if (!step.empty()) {
    note(FlightKind::kStepPlanned,
         step.id.value,
         step.decode_rows,
         step.tokens.size() - step.decode_rows);
  }
}

void NodeRecord::done(StepId step, StepRows rows, const StepResult& result) {
  telemetry_.update([rows, &result](NodeStatus& status) {
    status.last_decode_rows = rows.decode;
    status.last_prompt_rows = rows.prompt;
    status.last_step_s = in_seconds(result.duration);
    status.decode_rows += rows.decode;
    status.prompt_rows += rows.prompt;
    status.rows.add(rows.decode + rows.prompt);
    status.step_s.add(status.last_step_s);
  });
  const auto us = std::chrono::duration_cast<std::chrono::microseconds>(result.duration).count();
  note(FlightKind::kStepDone,
       step.value,
       static_cast<std::uint64_t>(us),
       result.status.has_value() ? 0 : 1);
}

void NodeRecord::planner(const PlannerStatus& planner) {
  telemetry_.update([&planner](NodeStatus& status) {
    status.waiting = planner.waiting;
    status.running = planner.running;
    status.steps = planner.steps;
    status.failed_steps = planner.failed_steps;
    status.steps_away = planner.steps_away;
    status.pages = planner.pages;
    status.blocks = planner.blocks;
    status.preemptions = planner.preemptions;
    status.recomputed_tokens = planner.recomputed_tokens;
    status.imbalances = planner.imbalances;
  });
}

void NodeRecord::lost(const Error& why) {
  bool first = false;
  telemetry_.update([&why, &first](NodeStatus& status) {
    first = !status.lost;
    if (first) {
      status.lost.emplace(why);
    }
  });
  if (first) {
    note(FlightKind::kLost, 0);
  }
}

void NodeRecord::begin_work(NodeActor actor) {
  telemetry_.begin_work(actor, clock_.now());
}

void NodeRecord::advance_work(NodeActor actor) {
  telemetry_.advance_work(actor, clock_.now());
}

void NodeRecord::end_work(NodeActor actor) {
  telemetry_.end_work(actor, clock_.now());
}

}  // namespace troupe
