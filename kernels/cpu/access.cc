#include "kernels/cpu/access.h"

namespace troupe::cpu {

StepView view(const KernelEnv& env) {
  const StepTable& step = *env.step;
  return {
      .rows = step.rows.data(),
      .segments = step.segments.data(),
      .sampled = step.sampled.data(),
      .blocks = step.blocks.data(),
      .row_count = static_cast<std::uint32_t>(step.rows.size()),
      .segment_count = static_cast<std::uint32_t>(step.segments.size()),
      .sampled_count = static_cast<std::uint32_t>(step.sampled.size()),
      .block_width = step.block_width,
  };
}

std::byte* address(const KernelEnv& env, const Ref& ref) {
  return env.at<std::byte>(ref);
}

bool is_empty(const Ref& ref) {
  return ref.empty();
}

std::uint32_t row_items(const KernelEnv& env, const void* /*args*/) {
  return static_cast<std::uint32_t>(env.step->rows.size());
}

std::uint32_t sampled_items(const KernelEnv& env, const void* /*args*/) {
  return static_cast<std::uint32_t>(env.step->sampled.size());
}

}  // namespace troupe::cpu
