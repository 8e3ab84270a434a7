// SimNode: the actors of one node on a SimScheduler, with a fake stage, and a record of what each
// request was told.
#pragma once

#include "actors/protocol.h"
#include "tests/support/fake_stage.h"
#include "tests/world/scheduler.h"

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace troupe {

// A tokenizer's stand-in: every token is one letter.
[[nodiscard]] char letter(std::uint32_t token);
[[nodiscard]] TextStreamFactory letters();

struct Told {
  Request request;
  std::vector<std::uint32_t> tokens;
  std::vector<TokenOutput> outputs;  // the same tokens with their logprobs
  std::vector<TokenOutput> prompt;
  std::string text;
  std::uint32_t ends = 0;
  std::uint32_t late_events = 0;  // after its end
  RequestEvent last;
};

class SimNode final {
 public:
  SimNode(SimScheduler& scheduler,
          const FakeStageOptions& stage,
          const NodeOptions& options,
          TextStreamFactory text = {});
  ~SimNode();  // stops, without which the actor system would wait for ever
  SimNode(const SimNode&) = delete;
  SimNode& operator=(const SimNode&) = delete;

  Result<RequestId> submit(Request request);
  void cancel(RequestId id);
  void close_gate();  // as Node::drain begins
  void stop();        // asks for it; ended() says when
  void kill(const caf::strong_actor_ptr& actor);
  [[nodiscard]] bool ended() const { return *ended_; }
  [[nodiscard]] bool all_told() const;
  [[nodiscard]] NodeStatus status() const { return record_->status(); }
  [[nodiscard]] const FlightRecorder& flight() const { return record_->flight(); }
  [[nodiscard]] const FakeStage& stage() const { return *stage_; }  // while the device actor lives
  [[nodiscard]] const NodeActors& actors() const { return actors_; }
  [[nodiscard]] std::uint32_t inside() const { return gate_->inside(); }

  // What the sink of a request does; public so that a world can tell lies.
  void tell(RequestId id, const RequestEvent& event);
  std::map<RequestId, Told> told;
  std::uint32_t events_after_stop = 0;

 private:
  SimScheduler& scheduler_;
  std::shared_ptr<NodeRecord> record_;
  std::shared_ptr<AdmissionGate> gate_;
  std::shared_ptr<bool> ended_ = std::make_shared<bool>(false);
  FakeStage* stage_ = nullptr;
  NodeActors actors_;
};

}  // namespace troupe
