// The parameters a config demands: the one list that the checkpoint verifies, the packer packs and
// sizes are computed from. Names and shapes are those of checkpoint.h. Pure functions, any thread.
//
// PA-1: order is fixed: embed, layers by index (norms, mixer, feed-forward), final_norm, head.
// PA-2: `head` is listed exactly when config.tie_word_embeddings is false.
#pragma once

#include "runtime/model/config.h"

#include <cstdint>
#include <string>
#include <vector>

namespace troupe {

struct ExpectedTensor {
  std::string name;
  std::uint32_t rows = 0;
  std::uint32_t columns = 0;
  bool operator==(const ExpectedTensor&) const = default;
};

// Everything but the MTP layer.
[[nodiscard]] std::vector<ExpectedTensor> expected_parameters(const ModelConfig& config);

// The MTP layer: gated attention and the feed-forward kind of the body (MoE where the body has any
// MoE layer).
[[nodiscard]] std::vector<ExpectedTensor> expected_mtp_parameters(const ModelConfig& config);

// Numbers of elements in all of a list.
[[nodiscard]] std::uint64_t parameter_count(const std::vector<ExpectedTensor>& parameters);

}  // namespace troupe
