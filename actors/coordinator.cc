// The stage coordinator: the step loop. Feeds the planner with requests and with what comes back
// from the device, sends every step that can be planned, and passes the planner's news on.
#include "actors/protocol.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

namespace troupe {

namespace {

struct CoordinatorState {
  CoordinatorState() {}  // CAF would build an aggregate from the self pointer

  static constexpr const char* name = "coordinator";
  const Clock* clock = nullptr;
  Time deadline{0};
  DeviceHandle device;
  GatewayHandle gateway;
  std::unique_ptr<StepPlanner> planner;
  std::shared_ptr<NodeRecord> record;
  std::map<StepId, NodeRecord::StepRows> away;
  std::optional<Error> lost;
};
static_assert(!std::is_aggregate_v<CoordinatorState>);

using Self = CoordinatorHandle::stateful_pointer<CoordinatorState>;

void tell(Self self, std::vector<SequenceEvent> events) {
  auto& state = self->state;
  state.record->planner(state.planner->status());
  for (const SequenceEvent& event : events) {
    if (event.finished) {
      state.record->end_work(NodeActor::kCoordinator);
    }
  }
  if (!events.empty() && state.gateway) {
    state.record->begin_work(NodeActor::kGateway);
    self->send(state.gateway,
               News{std::make_shared<const std::vector<SequenceEvent>>(std::move(events))});
  }
}

SequenceEvent refusal(RequestId id, Error why, Time now) {
  SequenceEvent event;
  event.id = id;
  event.finished = true;
  event.reason = FinishReason::kError;
  event.failure = std::move(why);
  event.first_step = now;
  return event;
}

void lose_device(Self self, Error why) {
  auto& state = self->state;
  if (state.lost) {
    return;
  }
  state.lost = std::move(why);
  state.record->lost(*state.lost);
  state.planner->abort(*state.lost);
  tell(self, state.planner->take_events());
  if (state.gateway) {
    self->send(state.gateway, StageLost{*state.lost});
  }
}

void pump(Self self);

void land(Self self, const StepDone& done) {
  auto& state = self->state;
  if (state.lost) {
    return;
  }
  if (!done.result->status && done.result->status.error().kind == Kind::kDisconnected) {
    lose_device(self, done.result->status.error());
    return;
  }
  if (const auto found = state.away.find(done.step); found != state.away.end()) {
    state.record->done(done.step, found->second, *done.result);
    state.record->advance_work(NodeActor::kCoordinator);
    state.away.erase(found);
  }
  // A stale step is refused by the planner and changes nothing; there is nobody to tell.
  const Status taken = done.result->status
                           ? state.planner->complete(done.step, done.result->results)
                           : state.planner->fail(done.step, done.result->status.error());
  static_cast<void>(taken.has_value());
  pump(self);
}

std::string silence(Self self, StepId step, const caf::error& why) {
  const auto ms =
      std::chrono::duration_cast<std::chrono::milliseconds>(self->state.deadline).count();
  return "the device did not answer for step " + std::to_string(step.value) + " within " +
         std::to_string(ms) + " ms (" + self->system().render(why) + "); it counts as lost";
}

// Sends what can be planned, then the news: devices wait for nobody.
void pump(Self self) {
  auto& state = self->state;
  while (!state.lost) {
    StepPlan plan = state.planner->plan(state.clock->now());
    state.record->planned(plan);
    if (plan.empty()) {
      break;
    }
    const StepId step = plan.id;
    const auto rows = static_cast<std::uint32_t>(plan.tokens.size());
    state.away[step] = {plan.decode_rows, rows - plan.decode_rows};
    self->request(state.device,
                  std::chrono::duration_cast<std::chrono::milliseconds>(state.deadline),
                  CommitStep{std::make_shared<const StepPlan>(std::move(plan))})
        .then([self](const StepDone& done) { land(self, done); },
              [self, step](caf::error& why) {
                lose_device(self,
                            Error{Kind::kDisconnected,
                                  silence(self, step, why),
                                  std::source_location::current()});
              });
  }
  tell(self, state.planner->take_events());
}

void admit(Self self, const Admit& message) {
  auto& state = self->state;
  const Time now = state.clock->now();
  if (state.lost) {
    tell(self, {refusal(message.id, *state.lost, now)});
  } else if (const Status added =
                 state.planner->add(message.id, message.request, message.seed, now);
             !added) {
    tell(self, {refusal(message.id, added.error(), now)});
  } else {
    pump(self);
  }
}

CoordinatorHandle::behavior_type coordinator_actor(Self self,
                                                   const NodeConfig& config,
                                                   const PlannerLimits& limits,
                                                   const DeviceHandle& device) {
  auto& state = self->state;
  state.clock = config.clock;
  state.deadline = config.options.step_deadline;
  state.device = device;
  state.planner = std::make_unique<StepPlanner>(limits);
  state.record = config.record;
  state.record->planner(state.planner->status());
  self->set_exit_handler([self](caf::exit_msg& message) {
    auto& planner = *self->state.planner;
    planner.abort(
        Error{Kind::kCancelled, "the node is being stopped", std::source_location::current()});
    self->state.record->planner(planner.status());
    self->quit(message.reason);
  });
  return {
      [self](const Introduce& message) { self->state.gateway = message.gateway; },
      [self](const Admit& message) { admit(self, message); },
      [self](const CancelRequest& message) {
        self->state.planner->cancel(message.id);
        pump(self);
      },
      [self](const DeviceDown& message) { lose_device(self, message.why); },
  };
}

}  // namespace

Result<PlannerLimits> planner_limits(Stage& stage, const NodeOptions& options) {
  const StageInfo& info = stage.info();
  auto* pipeline = stage.executable().query<AsyncPipeline>();
  if (pipeline == nullptr) {
    return error(Kind::kUnsupported,
                 "the stage's executable has no AsyncPipeline; the step loop needs one");
  }
  if (options.sequences_max == 0 || options.step_rows_max == 0 || options.queue_max == 0 ||
      options.step_deadline < std::chrono::milliseconds(1)) {
    return error(Kind::kInvalid,
                 "sequences_max, step_rows_max, queue_max and step_deadline must be positive");
  }
  if (info.ledger.pages < 2 || info.ledger.blocks == 0) {
    return error(Kind::kInvalid,
                 "the stage has " + std::to_string(info.ledger.pages) + " pages and " +
                     std::to_string(info.ledger.blocks) +
                     " KV blocks; at least the zero page, one page and one block are needed");
  }
  PlannerLimits limits;
  limits.pages = info.ledger.pages;
  limits.blocks = info.ledger.blocks;
  limits.step_rows_max = std::min(options.step_rows_max, info.max_rows);
  // Half of every step's rows and one state page are left to prompts, however many answers are
  // being written: without a page to write a chunk to, a prompt would be read one row at a time.
  limits.sequences_max = std::min({options.sequences_max,
                                   std::max(limits.step_rows_max / 2, 1U),
                                   std::max(info.ledger.pages - 2, 1U),
                                   info.max_segments,
                                   info.max_sampled});
  limits.sampled_rows_max = info.max_sampled;
  limits.values_max = info.max_values;
  limits.steps_max = std::min(pipeline->depth(), 2U);
  limits.vocab = info.vocab;
  if (limits.sequences_max == 0 || limits.steps_max == 0) {
    return error(Kind::kInvalid,
                 "the stage allows no rows, segments, sampled rows or un-waited commits");
  }
  return limits;
}

CoordinatorHandle spawn_coordinator(caf::actor_system& system,
                                    const NodeConfig& config,
                                    const PlannerLimits& limits,
                                    const DeviceHandle& device) {
  return system.spawn(coordinator_actor, config, limits, device);
}

}  // namespace troupe
