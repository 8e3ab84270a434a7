// What code compiled for one instruction set needs from the rest of Troupe, as functions that are
// compiled once for any processor: such code must not instantiate the members of std::span,
// std::array or KernelEnv (vec.h, VE-2).
#pragma once

#include "kernels/ops.h"

#include <cstddef>
#include <cstdint>

namespace troupe::cpu {

// The step table as bare pointers; valid as long as the table.
struct StepView {
  const StepRow* rows = nullptr;
  const StepSegment* segments = nullptr;
  const SampledRow* sampled = nullptr;
  const std::uint32_t* blocks = nullptr;
  std::uint32_t row_count = 0;
  std::uint32_t segment_count = 0;
  std::uint32_t sampled_count = 0;
  std::uint32_t block_width = 0;
};
[[nodiscard]] StepView view(const KernelEnv& env);

[[nodiscard]] std::byte* address(const KernelEnv& env, const Ref& ref);
[[nodiscard]] bool is_empty(const Ref& ref);

// One item per active row, per sampled row.
[[nodiscard]] std::uint32_t row_items(const KernelEnv& env, const void* args);
[[nodiscard]] std::uint32_t sampled_items(const KernelEnv& env, const void* args);

}  // namespace troupe::cpu
