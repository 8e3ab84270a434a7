// Node: the actors of one process behind a plain door. It starts them, hands requests in from any
// thread and stops them in order. CAF does not show here.
//
// ND-1: after stop() returns no sink is called any more and no thread of the node is alive.
// ND-2: every call returns within its deadline.
#pragma once

#include "runtime/base/error.h"
#include "runtime/base/flight_recorder.h"
#include "runtime/base/ids.h"
#include "runtime/base/sources.h"
#include "runtime/device/device.h"
#include "runtime/program/stage.h"
#include "runtime/serve/request.h"
#include "runtime/serve/telemetry.h"

#include <cstdint>
#include <memory>
#include <string>

namespace troupe {

class Tokenizer;

struct NodeOptions {
  std::uint32_t queue_max = 256;      // admitted requests that wait; one more is kOverloaded
  std::uint32_t sequences_max = 64;   // sequences that run at once
  std::uint32_t step_rows_max = 512;  // rows of a step, at most the stage's
  std::uint64_t seed = 0;             // of the Rng that draws seeds of requests without one
  Time step_deadline =
      std::chrono::seconds(120);  // a device that is silent for longer counts as lost
};

class Node {
 public:
  // Takes device and stage: the device actor owns them. `tokenizer` may be null (token ids only),
  // else it and the clock outlive the node.
  [[nodiscard]] static Result<std::unique_ptr<Node>> start(std::unique_ptr<Device> device,
                                                           std::unique_ptr<Stage> stage,
                                                           const Tokenizer* tokenizer,
                                                           const Clock& clock,
                                                           const NodeOptions& options);
  virtual ~Node() = default;  // stops at once if stop() was not called

  // Thread-safe. Errors: kInvalid (check_request, check_lists: names the parameter and the
  // numbers), kOverloaded: the queue is full, later may work; kDisconnected: the node drains, was
  // stopped or lost its device, another one may take it.
  [[nodiscard]] virtual Result<RequestId> submit(Request request, RequestSink sink) = 0;
  // Thread-safe; unknown or finished ids are ignored. The request ends with kCancelled within one
  // step.
  virtual void cancel(RequestId id) = 0;
  // Any thread, also while the device hangs and after stop(): nobody is asked, nothing waits.
  [[nodiscard]] virtual NodeStatus status() const = 0;
  [[nodiscard]] virtual const FlightRecorder& flight() const = 0;

  // Refuses new requests and waits until the admitted ones have ended; then, or at the deadline
  // (kOverloaded, the rest is cancelled), stops everything.
  virtual Status drain(Time deadline) = 0;
  // Cancels everything and stops. Safe to call twice.
  virtual Status stop(Time deadline) = 0;
};

}  // namespace troupe
