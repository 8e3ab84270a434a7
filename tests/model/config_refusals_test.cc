// What config.json may not say, each with the whole message.
#include "runtime/model/config.h"
#include "tests/model/fixture.h"

#include <gtest/gtest.h>

#include <ostream>

namespace troupe {
namespace {

using fixture::Json;

struct Refusal {
  const char* name;
  const char* patch;  // JSON merge patch of a good config: null takes a key away
  Kind kind;
  const char* message;
};

void PrintTo(const Refusal& refusal, std::ostream* out) {
  *out << refusal.patch;
}

std::string case_name(const testing::TestParamInfo<Refusal>& info) {
  return info.param.name;
}

class ConfigRefusal : public testing::TestWithParam<Refusal> {};

TEST_P(ConfigRefusal, NamesKeyValueAndExpectation) {
  Json json = fixture::next_config();
  json.merge_patch(Json::parse(GetParam().patch));

  const auto config = parse_model_config(json.dump(), "config.json");

  ASSERT_FALSE(config.has_value());
  EXPECT_EQ(config.error().message, GetParam().message);
  EXPECT_EQ(config.error().kind, GetParam().kind);
}

INSTANTIATE_TEST_SUITE_P(
    Numbers,
    ConfigRefusal,
    testing::Values(
        Refusal{"Missing",
                R"({"hidden_size": null})",
                Kind::kInvalid,
                "config.json: hidden_size is missing"},
        Refusal{"Zero",
                R"({"hidden_size": 0})",
                Kind::kInvalid,
                "config.json: hidden_size is 0, expected an integer from 1 to 131072"},
        Refusal{"Negative",
                R"({"num_hidden_layers": -3})",
                Kind::kInvalid,
                "config.json: num_hidden_layers is -3, expected an integer from 1 to 1024"},
        Refusal{"Fraction",
                R"({"num_attention_heads": 2.5})",
                Kind::kInvalid,
                "config.json: num_attention_heads is 2.5, expected an integer from 1 to 1024"},
        Refusal{"Float",
                R"({"num_attention_heads": 2.0})",
                Kind::kInvalid,
                "config.json: num_attention_heads is 2.0, expected an integer from 1 to 1024"},
        Refusal{"Text",
                R"({"vocab_size": "8"})",
                Kind::kInvalid,
                "config.json: vocab_size is \"8\", expected an integer from 1 to 16777216"},
        Refusal{"Overflow",
                R"({"vocab_size": 4294967304})",
                Kind::kInvalid,
                "config.json: vocab_size is 4294967304, expected an integer from 1 to 16777216"},
        Refusal{"Huge",
                R"({"vocab_size": 123456789012345678901234567890})",
                Kind::kInvalid,
                "config.json: vocab_size is 1.2345678901234568e+29, expected an integer from 1 to "
                "16777216"},
        Refusal{"AbsurdExperts",
                R"({"num_experts": 100000})",
                Kind::kInvalid,
                "config.json: num_experts is 100000, expected an integer from 0 to 8192"},
        Refusal{"NegativeEps",
                R"({"rms_norm_eps": -1e-6})",
                Kind::kInvalid,
                "config.json: rms_norm_eps is -1e-06, expected a number from 1e-12 to 0.01"},
        Refusal{"ThetaMissing",
                R"({"rope_theta": null})",
                Kind::kInvalid,
                "config.json: rope_theta is missing"},
        Refusal{"ThetaText",
                R"({"rope_theta": "1e7"})",
                Kind::kInvalid,
                "config.json: rope_theta is \"1e7\", expected a number from 1 to 1e+15"},
        Refusal{"PartialTooLarge",
                R"({"partial_rotary_factor": 1.5})",
                Kind::kInvalid,
                "config.json: partial_rotary_factor is 1.5, expected a number from 0 to 1"},
        Refusal{"FlagIsNumber",
                R"({"tie_word_embeddings": 1})",
                Kind::kInvalid,
                "config.json: tie_word_embeddings is 1, expected true or false"}),
    case_name);

INSTANTIATE_TEST_SUITE_P(
    Contradictions,
    ConfigRefusal,
    testing::Values(
        Refusal{"AttentionHeads",
                R"({"num_attention_heads": 3, "num_key_value_heads": 2})",
                Kind::kInvalid,
                "config.json: num_attention_heads is 3, not a multiple of num_key_value_heads, 2"},
        Refusal{
            "GdnHeads",
            R"({"linear_num_value_heads": 5})",
            Kind::kInvalid,
            "config.json: linear_num_value_heads is 5, not a multiple of linear_num_key_heads, 2"},
        Refusal{"LayerTypesLength",
                R"({"layer_types": ["full_attention"]})",
                Kind::kInvalid,
                "config.json: layer_types has 1 entries, but num_hidden_layers is 2"},
        Refusal{"OddRotaryDims",
                R"({"head_dim": 6})",
                Kind::kInvalid,
                "config.json: head_dim 6 x partial_rotary_factor 0.5 gives 3 rotary dims, expected "
                "an even number above 0"},
        Refusal{"NoRotaryDims",
                R"({"partial_rotary_factor": 0.1})",
                Kind::kInvalid,
                "config.json: head_dim 4 x partial_rotary_factor 0.1 gives 0 rotary dims, expected "
                "an even number above 0"},
        Refusal{"TooManyExpertsPerToken",
                R"({"num_experts_per_tok": 3})",
                Kind::kInvalid,
                "config.json: num_experts_per_tok is 3, more than num_experts, 2"},
        Refusal{"DenseLayerThatIsNot",
                R"({"mlp_only_layers": [2]})",
                Kind::kInvalid,
                "config.json: mlp_only_layers[] is 2, expected an integer from 0 to 1"},
        Refusal{"EndTokenOutsideVocabulary",
                R"({"eos_token_id": 8})",
                Kind::kInvalid,
                "config.json: eos_token_id is 8, expected an integer from 0 to 7"},
        Refusal{"ArchitectureOfAnotherFamily",
                R"({"architectures": ["Qwen3_5ForCausalLM"]})",
                Kind::kInvalid,
                "config.json: architectures[0] is \"Qwen3_5ForCausalLM\", but model_type is "
                "\"qwen3_next\""},
        Refusal{"TextPartOfAnotherFamily",
                R"({"text_config": {"model_type": "qwen3_5_text"}})",
                Kind::kInvalid,
                "config.json: text_config.model_type is \"qwen3_5_text\", but model_type is "
                "\"qwen3_next\""},
        Refusal{
            "TwoRopeTypes",
            R"({"rope_parameters": {"rope_type": "default"}, "rope_scaling": {"type": "yarn"}})",
            Kind::kInvalid,
            "config.json: rope_parameters asks for rope_type \"default\", rope_scaling for "
            "\"yarn\": remove one"},
        Refusal{"YarnBetas",
                R"({"rope_scaling": {"type": "yarn", "beta_fast": 1, "beta_slow": 2}})",
                Kind::kInvalid,
                "config.json: beta_fast is 1, less than beta_slow, 2"},
        Refusal{"NoModelType",
                R"({"model_type": null})",
                Kind::kInvalid,
                "config.json: model_type is missing"},
        Refusal{"NoArchitectures",
                R"({"architectures": null})",
                Kind::kInvalid,
                "config.json: architectures is missing"},
        Refusal{
            "EmptyArchitectures",
            R"({"architectures": []})",
            Kind::kInvalid,
            "config.json: architectures is [], expected a list with the name of the model class"},
        Refusal{"TextConfigIsAList",
                R"({"text_config": [1]})",
                Kind::kInvalid,
                "config.json: text_config is [1], expected an object"}),
    case_name);

constexpr char kRemedy[] =
    "; Troupe runs unquantised weights and \"fp8\" in blocks of 128 x 128: use such a release";

Refusal unquantised(const char* name, const char* patch, const char* message) {
  return {name, patch, Kind::kUnsupported, message};
}

class QuantisationRefusal : public testing::TestWithParam<Refusal> {};

TEST_P(QuantisationRefusal, NamesTheMethodAndTheRemedy) {
  Json json = fixture::next_config();
  json.merge_patch(Json::parse(GetParam().patch));

  const auto config = parse_model_config(json.dump(), "config.json");

  ASSERT_FALSE(config.has_value());
  EXPECT_EQ(config.error().message, "config.json: " + std::string(GetParam().message) + kRemedy);
  EXPECT_EQ(config.error().kind, GetParam().kind);
}

INSTANTIATE_TEST_SUITE_P(
    Methods,
    QuantisationRefusal,
    testing::Values(
        unquantised("Gptq",
                    R"({"quantization_config": {"quant_method": "gptq", "bits": 4}})",
                    "quantization_config.quant_method is \"gptq\""),
        unquantised("Awq",
                    R"({"quantization_config": {"quant_method": "awq"}})",
                    "quantization_config.quant_method is \"awq\""),
        unquantised("CompressedTensors",
                    R"({"quantization_config": {"quant_method": "compressed-tensors"}})",
                    "quantization_config.quant_method is \"compressed-tensors\""),
        unquantised(
            "Nvfp4",
            R"({"quantization_config": {"quant_method": "modelopt", "quant_algo": "NVFP4"}})",
            "quantization_config.quant_algo is \"NVFP4\""),
        unquantised("Mlx",
                    R"({"quantization": {"group_size": 64, "bits": 4}})",
                    "key \"quantization\" marks an MLX export"),
        unquantised("Fp8PerTensor",
                    R"({"quantization_config": {"quant_method": "fp8"}})",
                    "quantization_config.weight_block_size is missing"),
        unquantised(
            "Fp8OtherBlocks",
            R"({"quantization_config": {"quant_method": "fp8", "weight_block_size": [64, 64]}})",
            "quantization_config.weight_block_size is [64,64]")),
    case_name);

INSTANTIATE_TEST_SUITE_P(
    Unsupported,
    ConfigRefusal,
    testing::Values(
        Refusal{
            "Qwen4Exp",
            R"({"model_type": "qwen4_exp", "architectures": ["Qwen4ExpForConditionalGeneration"]})",
            Kind::kUnsupported,
            "config.json: model_type \"qwen4_exp\" has another residual stream, indexed attention "
            "and n-gram tables, "
            "which Troupe does not run; use a Qwen3-Next or Qwen3.5 model"},
        Refusal{"OtherModel",
                R"({"model_type": "llama"})",
                Kind::kUnsupported,
                "config.json: model_type is \"llama\"; Troupe runs qwen3_next, qwen3_5, "
                "qwen3_5_text, qwen3_5_moe, "
                "qwen3_5_moe_text"},
        Refusal{
            "OtherArchitecture",
            R"({"architectures": ["Qwen3NextForSequenceClassification"]})",
            Kind::kUnsupported,
            "config.json: architectures[0] is \"Qwen3NextForSequenceClassification\"; Troupe runs "
            "Qwen3NextForCausalLM, Qwen3_5ForCausalLM, Qwen3_5ForConditionalGeneration, "
            "Qwen3_5MoeForCausalLM, "
            "Qwen3_5MoeForConditionalGeneration"},
        Refusal{"LayerType",
                R"({"layer_types": ["linear_attention", "indexed_attention"]})",
                Kind::kUnsupported,
                "config.json: layer_types[1] is \"indexed_attention\"; Troupe runs "
                "\"linear_attention\" and "
                "\"full_attention\""},
        Refusal{"AttentionBias",
                R"({"attention_bias": true})",
                Kind::kUnsupported,
                "config.json: attention_bias is true, which Troupe does not run (no released model "
                "has it)"},
        Refusal{"LayerScale",
                R"({"layer_scale": true})",
                Kind::kUnsupported,
                "config.json: layer_scale is true, which Troupe does not run (no released model "
                "has it)"},
        Refusal{"OwnMtpEmbeddings",
                R"({"mtp_use_dedicated_embeddings": true})",
                Kind::kUnsupported,
                "config.json: mtp_use_dedicated_embeddings is true, which Troupe does not run (no "
                "released model has it)"},
        Refusal{"TwoMtpLayers",
                R"({"mtp_num_hidden_layers": 2})",
                Kind::kUnsupported,
                "config.json: mtp_num_hidden_layers is 2; Troupe runs one MTP layer or none"},
        Refusal{"Activation",
                R"({"hidden_act": "gelu"})",
                Kind::kUnsupported,
                "config.json: hidden_act is \"gelu\"; Troupe runs \"silu\""},
        Refusal{"GateActivation",
                R"({"output_gate_type": "tanh"})",
                Kind::kUnsupported,
                "config.json: output_gate_type is \"tanh\"; Troupe runs \"silu\", \"swish\" and "
                "\"sigmoid\""},
        Refusal{"RopeType",
                R"({"rope_scaling": {"rope_type": "longrope"}})",
                Kind::kUnsupported,
                "config.json: rope_type is \"longrope\"; Troupe runs \"default\" and \"yarn\""},
        Refusal{"Fp8Format",
                R"({"quantization_config": {"quant_method": "fp8", "fmt": "e5m2"}})",
                Kind::kUnsupported,
                "config.json: quantization_config.fmt is \"e5m2\", expected \"e4m3\""}),
    case_name);

TEST(ReadModelConfig, RefusesAPathThatIsNotADirectory) {
  const auto config = read_model_config("/nowhere/at/all");

  ASSERT_FALSE(config.has_value());
  EXPECT_EQ(config.error().message,
            "/nowhere/at/all: not a directory; give the folder with config.json");
}

TEST(ReadModelConfig, RefusesADirectoryWithoutConfig) {
  const fixture::TempDirectory directory;

  const auto config = read_model_config(directory.path());

  ASSERT_FALSE(config.has_value());
  EXPECT_EQ(config.error().message,
            directory.path().string() + ": no config.json in this directory");
}

TEST(ReadModelConfig, RefusesTextThatIsNotJson) {
  const fixture::TempDirectory directory;
  directory.write("config.json", "{\"model_type\": ");

  const auto config = read_model_config(directory.path());

  ASSERT_FALSE(config.has_value());
  EXPECT_EQ(config.error().message, "config.json: not a JSON object");
}

}  // namespace
}  // namespace troupe
