// The grouping of (row, choice) pairs by expert, compiled once for all kernel sets. Contract:
// ops.h.
#pragma once

#include "kernels/ops.h"

namespace troupe::cpu {

void permute(const KernelEnv& env, const MoePermuteArgs& args);

}  // namespace troupe::cpu
