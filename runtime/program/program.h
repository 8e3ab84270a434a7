// Program: one plan, compiled: straight-line launches whose arguments are plain data bound to
// (arena, offset), never pointers. Immutable; runs with any state, because all that varies is the
// StepTable and the arenas' bases in KernelEnv.
//
// PR-1: launches equal the plan's groups, one each, in order; counts() is counted from the
// launches, not copied from the plan. PR-2: run() submits and nothing more: no wait, no copy, no
// allocation.
#pragma once

#include "kernels/ops.h"
#include "runtime/base/error.h"
#include "runtime/circuit/circuit.h"
#include "runtime/circuit/fusion_plan.h"
#include "runtime/circuit/layout.h"
#include "runtime/device/device.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace troupe {

struct Launch {
  KernelId kernel = KernelId::kEmbed;
  std::uint32_t group = 0;        // of the plan
  std::uint32_t args_offset = 0;  // in the program's argument block
  std::uint32_t args_bytes = 0;
};

class Program final {
 public:
  // `blocks`: KV blocks of the arena; `valid`: ids that may be sampled.
  [[nodiscard]] static Result<std::unique_ptr<const Program>> compile(const Circuit& circuit,
                                                                      const FusionPlan& plan,
                                                                      const WeightLayout& weights,
                                                                      const StateLayout& states,
                                                                      std::uint32_t blocks,
                                                                      std::uint32_t valid);

  [[nodiscard]] const PlanShape& shape() const { return shape_; }
  [[nodiscard]] LaunchCounts counts() const;
  [[nodiscard]] std::span<const Launch> launches() const { return launches_; }
  [[nodiscard]] std::span<const std::byte> arguments(const Launch& launch) const;
  [[nodiscard]] std::span<const KernelCall> calls() const { return calls_; }
  [[nodiscard]] std::uint64_t workspace_bytes() const { return workspace_.bytes; }
  [[nodiscard]] const WorkspaceLayout& workspace() const { return workspace_; }
  [[nodiscard]] Ref logits() const { return logits_; }
  // Digest of the plan's text and every launch's arguments (decision D9).
  [[nodiscard]] const std::string& plan_digest() const { return digest_; }
  // One line a launch: kernel, group, argument bytes and their digest.
  [[nodiscard]] std::string text() const;

  // Errors of Device::submit, with the program's mode and rows added.
  Status run(Device& device,
             const KernelEnv& env,
             const LaunchObserver* observer,
             std::function<void(const WorkResult&)>& done) const;

 private:
  Program() = default;
  friend class Emitter;

  PlanShape shape_;
  Activation activation_ = Activation::kBF16;
  std::vector<Launch> launches_;
  std::vector<std::max_align_t> arguments_;
  std::vector<KernelCall> calls_;
  WorkspaceLayout workspace_;
  Ref logits_;
  std::string digest_;
};

}  // namespace troupe
