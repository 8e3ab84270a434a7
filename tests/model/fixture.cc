#include "tests/model/fixture.h"

#include <gtest/gtest.h>

#include <cstring>

namespace troupe::fixture {
namespace {

constexpr std::uint64_t V = 8, H = 4, Nq = 2, Nkv = 1, D = 4, nk = 2, nv = 4, dk = 2, dv = 3, W = 4,
                        E = 2, I = 3, Is = 2;
constexpr std::uint64_t Kd = nk * dk, Vd = nv * dv;

void add(Weights& weights,
         const std::string& name,
         std::vector<std::uint64_t> shape,
         const std::string& dtype = "BF16") {
  weights[name] = {dtype, std::move(shape)};
}

void add_norms(Weights& weights, const std::string& layer) {
  add(weights, layer + "input_layernorm.weight", {H});
  add(weights, layer + "post_attention_layernorm.weight", {H});
}

void add_attention(Weights& weights, const std::string& layer) {
  add(weights, layer + "self_attn.q_proj.weight", {2 * Nq * D, H});
  add(weights, layer + "self_attn.k_proj.weight", {Nkv * D, H});
  add(weights, layer + "self_attn.v_proj.weight", {Nkv * D, H});
  add(weights, layer + "self_attn.o_proj.weight", {H, Nq * D});
  add(weights, layer + "self_attn.q_norm.weight", {D});
  add(weights, layer + "self_attn.k_norm.weight", {D});
}

void add_gdn(Weights& weights, const std::string& layer, bool fused) {
  const std::string gdn = layer + "linear_attn.";
  if (fused) {
    add(weights, gdn + "in_proj_qkvz.weight", {2 * Kd + 2 * Vd, H});
    add(weights, gdn + "in_proj_ba.weight", {2 * nv, H});
  } else {
    add(weights, gdn + "in_proj_qkv.weight", {2 * Kd + Vd, H});
    add(weights, gdn + "in_proj_z.weight", {Vd, H});
    add(weights, gdn + "in_proj_b.weight", {nv, H});
    add(weights, gdn + "in_proj_a.weight", {nv, H});
  }
  add(weights, gdn + "conv1d.weight", {2 * Kd + Vd, 1, W});
  add(weights, gdn + "A_log", {nv}, "F32");
  add(weights, gdn + "dt_bias", {nv});
  add(weights, gdn + "norm.weight", {dv}, "F32");
  add(weights, gdn + "out_proj.weight", {H, Vd});
}

void add_moe(Weights& weights, const std::string& layer, bool fused) {
  const std::string mlp = layer + "mlp.";
  add(weights, mlp + "gate.weight", {E, H});
  add(weights, mlp + "shared_expert.gate_proj.weight", {Is, H});
  add(weights, mlp + "shared_expert.up_proj.weight", {Is, H});
  add(weights, mlp + "shared_expert.down_proj.weight", {H, Is});
  add(weights, mlp + "shared_expert_gate.weight", {1, H});
  if (fused) {
    add(weights, mlp + "experts.gate_up_proj", {E, 2 * I, H});
    add(weights, mlp + "experts.down_proj", {E, H, I});
    return;
  }
  for (std::uint64_t expert = 0; expert < E; ++expert) {
    const std::string prefix = mlp + "experts." + std::to_string(expert) + ".";
    add(weights, prefix + "gate_proj.weight", {I, H});
    add(weights, prefix + "up_proj.weight", {I, H});
    add(weights, prefix + "down_proj.weight", {H, I});
  }
}

Weights body(const std::string& prefix, bool fused_gdn, bool fused_experts) {
  Weights weights;
  add(weights, prefix + "embed_tokens.weight", {V, H});
  add(weights, prefix + "norm.weight", {H});
  add(weights, "lm_head.weight", {V, H});
  const std::string first = prefix + "layers.0.";
  const std::string second = prefix + "layers.1.";
  add_norms(weights, first);
  add_gdn(weights, first, fused_gdn);
  add_moe(weights, first, fused_experts);
  add_norms(weights, second);
  add_attention(weights, second);
  add_moe(weights, second, fused_experts);
  return weights;
}

std::uint64_t element_bytes(const std::string& dtype) {
  const std::map<std::string, std::uint64_t> bytes = {{"F64", 8},
                                                      {"F32", 4},
                                                      {"I32", 4},
                                                      {"BF16", 2},
                                                      {"F16", 2},
                                                      {"U8", 1},
                                                      {"F8_E4M3", 1},
                                                      {"BOOL", 1}};
  return bytes.at(dtype);
}

}  // namespace

Json next_config() {
  return Json::parse(R"({
    "architectures": ["Qwen3NextForCausalLM"], "model_type": "qwen3_next", "vocab_size": 8, "hidden_size": 4,
    "num_hidden_layers": 2, "full_attention_interval": 2, "num_attention_heads": 2, "num_key_value_heads": 1,
    "head_dim": 4, "max_position_embeddings": 64, "rms_norm_eps": 1e-6, "rope_theta": 10000.0,
    "partial_rotary_factor": 0.5, "linear_conv_kernel_dim": 4, "linear_num_key_heads": 2, "linear_num_value_heads": 4,
    "linear_key_head_dim": 2, "linear_value_head_dim": 3, "num_experts": 2, "num_experts_per_tok": 1,
    "moe_intermediate_size": 3, "shared_expert_intermediate_size": 2, "intermediate_size": 5, "eos_token_id": 7,
    "tie_word_embeddings": false, "hidden_act": "silu"})");
}

Json moe_config() {
  Json text = next_config();
  text["model_type"] = "qwen3_5_moe_text";
  text.erase("architectures");
  text.erase("tie_word_embeddings");
  text.erase("rope_theta");
  text.erase("partial_rotary_factor");
  text["layer_types"] = {"linear_attention", "full_attention"};
  text["rope_parameters"] = {
      {"rope_type", "default"}, {"rope_theta", 10000.0}, {"partial_rotary_factor", 0.5}};
  return {{"architectures", {"Qwen3_5MoeForConditionalGeneration"}},
          {"model_type", "qwen3_5_moe"},
          {"tie_word_embeddings", false},
          {"text_config", text}};
}

Weights next_weights() {
  return body("model.", true, false);
}

Weights moe_weights() {
  Weights weights = body("model.language_model.", false, true);
  add(weights, "model.visual.pos_embed.weight", {3, 5});
  add(weights, "model.visual.mask", {3}, "BOOL");
  return weights;
}

Weights mtp_weights() {
  Weights weights;
  add(weights, "mtp.fc.weight", {H, 2 * H});
  add(weights, "mtp.pre_fc_norm_embedding.weight", {H});
  add(weights, "mtp.pre_fc_norm_hidden.weight", {H});
  add(weights, "mtp.norm.weight", {H});
  add_norms(weights, "mtp.layers.0.");
  add_attention(weights, "mtp.layers.0.");
  add_moe(weights, "mtp.layers.0.", false);
  return weights;
}

std::uint64_t bytes_of(const Stored& tensor) {
  std::uint64_t bytes = element_bytes(tensor.dtype);
  for (const std::uint64_t size : tensor.shape) {
    bytes *= size;
  }
  return bytes;
}

Json header_of(const Weights& weights) {
  Json header;
  std::uint64_t offset = 0;
  for (const std::uint64_t element : {8U, 4U, 2U, 1U}) {  // widest first, so that all are aligned
    for (const auto& [name, tensor] : weights) {
      if (element_bytes(tensor.dtype) == element) {
        const std::uint64_t end = offset + bytes_of(tensor);
        header[name] = {
            {"dtype", tensor.dtype}, {"shape", tensor.shape}, {"data_offsets", {offset, end}}};
        offset = end;
      }
    }
  }
  return header;
}

std::string file_with(std::string_view header, std::uint64_t data_bytes) {
  const std::uint64_t length = header.size();
  std::string file(8, '\0');
  std::memcpy(file.data(), &length, 8);
  file += header;
  for (std::uint64_t i = 0; i < data_bytes; ++i) {
    file += static_cast<char>(i * 7 % 64);
  }
  return file;
}

std::string file_of(const Weights& weights) {
  std::uint64_t bytes = 0;
  for (const auto& [name, tensor] : weights) {
    bytes += bytes_of(tensor);
  }
  std::string header = header_of(weights).dump();
  header.resize((header.size() + 7) / 8 * 8, ' ');
  return file_with(header, bytes);
}

ModelConfig config_of(const Json& config) {
  return parse_model_config(config.dump(), "config.json").value();
}

std::string open_error(const std::filesystem::path& directory, const Json& config) {
  const auto opened = Checkpoint::open(directory, config_of(config));
  return opened ? "opened" : opened.error().message;
}

}  // namespace troupe::fixture
