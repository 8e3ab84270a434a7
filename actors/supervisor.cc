// The supervisor: watches the actors of a node, tells the others when one dies, stops them in
// order.
#include "actors/protocol.h"

#include <string>
#include <utility>

namespace troupe {

namespace {

struct SupervisorState {
  SupervisorState() {}  // CAF would build an aggregate from the self pointer
  SupervisorState(const SupervisorState&) = delete;
  SupervisorState& operator=(const SupervisorState&) = delete;
  ~SupervisorState() {
    if (on_end) {
      on_end();
    }
  }

  static constexpr const char* name = "supervisor";
  DeviceHandle device;  // these three are empty once dead
  CoordinatorHandle coordinator;
  GatewayHandle gateway;
  std::shared_ptr<AdmissionGate> gate;
  std::function<void()> on_end;
  bool stopping = false;
};
static_assert(!std::is_aggregate_v<SupervisorState>);

using Self = SupervisorHandle::stateful_pointer<SupervisorState>;

// The first of the living is told to go; its death brings the next. A client hears of the end
// before its step is dropped, and the device goes last because steps of others may still run on it.
void stop_next(Self self) {
  auto& state = self->state;
  if (state.gateway) {
    self->send_exit(state.gateway, caf::exit_reason::user_shutdown);
  } else if (state.coordinator) {
    self->send_exit(state.coordinator, caf::exit_reason::user_shutdown);
  } else if (state.device) {
    self->send_exit(state.device, caf::exit_reason::user_shutdown);
  } else {
    self->quit();
  }
}

Error died(Self self, const char* who, const caf::error& reason) {
  return {Kind::kDisconnected,
          std::string("the ") + who + " actor died: " + self->system().render(reason),
          std::source_location::current()};
}

void handle_down(Self self, const caf::down_msg& down) {
  auto& state = self->state;
  if (state.device && down.source == state.device.address()) {
    state.device = nullptr;
    if (!state.stopping && state.coordinator) {
      self->send(state.coordinator, DeviceDown{died(self, "device", down.reason)});
    }
  } else if (state.coordinator && down.source == state.coordinator.address()) {
    state.coordinator = nullptr;
    if (!state.stopping && state.gateway) {
      const Error why = died(self, "coordinator", down.reason);
      state.gate->record().lost(why);
      self->send(state.gateway, StageLost{why});
    }
  } else if (state.gateway && down.source == state.gateway.address()) {
    state.gateway = nullptr;
    const Error why = died(self, "gateway", down.reason);
    if (!state.stopping) {
      state.gate->record().lost(why);
    }
    state.gate->close(why);  // its requests ended with it (AD-1)
    state.stopping = true;
  }
  if (state.stopping) {
    stop_next(self);
  }
}

SupervisorHandle::behavior_type supervisor_actor(Self self,
                                                 const NodeConfig& config,
                                                 const NodeActors& actors) {
  auto& state = self->state;
  state.device = actors.device;
  state.coordinator = actors.coordinator;
  state.gateway = actors.gateway;
  state.gate = config.gate;
  state.on_end = config.on_end;
  self->set_down_handler([self](const caf::down_msg& down) { handle_down(self, down); });
  self->monitor(state.device);
  self->monitor(state.coordinator);
  self->monitor(state.gateway);
  self->send(state.coordinator, Introduce{state.gateway});
  return {
      [self](const StopNode&) {
        if (!self->state.stopping) {
          self->state.stopping = true;
          stop_next(self);
        }
      },
  };
}

}  // namespace

SupervisorHandle spawn_supervisor(caf::actor_system& system,
                                  const NodeConfig& config,
                                  const NodeActors& actors) {
  return system.spawn(supervisor_actor, config, actors);
}

Result<NodeActors> spawn_node(caf::actor_system& system,
                              std::shared_ptr<DeviceParts> parts,
                              const NodeConfig& config) {
  TROUPE_ASSIGN(const auto limits, planner_limits(*parts->stage, config.options));
  NodeActors actors;
  actors.device = spawn_device(system, std::move(parts), config);
  actors.coordinator = spawn_coordinator(system, config, limits, actors.device);
  actors.gateway = spawn_gateway(system, config, actors.coordinator);
  actors.supervisor = spawn_supervisor(system, config, actors);
  return actors;
}

}  // namespace troupe
