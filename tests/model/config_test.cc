#include "runtime/model/config.h"

#include "runtime/model/parameters.h"
#include "tests/model/fixture.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace troupe {
namespace {

using fixture::Json;

std::filesystem::path source(const std::string& relative) {
  return std::filesystem::path(TROUPE_SOURCE_DIR) / relative;
}

ModelConfig published(const std::string& name) {
  return read_model_config(source("models/configs/" + name)).value();
}

// The closed formulas for the number of parameters of a model of this family, written independently
// of the list.
std::uint64_t formula_attention(const ModelConfig& c) {
  const std::uint64_t h = c.hidden_size, q = std::uint64_t{c.attention_heads} * c.head_dim;
  return h * 2 * q + 2 * h * c.kv_heads * c.head_dim + q * h + 2 * c.head_dim;
}

std::uint64_t formula_ffn(const ModelConfig& c) {
  const std::uint64_t h = c.hidden_size;
  return c.experts == 0 ? 3 * h * c.intermediate_size
                        : std::uint64_t{c.experts} * 3 * h * c.moe_intermediate_size +
                              c.experts * h + 3 * h * c.shared_expert_intermediate_size + h;
}

std::uint64_t formula_total(const ModelConfig& c) {
  const std::uint64_t h = c.hidden_size, kd = c.gdn_key_width(), vd = c.gdn_value_width(),
                      nv = c.gdn_value_heads;
  const std::uint64_t gdn = h * (2 * kd + vd) + h * vd + 2 * h * nv +
                            c.conv_kernel * (2 * kd + vd) + 2 * nv + c.gdn_value_dim + vd * h;
  return c.count(Mixer::kAttention) * formula_attention(c) + c.count(Mixer::kGatedDeltaNet) * gdn +
         c.layers.size() * (formula_ffn(c) + 2 * h) + h +
         c.vocab_size * h * (c.tie_word_embeddings ? 1 : 2);
}

std::uint64_t formula_mtp(const ModelConfig& c) {
  const std::uint64_t h = c.hidden_size;
  return formula_attention(c) + formula_ffn(c) + 2 * h + 2 * h * h + 3 * h;
}

void expect_counts(const std::string& name, double total, double mtp) {
  const ModelConfig config = published(name);

  const std::uint64_t counted = parameter_count(expected_parameters(config));
  const std::uint64_t counted_mtp = parameter_count(expected_mtp_parameters(config));

  EXPECT_EQ(counted, formula_total(config));
  EXPECT_EQ(counted_mtp, formula_mtp(config));
  EXPECT_NEAR(static_cast<double>(counted), total, 0.5e6);
  EXPECT_NEAR(static_cast<double>(counted_mtp), mtp, mtp < 1e9 ? 0.5e6 : 0.5e7);
}

TEST(ModelConfig, CountsTheParametersOfQwen3Next80B) {
  expect_counts("qwen3-next-80b-a3b", 79.674e9, 1.650e9);
}

TEST(ModelConfig, CountsTheParametersOfQwen35_35B) {
  expect_counts("qwen3.5-35b-a3b", 34.661e9, 0.845e9);
}

TEST(ModelConfig, CountsTheParametersOfQwen35_397B) {
  expect_counts("qwen3.5-397b-a17b", 396.346e9, 6.596e9);
}

TEST(ModelConfig, CountsTheParametersOfQwen35_27B) {
  expect_counts("qwen3.5-27b", 26.896e9, 424.7e6);
}

TEST(ModelConfig, ReadsAFlatQwen3NextFile) {
  const ModelConfig config = published("qwen3-next-80b-a3b");

  EXPECT_EQ(config.architecture, "Qwen3NextForCausalLM");
  EXPECT_EQ(config.model_type, "qwen3_next");
  EXPECT_EQ(config.layers.size(), 48U);
  EXPECT_EQ(config.count(Mixer::kAttention), 12U);
  EXPECT_EQ(config.layers[3], (LayerKind{Mixer::kAttention, FeedForward::kMoe}));
  EXPECT_EQ(config.layers[4], (LayerKind{Mixer::kGatedDeltaNet, FeedForward::kMoe}));
  EXPECT_FALSE(config.has(FeedForward::kDense));
  EXPECT_EQ(config.rope.rotary_dims, 64U);
  EXPECT_EQ(config.rope.theta, 1e7);
  EXPECT_FALSE(config.rope.yarn);
  EXPECT_EQ(config.gdn_conv_channels(), 8192U);
  EXPECT_EQ(config.mtp_layers, 1U);
  EXPECT_EQ(config.eos_token_ids, std::vector<std::uint32_t>{151645});
}

TEST(ModelConfig, ReadsANestedQwen35File) {
  const ModelConfig config = published("qwen3.5-27b");

  EXPECT_EQ(config.architecture, "Qwen3_5ForConditionalGeneration");
  EXPECT_EQ(config.model_type, "qwen3_5_text");
  EXPECT_EQ(config.count(Mixer::kAttention), 16U);
  EXPECT_FALSE(config.has(FeedForward::kMoe));
  EXPECT_EQ(config.intermediate_size, 17408U);
  EXPECT_EQ(config.experts, 0U);
  EXPECT_TRUE(config.attention_output_gate);
  EXPECT_EQ(config.rope.rotary_dims, 64U);
  EXPECT_EQ(config.max_position_embeddings, 262144U);
}

TEST(ModelConfig, ReadsATextOnlyQwen35File) {
  Json flat = fixture::moe_config()["text_config"];
  flat["architectures"] = {"Qwen3_5MoeForCausalLM"};

  const ModelConfig config = fixture::config_of(flat);

  EXPECT_EQ(config.model_type, "qwen3_5_moe_text");
  EXPECT_EQ(config.experts, 2U);
}

TEST(ModelConfig, MixesDenseAndMoeLayersInQwen3Next) {
  const ModelConfig config = read_model_config(source("tests/golden/data/next-mixed")).value();

  std::vector<std::size_t> moe;
  for (std::size_t i = 0; i < config.layers.size(); ++i) {
    if (config.layers[i].feed_forward == FeedForward::kMoe) {
      moe.push_back(i);
    }
  }

  EXPECT_EQ(moe, (std::vector<std::size_t>{1, 5, 7}));
  EXPECT_FALSE(config.norm_topk_prob);
  EXPECT_TRUE(config.tie_word_embeddings);
  EXPECT_EQ(config.rope.rotary_dims, 16U);
}

TEST(ModelConfig, RenormalisesRoutingOfQwen35WhateverTheFileSays) {
  Json config = fixture::moe_config();
  config["text_config"]["norm_topk_prob"] = false;

  EXPECT_TRUE(fixture::config_of(config).norm_topk_prob);
}

TEST(ModelConfig, LetsTheOuterConfigDecideAboutTying) {
  Json config = fixture::moe_config();
  config["text_config"]["tie_word_embeddings"] = true;

  EXPECT_FALSE(fixture::config_of(config).tie_word_embeddings);
}

TEST(ModelConfig, TiesWhenOnlyTheTextPartSaysSo) {
  Json config = fixture::moe_config();
  config.erase("tie_word_embeddings");
  config["text_config"]["tie_word_embeddings"] = true;

  EXPECT_TRUE(fixture::config_of(config).tie_word_embeddings);
}

TEST(ModelConfig, AcceptsLegacyLayerNamesAndAListOfEndTokens) {
  Json json = fixture::next_config();
  json["layer_types"] = {"attention", "mamba"};
  json["eos_token_id"] = {3, 7};

  const ModelConfig config = fixture::config_of(json);

  EXPECT_EQ(config.layers[0].mixer, Mixer::kAttention);
  EXPECT_EQ(config.layers[1].mixer, Mixer::kGatedDeltaNet);
  EXPECT_EQ(config.eos_token_ids, (std::vector<std::uint32_t>{3, 7}));
}

TEST(ModelConfig, ReadsTheGateActivationOfGdn) {
  Json json = fixture::next_config();
  json["output_gate_type"] = "sigmoid";

  EXPECT_EQ(fixture::config_of(json).gdn_gate, GateActivation::kSigmoid);
}

TEST(ModelConfig, ReadsYarnOfTheGoldenModel) {
  std::ifstream file(source("tests/golden/data/q35-dense/config.yarn.json"));
  std::stringstream text;
  text << file.rdbuf();

  const ModelConfig config = parse_model_config(text.str(), "config.yarn.json").value();

  EXPECT_TRUE(config.rope.yarn);
  EXPECT_EQ(config.rope.factor, 4.0);
  EXPECT_EQ(config.rope.original_context, 128.0);
  EXPECT_EQ(config.rope.beta_fast, 32.0);
  EXPECT_EQ(config.rope.beta_slow, 1.0);
  EXPECT_NEAR(config.rope.attention_factor, 1.138629, 1e-6);
  EXPECT_TRUE(config.rope.truncate);
  EXPECT_EQ(config.max_position_embeddings, 4096U);
}

TEST(ModelConfig, StretchesTheContextThatYarnPromises) {
  Json json = fixture::next_config();
  json["rope_scaling"] = {
      {"type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 64}};

  EXPECT_EQ(fixture::config_of(json).max_position_embeddings, 256U);
}

TEST(ModelConfig, DerivesTheYarnFactorFromTheTwoLengths) {
  Json json = fixture::next_config();
  json["rope_scaling"] = {{"rope_type", "yarn"}, {"factor", nullptr}};
  json["original_max_position_embeddings"] = 16;

  EXPECT_EQ(fixture::config_of(json).rope.factor, 4.0);
}

TEST(ModelConfig, ResolvesMscaleOfYarn) {
  Json json = fixture::next_config();
  json["rope_scaling"] = {
      {"rope_type", "yarn"}, {"factor", 4.0}, {"mscale", 2.0}, {"mscale_all_dim", 1.0}};

  EXPECT_DOUBLE_EQ(fixture::config_of(json).rope.attention_factor,
                   (0.2 * std::log(4.0) + 1.0) / (0.1 * std::log(4.0) + 1.0));
}

TEST(ModelConfig, AcceptsBlockFp8) {
  Json json = fixture::next_config();
  json["quantization_config"] = {
      {"quant_method", "fp8"}, {"fmt", "e4m3"}, {"weight_block_size", {128, 128}}};

  EXPECT_TRUE(parse_model_config(json.dump(), "config.json").has_value());
}

TEST(ExpectedParameters, ListEveryTensorOnceWithItsShape) {
  const auto list = expected_parameters(fixture::config_of(fixture::next_config()));

  EXPECT_EQ(list.size(), 1U + (2 + 9 + 1 + 6 + 4) + (2 + 7 + 1 + 6 + 4) + 2U);
  EXPECT_EQ(list.front(), (ExpectedTensor{"embed", 8, 4}));
  EXPECT_EQ(list[3], (ExpectedTensor{"layers.0.gdn.qkv", 20, 4}));
  EXPECT_EQ(list.back(), (ExpectedTensor{"head", 8, 4}));
}

TEST(ExpectedParameters, LeaveOutATiedHead) {
  Json json = fixture::next_config();
  json["tie_word_embeddings"] = true;

  EXPECT_EQ(expected_parameters(fixture::config_of(json)).back(),
            (ExpectedTensor{"final_norm", 1, 4}));
}

}  // namespace
}  // namespace troupe
