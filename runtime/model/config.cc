#include "runtime/model/config.h"

#include "runtime/model/config_keys.h"

#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <system_error>
#include <vector>

namespace troupe {
namespace {

constexpr std::uint64_t kMaxConfigBytes = 16ULL << 20;

enum class Family { kNext, kDense, kMoe };

struct FamilyName {
  std::string_view name;
  Family family;
};

constexpr std::array<FamilyName, 5> kModelTypes = {{{"qwen3_next", Family::kNext},
                                                    {"qwen3_5", Family::kDense},
                                                    {"qwen3_5_text", Family::kDense},
                                                    {"qwen3_5_moe", Family::kMoe},
                                                    {"qwen3_5_moe_text", Family::kMoe}}};

constexpr std::array<FamilyName, 5> kArchitectures = {
    {{"Qwen3NextForCausalLM", Family::kNext},
     {"Qwen3_5ForCausalLM", Family::kDense},
     {"Qwen3_5ForConditionalGeneration", Family::kDense},
     {"Qwen3_5MoeForCausalLM", Family::kMoe},
     {"Qwen3_5MoeForConditionalGeneration", Family::kMoe}}};

std::optional<Family> family_of(std::span<const FamilyName> names, std::string_view name) {
  const auto found = std::ranges::find(names, name, &FamilyName::name);
  return found == names.end() ? std::nullopt : std::optional(found->family);
}

std::string join_names(std::span<const FamilyName> names) {
  std::string out;
  for (const FamilyName& name : names) {
    out += out.empty() ? "" : ", ";
    out += name.name;
  }
  return out;
}

std::string_view text_model_type(Family family) {
  switch (family) {
    case Family::kNext:
      return "qwen3_next";
    case Family::kDense:
      return "qwen3_5_text";
    case Family::kMoe:
      return "qwen3_5_moe_text";
  }
  return "";
}

Result<Family> read_family(const ConfigKeys& keys, ModelConfig& config) {
  const JsonValue type = keys.top().find("model_type");
  if (!type.exists()) {
    return keys.missing("model_type");
  }
  if (type.is("qwen4_exp") || type.is("qwen4_exp_text")) {
    return keys.fail(Kind::kUnsupported,
                     "model_type \"qwen4_exp\" has another residual stream, indexed attention and "
                     "n-gram tables, "
                     "which Troupe does not run; use a Qwen3-Next or Qwen3.5 model");
  }
  const std::optional<Family> family = family_of(kModelTypes, type.string());
  if (!family) {
    return keys.fail(Kind::kUnsupported,
                     "model_type is ",
                     type.shown(),
                     "; Troupe runs ",
                     join_names(kModelTypes));
  }

  const JsonValue list = keys.top().find("architectures");
  if (!list.exists()) {
    return keys.missing("architectures");
  }
  const std::vector<JsonValue> classes = list.elements();
  if (classes.empty() || !classes.front().is_string()) {
    return keys.wrong("architectures", list, "a list with the name of the model class");
  }
  config.architecture = classes.front().string();
  const std::optional<Family> claimed = family_of(kArchitectures, config.architecture);
  if (!claimed) {
    return keys.fail(Kind::kUnsupported,
                     "architectures[0] is ",
                     classes.front().shown(),
                     "; Troupe runs ",
                     join_names(kArchitectures));
  }
  if (*claimed != *family) {
    return keys.fail(Kind::kInvalid,
                     "architectures[0] is ",
                     classes.front().shown(),
                     ", but model_type is ",
                     type.shown());
  }
  const JsonValue inner = keys.text().find("model_type");
  if (inner.exists() && family_of(kModelTypes, inner.string()) != family) {
    return keys.fail(Kind::kInvalid,
                     "text_config.model_type is ",
                     inner.shown(),
                     ", but model_type is ",
                     type.shown());
  }
  config.model_type = text_model_type(*family);
  return *family;
}

Status check_quantization(const ConfigKeys& keys) {
  constexpr std::string_view kRemedy =
      "; Troupe runs unquantised weights and \"fp8\" in blocks of 128 x 128: use such a release";
  if (keys.find("quantization").exists()) {
    return keys.fail(Kind::kUnsupported, "key \"quantization\" marks an MLX export", kRemedy);
  }
  const JsonValue quantization = keys.find("quantization_config");
  if (!quantization.exists()) {
    return {};
  }
  if (!quantization.is_object()) {
    return keys.wrong("quantization_config", quantization, "an object");
  }
  const JsonValue method = quantization.find("quant_method");
  const JsonValue algorithm = quantization.find("quant_algo");
  if (algorithm.exists()) {
    return keys.fail(
        Kind::kUnsupported, "quantization_config.quant_algo is ", algorithm.shown(), kRemedy);
  }
  if (!method.exists()) {
    return keys.missing("quantization_config.quant_method");
  }
  if (!method.is("fp8")) {
    return keys.fail(
        Kind::kUnsupported, "quantization_config.quant_method is ", method.shown(), kRemedy);
  }
  const JsonValue format = quantization.find("fmt");
  if (format.exists() && !format.is("e4m3")) {
    return keys.fail(
        Kind::kUnsupported, "quantization_config.fmt is ", format.shown(), ", expected \"e4m3\"");
  }
  const JsonValue block = quantization.find("weight_block_size");
  if (block.shown() != "[128,128]") {
    return keys.fail(
        Kind::kUnsupported, "quantization_config.weight_block_size is ", block.shown(), kRemedy);
  }
  return {};
}

Status check_options(const ConfigKeys& keys) {
  for (const char* key : {"attention_bias", "layer_scale", "mtp_use_dedicated_embeddings"}) {
    TROUPE_ASSIGN(const bool on, keys.flag(key, false));
    if (on) {
      return keys.fail(Kind::kUnsupported,
                       key,
                       " is true, which Troupe does not run (no released model has it)");
    }
  }
  const JsonValue activation = keys.find("hidden_act");
  if (activation.exists() && !activation.is("silu")) {
    return keys.fail(
        Kind::kUnsupported, "hidden_act is ", activation.shown(), "; Troupe runs \"silu\"");
  }
  return check_quantization(keys);
}

Status read_sizes(const ConfigKeys& keys, ModelConfig& config) {
  TROUPE_ASSIGN(config.vocab_size, keys.integer("vocab_size", {1, kMaxVocabulary}));
  TROUPE_ASSIGN(config.hidden_size, keys.integer("hidden_size", {1, kMaxWidth}));
  TROUPE_ASSIGN(config.max_position_embeddings,
                keys.integer("max_position_embeddings", {1, kMaxContext}));
  const JsonValue eps = keys.find("rms_norm_eps");
  if (!eps.exists()) {
    return keys.missing("rms_norm_eps");
  }
  TROUPE_ASSIGN(config.rms_norm_eps, keys.number_of("rms_norm_eps", eps, 1e-12, 1e-2));

  // The outer config decides about tying where it says anything.
  const JsonValue outer = keys.top().find("tie_word_embeddings");
  const JsonValue tie = outer.exists() ? outer : keys.find("tie_word_embeddings");
  if (tie.exists()) {
    TROUPE_ASSIGN(config.tie_word_embeddings, keys.flag_of("tie_word_embeddings", tie));
  }
  return {};
}

Status read_attention(const ConfigKeys& keys, Family family, ModelConfig& config) {
  TROUPE_ASSIGN(config.attention_heads, keys.integer("num_attention_heads", {1, kMaxHeads}));
  TROUPE_ASSIGN(config.kv_heads, keys.integer("num_key_value_heads", {1, kMaxHeads}));
  TROUPE_ASSIGN(config.head_dim, keys.integer("head_dim", {1, kMaxHeadDim}));
  if (config.attention_heads % config.kv_heads != 0) {
    return keys.fail(Kind::kInvalid,
                     "num_attention_heads is ",
                     config.attention_heads,
                     ", not a multiple of num_key_value_heads, ",
                     config.kv_heads);
  }
  if (family != Family::kNext) {  // Qwen3-Next is always gated and has no such key
    TROUPE_ASSIGN(config.attention_output_gate, keys.flag("attn_output_gate", true));
  }
  return {};
}

Status read_gdn(const ConfigKeys& keys, ModelConfig& config) {
  TROUPE_ASSIGN(config.conv_kernel, keys.integer("linear_conv_kernel_dim", {2, 16}));
  TROUPE_ASSIGN(config.gdn_key_heads, keys.integer("linear_num_key_heads", {1, kMaxHeads}));
  TROUPE_ASSIGN(config.gdn_value_heads, keys.integer("linear_num_value_heads", {1, kMaxHeads}));
  TROUPE_ASSIGN(config.gdn_key_dim, keys.integer("linear_key_head_dim", {1, kMaxHeadDim}));
  TROUPE_ASSIGN(config.gdn_value_dim, keys.integer("linear_value_head_dim", {1, kMaxHeadDim}));
  if (config.gdn_value_heads % config.gdn_key_heads != 0) {
    return keys.fail(Kind::kInvalid,
                     "linear_num_value_heads is ",
                     config.gdn_value_heads,
                     ", not a multiple of linear_num_key_heads, ",
                     config.gdn_key_heads);
  }
  const JsonValue gate = keys.find("output_gate_type");
  if (gate.is("sigmoid")) {
    config.gdn_gate = GateActivation::kSigmoid;
  } else if (gate.exists() && !gate.is("swish") && !gate.is("silu")) {
    return keys.fail(Kind::kUnsupported,
                     "output_gate_type is ",
                     gate.shown(),
                     "; Troupe runs \"silu\", \"swish\" and \"sigmoid\"");
  }
  return {};
}

Status read_mixers(const ConfigKeys& keys, ModelConfig& config) {
  TROUPE_ASSIGN(const std::uint32_t layers, keys.integer("num_hidden_layers", {1, kMaxLayers}));
  config.layers.resize(layers);
  const JsonValue types = keys.find("layer_types");
  if (!types.exists()) {
    TROUPE_ASSIGN(const std::uint32_t interval,
                  keys.integer("full_attention_interval", {1, kMaxLayers}, 4));
    for (std::uint32_t i = 0; i < layers; ++i) {
      config.layers[i].mixer = (i + 1) % interval == 0 ? Mixer::kAttention : Mixer::kGatedDeltaNet;
    }
    return {};
  }
  if (!types.is_array()) {
    return keys.wrong("layer_types", types, "a list");
  }
  const std::vector<JsonValue> kinds = types.elements();
  if (kinds.size() != layers) {
    return keys.fail(Kind::kInvalid,
                     "layer_types has ",
                     kinds.size(),
                     " entries, but num_hidden_layers is ",
                     layers);
  }
  for (std::uint32_t i = 0; i < layers; ++i) {
    const JsonValue type = kinds[i];
    if (type.is("full_attention") || type.is("attention")) {
      config.layers[i].mixer = Mixer::kAttention;
    } else if (type.is("linear_attention") || type.is("mamba")) {
      config.layers[i].mixer = Mixer::kGatedDeltaNet;
    } else {
      return keys.fail(Kind::kUnsupported,
                       "layer_types[",
                       i,
                       "] is ",
                       type.shown(),
                       "; Troupe runs \"linear_attention\" and \"full_attention\"");
    }
  }
  return {};
}

// Qwen3-Next alone may mix dense and MoE layers.
Status read_sparsity(const ConfigKeys& keys, ModelConfig& config) {
  const auto layers = static_cast<std::uint32_t>(config.layers.size());
  TROUPE_ASSIGN(const std::uint32_t experts, keys.integer("num_experts", {0, kMaxExperts}));
  TROUPE_ASSIGN(const std::uint32_t step, keys.integer("decoder_sparse_step", {1, kMaxLayers}, 1));
  for (std::uint32_t i = 0; i < layers; ++i) {
    const bool moe = experts > 0 && (i + 1) % step == 0;
    config.layers[i].feed_forward = moe ? FeedForward::kMoe : FeedForward::kDense;
  }
  const JsonValue dense = keys.find("mlp_only_layers");
  if (dense.exists() && !dense.is_array()) {
    return keys.wrong("mlp_only_layers", dense, "a list of layer indices");
  }
  for (const JsonValue entry : dense.elements()) {
    TROUPE_ASSIGN(const std::uint32_t layer,
                  keys.integer_of("mlp_only_layers[]", entry, {0, layers - 1}));
    config.layers[layer].feed_forward = FeedForward::kDense;
  }
  return {};
}

Status read_feed_forward(const ConfigKeys& keys, Family family, ModelConfig& config) {
  if (family == Family::kNext) {
    TROUPE_TRY(read_sparsity(keys, config));
    TROUPE_ASSIGN(config.norm_topk_prob, keys.flag("norm_topk_prob", true));
  } else {
    for (LayerKind& layer : config.layers) {
      layer.feed_forward = family == Family::kMoe ? FeedForward::kMoe : FeedForward::kDense;
    }
  }
  if (config.has(FeedForward::kDense)) {
    TROUPE_ASSIGN(config.intermediate_size, keys.integer("intermediate_size", {1, kMaxWidth}));
  }
  if (!config.has(FeedForward::kMoe)) {
    return {};
  }
  TROUPE_ASSIGN(config.experts, keys.integer("num_experts", {1, kMaxExperts}));
  TROUPE_ASSIGN(config.experts_per_token, keys.integer("num_experts_per_tok", {1, kMaxExperts}));
  TROUPE_ASSIGN(config.moe_intermediate_size,
                keys.integer("moe_intermediate_size", {1, kMaxWidth}));
  TROUPE_ASSIGN(config.shared_expert_intermediate_size,
                keys.integer("shared_expert_intermediate_size", {1, kMaxWidth}));
  if (config.experts_per_token > config.experts) {
    return keys.fail(Kind::kInvalid,
                     "num_experts_per_tok is ",
                     config.experts_per_token,
                     ", more than num_experts, ",
                     config.experts);
  }
  return {};
}

Status read_tokens(const ConfigKeys& keys, Family family, ModelConfig& config) {
  const std::string_view key = keys.find("mtp_num_hidden_layers").exists()
                                   ? "mtp_num_hidden_layers"
                                   : "num_nextn_predict_layers";
  // Published Qwen3-Next files have the MTP layer and no key that says so.
  TROUPE_ASSIGN(config.mtp_layers,
                keys.integer(key, {0, kMaxLayers}, family == Family::kNext ? 1U : 0U));
  if (config.mtp_layers > 1) {
    return keys.fail(
        Kind::kUnsupported, key, " is ", config.mtp_layers, "; Troupe runs one MTP layer or none");
  }
  const JsonValue eos = keys.find("eos_token_id");
  if (!eos.exists()) {
    return {};
  }
  const Range range{0, config.vocab_size - 1};
  if (!eos.is_array()) {
    TROUPE_ASSIGN(const std::uint32_t id, keys.integer_of("eos_token_id", eos, range));
    config.eos_token_ids = {id};
    return {};
  }
  for (const JsonValue entry : eos.elements()) {
    TROUPE_ASSIGN(const std::uint32_t id, keys.integer_of("eos_token_id[]", entry, range));
    config.eos_token_ids.push_back(id);
  }
  return {};
}

Result<ModelConfig> read_document(const ModelJson& document, std::string_view file_name) {
  const JsonValue top = document.root();
  const JsonValue text = top.find("text_config");
  const ConfigKeys keys(top, text.exists() ? text : top, file_name);
  if (text.exists() && !text.is_object()) {
    return keys.wrong("text_config", text, "an object");
  }
  ModelConfig config;
  TROUPE_ASSIGN(const Family family, read_family(keys, config));
  TROUPE_TRY(check_options(keys));
  TROUPE_TRY(read_sizes(keys, config));
  TROUPE_TRY(read_attention(keys, family, config));
  TROUPE_TRY(read_gdn(keys, config));
  TROUPE_TRY(read_mixers(keys, config));
  TROUPE_TRY(read_feed_forward(keys, family, config));
  TROUPE_TRY(read_rope(keys, config));
  TROUPE_TRY(read_tokens(keys, family, config));
  return config;
}

}  // namespace

Result<ModelConfig> parse_model_config(std::string_view json, std::string_view file_name) {
  TROUPE_ASSIGN(const ModelJson document, ModelJson::parse(json, file_name));
  return read_document(document, file_name);
}

Result<ModelConfig> read_model_config(const std::filesystem::path& directory) {
  std::error_code failure;
  if (!std::filesystem::is_directory(directory, failure)) {
    return error(
        Kind::kInvalid,
        message(directory.string(), ": not a directory; give the folder with config.json"));
  }
  const std::filesystem::path path = directory / "config.json";
  if (!std::filesystem::exists(path, failure)) {
    return error(Kind::kInvalid, message(directory.string(), ": no config.json in this directory"));
  }
  TROUPE_ASSIGN(const ModelJson document, ModelJson::read(path, "config.json", kMaxConfigBytes));
  return read_document(document, "config.json");
}

std::uint32_t ModelConfig::count(Mixer mixer) const {
  return static_cast<std::uint32_t>(std::ranges::count(layers, mixer, &LayerKind::mixer));
}

bool ModelConfig::has(FeedForward kind) const {
  return std::ranges::find(layers, kind, &LayerKind::feed_forward) != layers.end();
}

}  // namespace troupe
