#include "runtime/model/parameters.h"

#include <string_view>

namespace troupe {
namespace {

using List = std::vector<ExpectedTensor>;

void add_ffn(List& list, const std::string& prefix, std::uint32_t width, std::uint32_t hidden) {
  list.push_back({prefix + "gate", width, hidden});
  list.push_back({prefix + "up", width, hidden});
  list.push_back({prefix + "down", hidden, width});
}

void add_gdn(List& list, const std::string& prefix, const ModelConfig& config) {
  const std::uint32_t channels = config.gdn_conv_channels();
  const std::uint32_t values = config.gdn_value_width();
  list.push_back({prefix + "qkv", channels, config.hidden_size});
  list.push_back({prefix + "z", values, config.hidden_size});
  list.push_back({prefix + "b", config.gdn_value_heads, config.hidden_size});
  list.push_back({prefix + "a", config.gdn_value_heads, config.hidden_size});
  list.push_back({prefix + "conv", channels, config.conv_kernel});
  list.push_back({prefix + "a_log", 1, config.gdn_value_heads});
  list.push_back({prefix + "dt_bias", 1, config.gdn_value_heads});
  list.push_back({prefix + "norm", 1, config.gdn_value_dim});
  list.push_back({prefix + "out", config.hidden_size, values});
}

void add_attention(List& list, const std::string& prefix, const ModelConfig& config) {
  const std::uint32_t queries = config.attention_heads * config.head_dim;
  const std::uint32_t keys = config.kv_heads * config.head_dim;
  list.push_back({prefix + "q", queries, config.hidden_size});
  if (config.attention_output_gate) {
    list.push_back({prefix + "gate", queries, config.hidden_size});
  }
  list.push_back({prefix + "k", keys, config.hidden_size});
  list.push_back({prefix + "v", keys, config.hidden_size});
  list.push_back({prefix + "q_norm", 1, config.head_dim});
  list.push_back({prefix + "k_norm", 1, config.head_dim});
  list.push_back({prefix + "o", config.hidden_size, queries});
}

void add_moe(List& list, const std::string& prefix, const ModelConfig& config) {
  list.push_back({prefix + "router", config.experts, config.hidden_size});
  for (std::uint32_t expert = 0; expert < config.experts; ++expert) {
    add_ffn(list,
            prefix + "experts." + std::to_string(expert) + ".",
            config.moe_intermediate_size,
            config.hidden_size);
  }
  add_ffn(list, prefix + "shared.", config.shared_expert_intermediate_size, config.hidden_size);
  list.push_back({prefix + "shared_gate", 1, config.hidden_size});
}

void add_layer(List& list, const std::string& prefix, LayerKind kind, const ModelConfig& config) {
  list.push_back({prefix + "mixer_norm", 1, config.hidden_size});
  list.push_back({prefix + "ffn_norm", 1, config.hidden_size});
  if (kind.mixer == Mixer::kGatedDeltaNet) {
    add_gdn(list, prefix + "gdn.", config);
  } else {
    add_attention(list, prefix + "attn.", config);
  }
  if (kind.feed_forward == FeedForward::kDense) {
    add_ffn(list, prefix + "mlp.", config.intermediate_size, config.hidden_size);
  } else {
    add_moe(list, prefix + "moe.", config);
  }
}

}  // namespace

std::vector<ExpectedTensor> expected_parameters(const ModelConfig& config) {
  List list;
  list.push_back({"embed", config.vocab_size, config.hidden_size});
  for (std::size_t i = 0; i < config.layers.size(); ++i) {
    add_layer(list, "layers." + std::to_string(i) + ".", config.layers[i], config);
  }
  list.push_back({"final_norm", 1, config.hidden_size});
  if (!config.tie_word_embeddings) {
    list.push_back({"head", config.vocab_size, config.hidden_size});
  }
  return list;
}

std::vector<ExpectedTensor> expected_mtp_parameters(const ModelConfig& config) {
  List list;
  list.push_back({"mtp.fc", config.hidden_size, 2 * config.hidden_size});
  list.push_back({"mtp.embedding_norm", 1, config.hidden_size});
  list.push_back({"mtp.hidden_norm", 1, config.hidden_size});
  list.push_back({"mtp.norm", 1, config.hidden_size});
  const bool moe = config.has(FeedForward::kMoe);
  add_layer(list,
            "mtp.layers.0.",
            {Mixer::kAttention, moe ? FeedForward::kMoe : FeedForward::kDense},
            config);
  return list;
}

std::uint64_t parameter_count(const std::vector<ExpectedTensor>& parameters) {
  std::uint64_t count = 0;
  for (const ExpectedTensor& tensor : parameters) {
    count += std::uint64_t{tensor.rows} * tensor.columns;
  }
  return count;
}

}  // namespace troupe
