// Choosing a token from a row of logits (MODEL.md 5.3, decision D4): compiled once for all kernel
// sets, but for the loops over the whole vocabulary, which a set lends as SampleMath. Contract and
// order of the steps: ops.h.
//
// SA-1: a result is a function of the row's logits, parameters, key, position and choice, whichever
// set computes it. SA-2: a row with a NaN, or whose every id is at -infinity, has no answer: token
// -1.
#pragma once

#include "kernels/ops.h"

#include <cstddef>
#include <cstdint>

namespace troupe::cpu {

inline constexpr std::uint32_t kSampleChunk = 1024;

struct SampleMath {
  // The greatest of n values; NaN if any of them is.
  float (*maximum)(const float* x, std::uint32_t n);
  // Sum of exp((x - top) * scale) over n <= kSampleChunk values, fp32 in 16 lanes.
  float (*exp_sum)(const float* x, std::uint32_t n, float top, float scale);
  // out = exp((x - top) * scale); out may be x.
  void (*exp_each)(const float* x, float* out, std::uint32_t n, float top, float scale);
};

// Vocabularies up to this size fit in a worker's scratch: a copy of the logits and a list of
// candidates.
inline constexpr std::uint32_t kSampleVocabMax = 320'000;

[[nodiscard]] std::uint32_t sample_items(const KernelEnv& env, const void* args);
void sample_rows(const KernelEnv& env,
                 const SampleArgs& args,
                 std::uint32_t begin,
                 std::uint32_t end,
                 std::byte* scratch,
                 const SampleMath& math);

}  // namespace troupe::cpu
