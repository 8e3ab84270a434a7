// Directories whose files are whole but do not make the model, each with the whole message.
#include "runtime/model/checkpoint.h"
#include "tests/model/fixture.h"

#include <gtest/gtest.h>

#include <string>

namespace troupe {
namespace {

using fixture::Json;
using fixture::Weights;

// What opening a directory with this one file says.
std::string single(const Weights& weights, const Json& config) {
  const fixture::TempDirectory directory;
  directory.write("model.safetensors", fixture::file_of(weights));
  std::string text = fixture::open_error(directory.path(), config);
  const std::string path = directory.path().string();
  return text.starts_with(path) ? "DIR" + text.substr(path.size()) : text;
}

std::string next_with(const std::string& name, const fixture::Stored& tensor) {
  Weights weights = fixture::next_weights();
  weights[name] = tensor;
  return single(weights, fixture::next_config());
}

std::string next_without(const std::string& name) {
  Weights weights = fixture::next_weights();
  EXPECT_EQ(weights.erase(name), 1U);
  return single(weights, fixture::next_config());
}

TEST(CheckpointRefusal, PathIsNotADirectory) {
  EXPECT_EQ(fixture::open_error("/nowhere", fixture::next_config()),
            "/nowhere: not a directory; give the folder of the model");
}

TEST(CheckpointRefusal, DirectoryWithoutWeights) {
  const fixture::TempDirectory directory;

  EXPECT_EQ(fixture::open_error(directory.path(), fixture::next_config()),
            directory.path().string() + ": no *.safetensors file in this directory");
}

TEST(CheckpointRefusal, MissingTensor) {
  EXPECT_EQ(next_without("model.layers.0.linear_attn.A_log"),
            "DIR: no file has tensor \"layers.0.linear_attn.A_log\" under any known prefix; "
            "config.json asks for it with "
            "shape [4]");
}

TEST(CheckpointRefusal, MissingExpert) {
  EXPECT_EQ(next_without("model.layers.1.mlp.experts.1.up_proj.weight"),
            "DIR: no file has tensor \"layers.1.mlp.experts.1.up_proj.weight\" under any known "
            "prefix; config.json asks "
            "for it with shape [3, 4]");
}

TEST(CheckpointRefusal, NeitherGdnLayout) {
  EXPECT_EQ(next_without("model.layers.0.linear_attn.in_proj_qkvz.weight"),
            "DIR: no file has tensor \"layers.0.linear_attn.in_proj_qkv.weight\" under any known "
            "prefix; config.json asks "
            "for it with shape [20, 4]");
}

TEST(CheckpointRefusal, UntiedWithoutHead) {
  EXPECT_EQ(next_without("lm_head.weight"),
            "DIR: no file has tensor \"lm_head.weight\" under any known prefix; config.json asks "
            "for it with shape [8, 4] "
            "because tie_word_embeddings is false");
}

TEST(CheckpointRefusal, WrongShape) {
  EXPECT_EQ(next_with("model.layers.1.self_attn.k_proj.weight", {"BF16", {8, 4}}),
            "model.safetensors: tensor \"model.layers.1.self_attn.k_proj.weight\" has shape [8, "
            "4], config.json asks for "
            "[4, 4]");
}

TEST(CheckpointRefusal, QueryProjectionWithoutItsGate) {
  EXPECT_EQ(next_with("model.layers.1.self_attn.q_proj.weight", {"BF16", {8, 4}}),
            "model.safetensors: tensor \"model.layers.1.self_attn.q_proj.weight\" has shape [8, "
            "4], config.json asks for "
            "[16, 4]");
}

TEST(CheckpointRefusal, ConvolutionInMlxOrder) {
  EXPECT_EQ(next_with("model.layers.0.linear_attn.conv1d.weight", {"BF16", {20, 4, 1}}),
            "model.safetensors: tensor \"model.layers.0.linear_attn.conv1d.weight\" has shape [20, "
            "4, 1], config.json asks "
            "for [20, 1, 4]");
}

TEST(CheckpointRefusal, TransposedFusedExperts) {
  Weights weights = fixture::moe_weights();
  weights["model.language_model.layers.0.mlp.experts.gate_up_proj"].shape = {2, 4, 6};

  EXPECT_EQ(single(weights, fixture::moe_config()),
            "model.safetensors: tensor \"model.language_model.layers.0.mlp.experts.gate_up_proj\" "
            "has shape [2, 4, 6], "
            "config.json asks for [2, 6, 4]");
}

TEST(CheckpointRefusal, IntegerWeights) {
  EXPECT_EQ(next_with("model.norm.weight", {"I32", {4}}),
            "model.safetensors: tensor \"model.norm.weight\" is I32, expected BF16, F16 or F32");
}

TEST(CheckpointRefusal, DoubleWeights) {
  EXPECT_EQ(next_with("lm_head.weight", {"F64", {8, 4}}),
            "model.safetensors: tensor \"lm_head.weight\" is F64, expected BF16, F16 or F32, or "
            "F8_E4M3 with scales");
}

TEST(CheckpointRefusal, TypeThatIsOnlySkippedElsewhere) {
  EXPECT_EQ(next_with("model.norm.weight", {"BOOL", {4}}),
            "model.safetensors: tensor \"model.norm.weight\" is BOOL, expected BF16, F16 or F32");
}

TEST(CheckpointRefusal, Fp8Norm) {
  EXPECT_EQ(
      next_with("model.norm.weight", {"F8_E4M3", {4}}),
      "model.safetensors: tensor \"model.norm.weight\" is F8_E4M3, expected BF16, F16 or F32");
}

TEST(CheckpointRefusal, Fp8WithoutScale) {
  EXPECT_EQ(next_with("model.layers.1.self_attn.k_proj.weight", {"F8_E4M3", {4, 4}}),
            "model.safetensors: tensor \"model.layers.1.self_attn.k_proj.weight\" is F8_E4M3, but "
            "no file has its scales "
            "\"model.layers.1.self_attn.k_proj.weight_scale_inv\"");
}

TEST(CheckpointRefusal, Fp8WithScaleOfAnotherShape) {
  Weights weights = fixture::next_weights();
  weights["model.layers.1.self_attn.k_proj.weight"].dtype = "F8_E4M3";
  weights["model.layers.1.self_attn.k_proj.weight_scale_inv"] = {"BF16", {4, 1}};

  EXPECT_EQ(single(weights, fixture::next_config()),
            "model.safetensors: tensor \"model.layers.1.self_attn.k_proj.weight_scale_inv\" has "
            "shape [4, 1], expected "
            "[1, 1]: one scale for each 128 x 128 block of [4, 4]");
}

TEST(CheckpointRefusal, Fp8WithScaleOfAnotherType) {
  Weights weights = fixture::next_weights();
  weights["model.layers.1.self_attn.k_proj.weight"].dtype = "F8_E4M3";
  weights["model.layers.1.self_attn.k_proj.weight_scale_inv"] = {"F16", {1, 1}};

  EXPECT_EQ(single(weights, fixture::next_config()),
            "model.safetensors: tensor \"model.layers.1.self_attn.k_proj.weight_scale_inv\" is "
            "F16, expected BF16 or F32");
}

TEST(CheckpointRefusal, ScaleOfAWeightThatIsNotFp8) {
  EXPECT_EQ(next_with("model.layers.1.self_attn.k_proj.weight_scale_inv", {"BF16", {1, 1}}),
            "model.safetensors: tensor \"model.layers.1.self_attn.k_proj.weight_scale_inv\" (BF16 "
            "[1, 1]) is not one that "
            "config.json asks for");
}

TEST(CheckpointRefusal, FusedExpertsInFp8) {
  Weights weights = fixture::moe_weights();
  weights["model.language_model.layers.0.mlp.experts.down_proj"].dtype = "F8_E4M3";

  EXPECT_EQ(single(weights, fixture::moe_config()),
            "model.safetensors: tensor \"model.language_model.layers.0.mlp.experts.down_proj\" "
            "holds all experts in F8_E4M3; "
            "Troupe runs FP8 experts stored one by one");
}

TEST(CheckpointRefusal, LeftOverTensor) {
  EXPECT_EQ(next_with("model.layers.2.input_layernorm.weight", {"BF16", {4}}),
            "model.safetensors: tensor \"model.layers.2.input_layernorm.weight\" (BF16 [4]) is not "
            "one that config.json "
            "asks for");
}

TEST(CheckpointRefusal, BiasOfAProjection) {
  EXPECT_EQ(next_with("model.layers.1.self_attn.q_proj.bias", {"BF16", {16}}),
            "model.safetensors: tensor \"model.layers.1.self_attn.q_proj.bias\" (BF16 [16]) is not "
            "one that config.json "
            "asks for");
}

TEST(CheckpointRefusal, TensorUnderTwoPrefixes) {
  EXPECT_EQ(next_with("model.language_model.norm.weight", {"BF16", {4}}),
            "model.safetensors: tensor \"model.norm.weight\" is also in model.safetensors as "
            "\"model.language_model.norm.weight\": keep one of the two");
}

TEST(CheckpointRefusal, GptqTensor) {
  EXPECT_EQ(next_with("model.layers.1.self_attn.k_proj.qweight", {"I32", {1, 4}}),
            "model.safetensors: tensor \"model.layers.1.self_attn.k_proj.qweight\" belongs to GPTQ "
            "or AWQ quantisation; "
            "Troupe runs unquantised weights and FP8 in blocks of 128 x 128");
}

TEST(CheckpointRefusal, Nvfp4Tensor) {
  EXPECT_EQ(next_with("model.layers.1.self_attn.k_proj.weight_scale_2", {"F32", {}}),
            "model.safetensors: tensor \"model.layers.1.self_attn.k_proj.weight_scale_2\" belongs "
            "to NVFP4 quantisation; "
            "Troupe runs unquantised weights and FP8 in blocks of 128 x 128");
}

TEST(CheckpointRefusal, CompressedTensor) {
  EXPECT_EQ(next_with("model.layers.1.self_attn.k_proj.weight_packed", {"U8", {4, 2}}),
            "model.safetensors: tensor \"model.layers.1.self_attn.k_proj.weight_packed\" belongs "
            "to compressed-tensors "
            "quantisation; Troupe runs unquantised weights and FP8 in blocks of 128 x 128");
}

TEST(CheckpointRefusal, MlxExport) {
  const fixture::TempDirectory directory;
  Json header = fixture::header_of(fixture::next_weights());
  header["__metadata__"] = {{"format", "mlx"}};
  std::uint64_t bytes = 0;
  for (const auto& [name, tensor] : fixture::next_weights()) {
    bytes += fixture::bytes_of(tensor);
  }
  directory.write("model.safetensors", fixture::file_with(header.dump(), bytes));

  EXPECT_EQ(fixture::open_error(directory.path(), fixture::next_config()),
            "model.safetensors: an MLX export, whose norms are stored as 1 + w: use the original "
            "release");
}

TEST(CheckpointRefusal, UnalignedTensor) {
  const fixture::TempDirectory directory;
  std::string header = fixture::header_of(fixture::next_weights()).dump();
  header.resize(header.size() / 8 * 8 + 9, ' ');
  std::uint64_t bytes = 0;
  for (const auto& [name, tensor] : fixture::next_weights()) {
    bytes += fixture::bytes_of(tensor);
  }
  directory.write("model.safetensors", fixture::file_with(header, bytes));

  EXPECT_EQ(fixture::open_error(directory.path(), fixture::next_config()),
            "model.safetensors: tensor \"model.embed_tokens.weight\" is not aligned to its 2-byte "
            "elements: save the file "
            "again with safetensors");
}

TEST(CheckpointRefusal, IncompleteMtp) {
  Weights weights = fixture::next_weights();
  weights["mtp.norm.weight"] = {"BF16", {4}};

  EXPECT_EQ(single(weights, fixture::next_config()),
            "DIR: the MTP layer is incomplete: no file has tensor \"mtp.fc.weight\" under any "
            "known prefix; config.json "
            "asks for it with shape [4, 8]");
}

TEST(CheckpointRefusal, SecondMtpLayer) {
  Weights weights = fixture::next_weights();
  weights.merge(fixture::mtp_weights());
  weights["mtp.layers.1.input_layernorm.weight"] = {"BF16", {4}};

  EXPECT_EQ(single(weights, fixture::next_config()),
            "model.safetensors: tensor \"mtp.layers.1.input_layernorm.weight\" (BF16 [4]) is not "
            "one that config.json asks "
            "for");
}

TEST(CheckpointRefusal, TensorInTwoShards) {
  const fixture::TempDirectory directory;
  directory.write("model-00001-of-00002.safetensors", fixture::file_of(fixture::next_weights()));
  directory.write("model-00002-of-00002.safetensors",
                  fixture::file_of({{"model.norm.weight", {"BF16", {4}}}}));

  EXPECT_EQ(fixture::open_error(directory.path(), fixture::next_config()),
            "model-00002-of-00002.safetensors: tensor \"model.norm.weight\" is also in "
            "model-00001-of-00002.safetensors as "
            "\"model.norm.weight\": keep one of the two");
}

TEST(CheckpointRefusal, MtpInTwoFiles) {
  const fixture::TempDirectory directory;
  Weights weights = fixture::next_weights();
  weights.merge(fixture::mtp_weights());
  directory.write("model.safetensors", fixture::file_of(weights));
  directory.write("mtp.safetensors", fixture::file_of({{"mtp.norm.weight", {"BF16", {4}}}}));

  EXPECT_EQ(fixture::open_error(directory.path(), fixture::next_config()),
            "mtp.safetensors: tensor \"mtp.norm.weight\" is also in model.safetensors as "
            "\"mtp.norm.weight\": keep one of "
            "the two");
}

TEST(CheckpointRefusal, ShardThatIsNotThere) {
  const fixture::TempDirectory directory;
  directory.write("model-00001-of-00003.safetensors", fixture::file_of(fixture::next_weights()));

  EXPECT_EQ(fixture::open_error(directory.path(), fixture::next_config()),
            "model-00001-of-00003.safetensors: its name promises 3 shards, but 1 are here: "
            "download the others");
}

TEST(CheckpointRefusal, IndexThatNamesAMissingShard) {
  const fixture::TempDirectory directory;
  directory.write("a.safetensors", fixture::file_of(fixture::next_weights()));
  directory.write("model.safetensors.index.json",
                  R"({"weight_map": {"model.norm.weight": "b.safetensors"}})");

  EXPECT_EQ(fixture::open_error(directory.path(), fixture::next_config()),
            "model.safetensors.index.json: tensor \"model.norm.weight\" is in shard b.safetensors, "
            "which is not here: "
            "download it");
}

TEST(CheckpointRefusal, IndexThatNamesATensorTheShardLacks) {
  const fixture::TempDirectory directory;
  directory.write("a.safetensors", fixture::file_of(fixture::next_weights()));
  directory.write(
      "model.safetensors.index.json",
      R"({"weight_map": {"lm_head.weight": "a.safetensors", "model.other.weight": "a.safetensors"}})");

  EXPECT_EQ(fixture::open_error(directory.path(), fixture::next_config()),
            "model.safetensors.index.json: tensor \"model.other.weight\" is said to be in "
            "a.safetensors, which does not "
            "have it: download index and shards again");
}

TEST(CheckpointRefusal, EmptyIndex) {
  const fixture::TempDirectory directory;
  directory.write("a.safetensors", fixture::file_of(fixture::next_weights()));
  directory.write("model.safetensors.index.json", R"({"weight_map": {}})");

  EXPECT_EQ(fixture::open_error(directory.path(), fixture::next_config()),
            "model.safetensors.index.json: weight_map is empty");
}

TEST(CheckpointRefusal, DamagedFileBesideTheModel) {
  const fixture::TempDirectory directory;
  directory.write("model.safetensors", fixture::file_of(fixture::next_weights()));
  directory.write("mtp.safetensors", "half");

  EXPECT_EQ(fixture::open_error(directory.path(), fixture::next_config()),
            "mtp.safetensors: truncated: 4 bytes, a safetensors file has at least 8");
}

}  // namespace
}  // namespace troupe
