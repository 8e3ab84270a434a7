// The device actor: owns a Device and its Stage, keeps the table of tickets, and turns the device's
// callbacks into messages. It never computes and never waits, but for its end.
#include "actors/protocol.h"

#include <chrono>
#include <map>
#include <string>
#include <utility>

namespace troupe {

namespace {

constexpr Time kEndPatience = std::chrono::seconds(5);

struct Pending {
  StepId step;
  caf::typed_response_promise<StepDone> answer;
};

struct DeviceState {
  DeviceState() {}  // CAF would build an aggregate from the self pointer
  DeviceState(const DeviceState&) = delete;
  DeviceState& operator=(const DeviceState&) = delete;
  ~DeviceState() {
    if (pipeline != nullptr && !open.empty() && !pipeline->sync_pending(kEndPatience)) {
      // Work that hangs may still write to the stage's memory, so it is left behind rather than
      // freed under it.
      static_cast<void>(stage.release());
      static_cast<void>(device.release());
    }
  }

  static constexpr const char* name = "device";
  std::unique_ptr<Device> device;
  std::unique_ptr<Stage> stage;  // after the device: goes first
  AsyncPipeline* pipeline = nullptr;
  std::shared_ptr<NodeRecord> record;
  std::map<TicketId, Pending> open;
};
static_assert(!std::is_aggregate_v<DeviceState>);

StepDone refused(StepId step, Error why) {
  StepResult result;
  result.status = tl::unexpected(std::move(why));
  return {step, std::make_shared<const StepResult>(std::move(result))};
}

// Results are copied out, so the ticket's context is free before the coordinator hears of it.
StepDone collect(AsyncPipeline& pipeline, StepId step, const TicketDone& done) {
  StepResult result;
  result.status = done.status;
  result.duration = done.duration;
  if (const auto outputs = pipeline.outputs(done.ticket)) {
    result.results.assign(outputs->results.begin(), outputs->results.end());
  } else if (result.status) {
    result.status = tl::unexpected(outputs.error());
  }
  if (const Status released = pipeline.release(done.ticket); !released && result.status) {
    result.status = released;
  }
  return {step, std::make_shared<const StepResult>(std::move(result))};
}

DeviceHandle::behavior_type device_actor(DeviceHandle::stateful_pointer<DeviceState> self,
                                         const std::shared_ptr<DeviceParts>& parts,
                                         const std::shared_ptr<NodeRecord>& record) {
  auto& state = self->state;
  state.record = record;
  state.device = std::move(parts->device);
  state.stage = std::move(parts->stage);
  state.pipeline = state.stage->executable().query<AsyncPipeline>();
  // Weak: a callback must not keep a dead actor, and with it a dead actor system, alive.
  state.pipeline->set_completion(
      [weak = caf::weak_actor_ptr(self->ctrl())](const TicketDone& done) {
        if (const auto actor = caf::actor_cast<caf::actor>(weak)) {
          caf::anon_send(actor, TicketReport{std::make_shared<const TicketDone>(done)});
        }
      });
  self->set_exit_handler([self](caf::exit_msg& message) {
    for (auto& [ticket, pending] : self->state.open) {
      pending.answer.deliver(refused(pending.step,
                                     Error{Kind::kDisconnected,
                                           "the device is being stopped",
                                           std::source_location::current()}));
    }
    self->quit(message.reason);
  });
  return {
      [self](const CommitStep& message) -> caf::result<StepDone> {
        auto answer = self->make_response_promise<StepDone>();
        self->state.record->begin_work(NodeActor::kDevice);
        const auto ticket = self->state.pipeline->commit_no_wait(message.step->inputs());
        if (ticket) {
          self->state.open.emplace(*ticket, Pending{message.step->id, answer});
        } else {
          self->state.record->end_work(NodeActor::kDevice);
          answer.deliver(refused(message.step->id, ticket.error()));
        }
        return answer;
      },
      [self](const TicketReport& message) {
        auto& open = self->state.open;
        if (const auto found = open.find(message.done->ticket); found != open.end()) {
          Pending pending = std::move(found->second);
          open.erase(found);
          self->state.record->end_work(NodeActor::kDevice);
          pending.answer.deliver(collect(*self->state.pipeline, pending.step, *message.done));
        }
      },
  };
}

}  // namespace

DeviceHandle spawn_device(caf::actor_system& system,
                          std::shared_ptr<DeviceParts> parts,
                          const NodeConfig& config) {
  return config.detached_device
             ? system.spawn<caf::detached>(device_actor, std::move(parts), config.record)
             : system.spawn(device_actor, std::move(parts), config.record);
}

}  // namespace troupe
