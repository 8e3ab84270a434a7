#include "kernels/cpu/moe.h"

namespace troupe::cpu {

// A counting sort; offsets[e + 1] first counts, then points at the next free entry of expert e, and
// ends as its end.
void permute(const KernelEnv& env, const MoePermuteArgs& args) {
  const auto* ids = env.at<const std::uint32_t>(args.ids);
  auto* offsets = env.at<std::uint32_t>(args.offsets);
  auto* entries = env.at<std::uint32_t>(args.entries);
  auto* active = env.at<std::uint32_t>(args.active);
  const auto total = static_cast<std::uint32_t>(env.step->rows.size()) * args.top_k;
  for (std::uint32_t e = 0; e <= args.experts; ++e) {
    offsets[e] = 0;
  }
  for (std::uint32_t entry = 0; entry < total; ++entry) {
    ++offsets[ids[entry] + 1];
  }
  std::uint32_t active_count = 0;
  std::uint32_t start = 0;
  for (std::uint32_t e = 0; e < args.experts; ++e) {
    const std::uint32_t count = offsets[e + 1];
    offsets[e + 1] = start;
    start += count;
    if (count > 0) {
      active[active_count++] = e;
    }
  }
  *env.at<std::uint32_t>(args.active_count) = active_count;
  for (std::uint32_t entry = 0; entry < total; ++entry) {
    entries[offsets[ids[entry] + 1]++] = entry;
  }
}

}  // namespace troupe::cpu
