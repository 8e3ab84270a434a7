// StagePlans: every plan of a stage, its layouts, ledger and arithmetic digest: all that is decided
// before memory is allocated or a weight is read. What `troupe plan` prints. Pure.
#pragma once

#include "runtime/base/error.h"
#include "runtime/circuit/circuit.h"
#include "runtime/circuit/fusion_plan.h"
#include "runtime/circuit/layout.h"
#include "runtime/program/stage.h"

#include <bitset>
#include <cstdint>
#include <string>
#include <vector>

namespace troupe {

struct StagePlans {
  Circuit circuit;
  std::vector<FusionPlan> decode;  // the decode ladder, by rising rows
  std::vector<FusionPlan> rows;    // the row buckets, by rising rows
  WeightLayout weights;
  StateLayout states;
  StageInfo info;  // plan_digest is set when the programs are compiled
};

// `available_bytes` 0: nothing is refused for its size. Errors: of the passes it runs, and kInvalid
// for options that contradict each other.
[[nodiscard]] Result<StagePlans> make_stage_plans(const ModelConfig& config,
                                                  StageRange range,
                                                  const KernelCatalog& catalog,
                                                  const ParameterType& type,
                                                  const std::string& model_hash,
                                                  const StageOptions& options,
                                                  std::uint64_t available_bytes);

}  // namespace troupe
