// Tiny model directories made by code: a Qwen3-Next of two layers (GDN + MoE, attention + MoE) and
// its Qwen3.5 twin, whole or damaged on purpose. Weight bytes are a running pattern; only names,
// shapes and types matter here.
#pragma once

#include "runtime/model/checkpoint.h"
#include "tests/support/temp_directory.h"

#include <nlohmann/json.hpp>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::fixture {

using Json = nlohmann::json;

using test::TempDirectory;

struct Stored {
  std::string dtype;
  std::vector<std::uint64_t> shape;
};
using Weights = std::map<std::string, Stored>;  // by name

// Qwen3-Next: V 8, H 4, 2 layers, Nq 2, Nkv 1, D 4, R 2, nk 2, nv 4, dk 2, dv 3, W 4, E 2, k 1, I
// 3, Is 2.
[[nodiscard]] Json next_config();
[[nodiscard]] Weights next_weights();
// The same sizes as qwen3_5_moe: nested config, split GDN projections, fused experts, other prefix.
[[nodiscard]] Json moe_config();
[[nodiscard]] Weights moe_weights();
// mtp.*: per-expert, for either of the two.
[[nodiscard]] Weights mtp_weights();

[[nodiscard]] std::uint64_t bytes_of(const Stored& tensor);
[[nodiscard]] Json header_of(const Weights& weights);
// Length, header text, then as many bytes of pattern as the tensors need.
[[nodiscard]] std::string file_of(const Weights& weights);
[[nodiscard]] std::string file_with(std::string_view header, std::uint64_t data_bytes);

[[nodiscard]] ModelConfig config_of(const Json& config);
// The message of the error that opening gives, "opened" if it does not fail.
[[nodiscard]] std::string open_error(const std::filesystem::path& directory, const Json& config);

}  // namespace troupe::fixture
