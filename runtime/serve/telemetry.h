// Telemetry: what a node tells about itself, as one value that actors write and anybody reads. A
// reader never waits for an actor, so it gets an answer from a node whose device hangs.
// Thread-safe; owned by the node and shared with its actors.
//
// TE-1: counts only grow; a snapshot is consistent in itself.
// TE-2: whether an actor is stalled is the reader's judgement: `busy` says that it has work, `last`
//       when it last got further with it. Idle is not stalled, busy is not dead.
#pragma once

#include "runtime/base/error.h"
#include "runtime/base/histogram.h"
#include "runtime/base/sources.h"
#include "runtime/serve/planner.h"
#include "runtime/serve/request.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace troupe {

// The gateway's work are messages that it has not taken yet; the coordinator's are requests, and it
// gets further with every step that comes back; the device's are steps.
enum class NodeActor : std::uint8_t { kGateway, kCoordinator, kDevice };

struct ActorProgress {
  std::string actor;  // "gateway", "coordinator", "device", in this order
  bool busy = false;  // it has work that it has not finished
  Time last{0};       // Clock time when it last got further, or got work after having none
};

struct NodeStatus {
  // Requests.
  std::uint32_t waiting = 0;  // admitted and not in a step yet, or preempted
  std::uint32_t running = 0;
  std::uint64_t admitted = 0;
  std::array<std::uint64_t, 4> finished{};  // by FinishReason
  std::array<std::uint64_t, 6> failed{};    // of them, those with kError, by Kind
  std::uint64_t refused_full = 0;           // the queue was full
  std::uint64_t refused_invalid = 0;
  std::uint64_t refused_closed = 0;                // draining, stopped or lost
  SecondsHistogram queue_s{kSecondsBounds};        // admission to first step
  SecondsHistogram first_token_s{kSecondsBounds};  // admission to first token
  SecondsHistogram between_tokens_s{kSecondsBounds};
  SecondsHistogram total_s{kSecondsBounds};
  std::uint64_t prompt_tokens = 0;     // of requests that were admitted
  std::uint64_t generated_tokens = 0;  // handed to clients

  // Steps.
  std::uint64_t steps = 0;  // planned
  std::uint64_t failed_steps = 0;
  std::uint32_t steps_away = 0;
  std::uint32_t last_decode_rows = 0;  // of the last step that came back
  std::uint32_t last_prompt_rows = 0;
  double last_step_s = 0;
  std::uint64_t decode_rows = 0;  // of all that came back
  std::uint64_t prompt_rows = 0;
  RowsHistogram rows{kRowsBounds};
  SecondsHistogram step_s{kSecondsBounds};

  // State.
  PoolUse pages;
  PoolUse blocks;
  std::uint64_t preemptions = 0;
  std::uint64_t recomputed_tokens = 0;  // computed again after a preemption or a failed step
  std::uint64_t imbalances = 0;

  std::vector<ActorProgress> progress;
  std::optional<Error> lost;  // why no more steps will be run
};

class Telemetry final {
 public:
  // Calls `change` with the status under the lock; it must be short.
  template <class Change>
  void update(Change&& change) {
    const std::lock_guard lock(mutex_);
    change(status_);
  }
  [[nodiscard]] NodeStatus snapshot() const {
    const std::lock_guard lock(mutex_);
    return status_;
  }

  // One more piece of work for an actor; some of it got further; one piece is done.
  // REQUIRES: status().progress has the actors.
  void begin_work(NodeActor actor, Time now) {
    const std::lock_guard lock(mutex_);
    if (open_[index(actor)]++ == 0) {
      status_.progress[index(actor)].last = now;
    }
    status_.progress[index(actor)].busy = true;
  }
  void advance_work(NodeActor actor, Time now) {
    const std::lock_guard lock(mutex_);
    status_.progress[index(actor)].last = now;
  }
  void end_work(NodeActor actor, Time now) {
    const std::lock_guard lock(mutex_);
    std::uint64_t& open = open_[index(actor)];
    open -= open > 0 ? 1 : 0;
    status_.progress[index(actor)].busy = open > 0;
    status_.progress[index(actor)].last = now;
  }

 private:
  static std::size_t index(NodeActor actor) { return static_cast<std::size_t>(actor); }

  std::array<std::uint64_t, 3> open_{};
  mutable std::mutex mutex_;
  NodeStatus status_;
};

}  // namespace troupe
