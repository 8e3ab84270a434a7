// What a launch has to read and to multiply at the least, from its arguments and the step: for
// profiles. Pure.
#pragma once

#include "kernels/ops.h"

#include <cstdint>

namespace troupe {

struct LaunchWork {
  // Weights as packed with their scales, once each; states read and written; keys and values of
  // every block read once. Activations, which caches hold, are left out.
  std::uint64_t bytes = 0;
  std::uint64_t multiplications = 0;  // of inputs by weights
};

// REQUIRES: the launch has run: of experts, those that were hit are counted.
[[nodiscard]] LaunchWork work_of(KernelId kernel, const void* args, const KernelEnv& env);

}  // namespace troupe
