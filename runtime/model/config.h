// ModelConfig: everything the rest of Troupe needs to know about a model, read once from
// config.json, checked once, trusted afterwards. An immutable value; any thread.
//
// MC-1: every number here was range-checked and is consistent with every other (sizes divide, lists
// have the right
//       length).
// MC-2: layers[i] says what layer i is; nobody re-derives it.
#pragma once

#include "runtime/base/error.h"

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

enum class Mixer : std::uint8_t { kGatedDeltaNet, kAttention };
enum class FeedForward : std::uint8_t { kDense, kMoe };
enum class GateActivation : std::uint8_t { kSilu, kSigmoid };  // of the GDN output gate z

struct LayerKind {
  Mixer mixer = Mixer::kGatedDeltaNet;
  FeedForward feed_forward = FeedForward::kDense;
  bool operator==(const LayerKind&) const = default;
};

struct RopeConfig {
  std::uint32_t rotary_dims = 64;  // R: even, <= head_dim
  double theta = 1e7;
  bool yarn = false;
  double factor = 1.0;  // YaRN only, as are the rest
  double original_context = 0;
  double beta_fast = 32;
  double beta_slow = 1;
  double attention_factor = 1.0;  // already resolved (MODEL.md 3.5.4): multiplies cos and sin
  bool truncate = true;
};

struct ModelConfig {
  std::string architecture;  // architectures[0], e.g. "Qwen3NextForCausalLM"
  std::string model_type;    // of the text part, e.g. "qwen3_next", "qwen3_5_moe_text"
  std::uint32_t vocab_size = 0;
  std::uint32_t hidden_size = 0;
  std::vector<LayerKind> layers;
  double rms_norm_eps = 1e-6;
  bool tie_word_embeddings = false;
  std::uint32_t max_position_embeddings = 0;  // after YaRN: the context the file promises

  // Gated attention.
  std::uint32_t attention_heads = 0;
  std::uint32_t kv_heads = 0;
  std::uint32_t head_dim = 0;
  bool attention_output_gate = true;
  RopeConfig rope;

  // GatedDeltaNet.
  std::uint32_t conv_kernel = 4;
  std::uint32_t gdn_key_heads = 0;
  std::uint32_t gdn_value_heads = 0;
  std::uint32_t gdn_key_dim = 0;    // per head
  std::uint32_t gdn_value_dim = 0;  // per head
  GateActivation gdn_gate = GateActivation::kSilu;

  // Feed-forward.
  std::uint32_t intermediate_size = 0;  // dense layers
  std::uint32_t experts = 0;
  std::uint32_t experts_per_token = 0;
  std::uint32_t moe_intermediate_size = 0;
  std::uint32_t shared_expert_intermediate_size = 0;
  bool norm_topk_prob = true;

  std::uint32_t mtp_layers = 0;  // as the config says; the weights decide
  std::vector<std::uint32_t>
      eos_token_ids;  // of config.json only; MODEL.md 5.3 has the other places

  [[nodiscard]] std::uint32_t gdn_key_width() const { return gdn_key_heads * gdn_key_dim; }  // Kd
  [[nodiscard]] std::uint32_t gdn_value_width() const {
    return gdn_value_heads * gdn_value_dim;
  }  // Vd
  [[nodiscard]] std::uint32_t gdn_conv_channels() const {
    return 2 * gdn_key_width() + gdn_value_width();
  }
  [[nodiscard]] std::uint32_t count(Mixer mixer) const;
  [[nodiscard]] bool has(FeedForward kind) const;
};

// Reads and checks DIRECTORY/config.json (or the text given). Errors: kInvalid names the key, what
// it says and what was expected; kUnsupported names an architecture, layer type or option that
// Troupe does not run.
[[nodiscard]] Result<ModelConfig> read_model_config(const std::filesystem::path& directory);
[[nodiscard]] Result<ModelConfig> parse_model_config(std::string_view json,
                                                     std::string_view file_name);

}  // namespace troupe
