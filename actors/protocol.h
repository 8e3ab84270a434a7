// The actors of one process: all their messages, typed handles and spawn functions. Tensors never
// travel in messages; what is large is behind a shared pointer to a constant. Everything here stays
// inside one process, so no message is ever serialised.
//
//   clients' threads --Submit, CancelRequest--> gateway; it answers by calling sinks
//   gateway --Admit, CancelRequest--> coordinator --News, StageLost--> gateway
//   coordinator --CommitStep--> device --StepDone--> coordinator
//   supervisor: monitors the three, tells the neighbours of a dead one, stops them in order.
//
// AC-1: every request that the gateway was handed ends exactly once, whichever actor dies
//       (RQ-1).
// AC-2: the only wait with a partner is CommitStep; its deadline is NodeOptions::step_deadline.
//       All else is one-way.
// AC-3: actors take time from Clock only and, for deadlines, from CAF's clock; randomness from
//       an Rng in their state.
#pragma once

#include "actors/admission.h"
#include "actors/node.h"
#include "actors/node_record.h"
#include "runtime/base/error.h"
#include "runtime/base/ids.h"
#include "runtime/base/sources.h"
#include "runtime/device/device.h"
#include "runtime/program/stage.h"
#include "runtime/serve/planner.h"
#include "runtime/serve/request.h"
#include "runtime/serve/step.h"
#include "runtime/serve/text_stream.h"

#include <caf/all.hpp>

#include <cstdint>
#include <functional>
#include <memory>
#include <type_traits>
#include <vector>

namespace troupe {

// ---- device -------------------------------------------------------------------------------------

// Coordinator -> device, a request: run this step. Answered by StepDone when the step has run or
// was refused: kOverloaded without a free context (the coordinator keeps count, so it does not
// happen), any other error is that step's alone. No answer within the deadline, or the device
// actor's death, means that the device is lost.
struct CommitStep {
  std::shared_ptr<const StepPlan> step;
};
struct StepDone {
  StepId step;
  std::shared_ptr<const StepResult> result;
};

// The device's callback thread -> device actor: a ticket is done. A second report of the same
// ticket is dropped.
struct TicketReport {
  std::shared_ptr<const TicketDone> done;
};

using DeviceHandle =
    caf::typed_actor<caf::replies_to<CommitStep>::with<StepDone>, caf::reacts_to<TicketReport>>;

// ---- gateway ------------------------------------------------------------------------------------

// Any thread -> gateway: a request that has entered the gate. The answer is the events of its sink.
struct Submit {
  std::shared_ptr<OpenRequest> request;
};
// Any thread -> gateway -> coordinator: nobody wants the answer. Unknown and ended ids are ignored.
struct CancelRequest {
  RequestId id;
};
// Coordinator -> gateway: what happened to sequences, in order.
struct News {
  std::shared_ptr<const std::vector<SequenceEvent>> events;
};
// Coordinator or supervisor -> gateway: no more steps will be run. Ends every request and closes
// the gate with this error.
struct StageLost {
  Error why;
};

using GatewayHandle = caf::typed_actor<caf::reacts_to<Submit>,
                                       caf::reacts_to<CancelRequest>,
                                       caf::reacts_to<News>,
                                       caf::reacts_to<StageLost>>;

// ---- stage coordinator --------------------------------------------------------------------------

// Supervisor -> coordinator, first of all: where to send news.
struct Introduce {
  GatewayHandle gateway;
};
// Gateway -> coordinator: a checked request with its seed. What can't be done comes back as News
// that ends it.
struct Admit {
  RequestId id;
  std::shared_ptr<const Request> request;
  std::uint64_t seed = 0;
};
// Supervisor -> coordinator: the device actor has died.
struct DeviceDown {
  Error why;
};

using CoordinatorHandle = caf::typed_actor<caf::reacts_to<Introduce>,
                                           caf::reacts_to<Admit>,
                                           caf::reacts_to<CancelRequest>,
                                           caf::reacts_to<DeviceDown>>;

// ---- supervisor ---------------------------------------------------------------------------------

// Any thread -> supervisor: end all requests with kCancelled, then stop gateway, coordinator and
// device, in this order.
struct StopNode {};

using SupervisorHandle = caf::typed_actor<caf::reacts_to<StopNode>>;

// ---- starting -----------------------------------------------------------------------------------

struct NodeConfig {
  NodeOptions options;
  const Clock* clock = nullptr;  // outlives the actors
  TextStreamFactory text;        // may be empty
  std::shared_ptr<NodeRecord> record;
  std::shared_ptr<AdmissionGate> gate;
  bool detached_device = true;   // false: the device actor is scheduled like any other (simulation)
  std::function<void()> on_end;  // called once, when the supervisor ends
};

// Moved into the device actor, which destroys the stage first. Shared because CAF copies what an
// actor is spawned with.
struct DeviceParts {
  std::unique_ptr<Device> device;
  std::unique_ptr<Stage> stage;
};

struct NodeActors {
  DeviceHandle device;
  CoordinatorHandle coordinator;
  GatewayHandle gateway;
  SupervisorHandle supervisor;
};

// Limits of a planner for this stage; kInvalid names what does not fit together, kUnsupported a
// stage that can't run un-waited commits.
[[nodiscard]] Result<PlannerLimits> planner_limits(Stage& stage, const NodeOptions& options);

[[nodiscard]] DeviceHandle spawn_device(caf::actor_system& system,
                                        std::shared_ptr<DeviceParts> parts,
                                        const NodeConfig& config);
[[nodiscard]] CoordinatorHandle spawn_coordinator(caf::actor_system& system,
                                                  const NodeConfig& config,
                                                  const PlannerLimits& limits,
                                                  const DeviceHandle& device);
[[nodiscard]] GatewayHandle spawn_gateway(caf::actor_system& system,
                                          const NodeConfig& config,
                                          const CoordinatorHandle& coordinator);
[[nodiscard]] SupervisorHandle spawn_supervisor(
    caf::actor_system& system,
    const NodeConfig& config,
    const NodeActors& actors);  // all but the supervisor

// All of them, on the thread that made the system.
[[nodiscard]] Result<NodeActors> spawn_node(caf::actor_system& system,
                                            std::shared_ptr<DeviceParts> parts,
                                            const NodeConfig& config);

}  // namespace troupe

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::CommitStep)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::StepDone)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::TicketReport)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::Submit)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::CancelRequest)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::News)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::StageLost)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::Introduce)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::Admit)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::DeviceDown)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::StopNode)
