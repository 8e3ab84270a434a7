// The arithmetic that fake stage and oracle share: a history is a hash, and so is the next token.
#pragma once

#include "kernels/ops.h"

#include <cstdint>
#include <span>

namespace troupe {

inline constexpr std::uint64_t kFakeEmptyHistory = 0x9e3779b97f4a7c15ULL;

[[nodiscard]] std::uint64_t fake_mix(std::uint64_t hash, std::uint64_t value);

// The next token after a history, from exactly the parameters that a sampler would use.
[[nodiscard]] std::uint32_t fake_token(std::uint64_t history,
                                       std::uint32_t position,
                                       const SampleParams& params,
                                       std::span<const TokenValue> values,
                                       std::uint32_t vocab);

// What a sampler reports of a token that follows a history: numbers that depend on both and on how
// many alternatives are asked for.
[[nodiscard]] SampleResult fake_report(std::uint64_t history,
                                       std::uint32_t token,
                                       const SampleParams& params,
                                       std::uint32_t vocab);

}  // namespace troupe
