#include "runtime/model/checkpoint.h"

#include "runtime/model/parameters.h"
#include "tests/model/fixture.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>

namespace troupe {
namespace {

using fixture::Json;
using fixture::Weights;

std::unique_ptr<Checkpoint> open(const fixture::TempDirectory& directory, const Json& config) {
  return Checkpoint::open(directory.path(), fixture::config_of(config)).value();
}

std::unique_ptr<Checkpoint> open(const Weights& weights, const Json& config) {
  const fixture::TempDirectory directory;  // a mapped file outlives its name
  directory.write("model.safetensors", fixture::file_of(weights));
  return open(directory, config);
}

Weights operator+(Weights a, const Weights& b) {
  a.insert(b.begin(), b.end());
  return a;
}

Weights renamed(const Weights& weights, std::string_view from, const std::string& to) {
  Weights out;
  for (const auto& [name, tensor] : weights) {
    out[name.starts_with(from) ? to + name.substr(from.size()) : name] = tensor;
  }
  return out;
}

// The tensors whose turn it is go to the second of two files.
std::pair<Weights, Weights> halves(const Weights& weights) {
  std::pair<Weights, Weights> out;
  bool first = true;
  for (const auto& [name, tensor] : weights) {
    (first ? out.first : out.second)[name] = tensor;
    first = !first;
  }
  return out;
}

std::string index_of(const Weights& first, const Weights& second) {
  Json map;
  for (const auto& [name, tensor] : first) {
    map[name] = "a.safetensors";
  }
  for (const auto& [name, tensor] : second) {
    map[name] = "b.safetensors";
  }
  return Json{{"weight_map", map}}.dump();
}

std::vector<ExpectedTensor> shapes_of(const Checkpoint& checkpoint) {
  std::vector<ExpectedTensor> out;
  for (const TensorView& view : checkpoint.tensors()) {
    out.push_back({view.name, view.rows, view.columns});
  }
  return out;
}

TEST(Checkpoint, GivesTheExpectedParametersOfTheFusedLayout) {
  const auto checkpoint = open(fixture::next_weights(), fixture::next_config());

  EXPECT_EQ(shapes_of(*checkpoint),
            expected_parameters(fixture::config_of(fixture::next_config())));
  EXPECT_FALSE(checkpoint->has_mtp());
}

TEST(Checkpoint, GivesTheExpectedParametersOfTheSplitLayoutAndFusedExperts) {
  const auto checkpoint = open(fixture::moe_weights(), fixture::moe_config());

  EXPECT_EQ(shapes_of(*checkpoint), expected_parameters(fixture::config_of(fixture::moe_config())));
}

TEST(Checkpoint, ViewsFusedExpertsInPlace) {
  const auto checkpoint = open(fixture::moe_weights(), fixture::moe_config());

  const TensorView* gate = checkpoint->find("layers.0.moe.experts.1.gate");
  const TensorView* up = checkpoint->find("layers.0.moe.experts.1.up");
  const TensorView* down = checkpoint->find("layers.0.moe.experts.1.down");

  EXPECT_EQ(gate->first_row, 6U);  // I = 3, so expert 1 starts at row 2I
  EXPECT_EQ(up->first_row, 9U);
  EXPECT_EQ(down->first_row, 4U);  // H = 4
  EXPECT_EQ(gate->data, up->data);
  EXPECT_EQ(up->stored_row(2), 11U);
}

TEST(Checkpoint, ReadsExpertsOfEachLayerInItsOwnForm) {
  Weights weights = fixture::moe_weights();
  weights.erase("model.language_model.layers.1.mlp.experts.gate_up_proj");
  for (const char* name : {"0.gate", "0.up", "1.gate", "1.up"}) {
    weights["model.language_model.layers.1.mlp.experts." + std::string(name) + "_proj.weight"] = {
        "F16", {3, 4}};
  }

  const auto checkpoint = open(weights, fixture::moe_config());

  EXPECT_EQ(checkpoint->find("layers.1.moe.experts.1.up")->dtype, DType::kF16);
  EXPECT_EQ(checkpoint->find("layers.1.moe.experts.1.up")->first_row, 0U);
  EXPECT_EQ(checkpoint->find("layers.1.moe.experts.1.down")->first_row, 4U);
}

TEST(Checkpoint, AcceptsEveryKnownPrefix) {
  const Weights weights = fixture::next_weights();

  EXPECT_EQ(open(renamed(weights, "model.", "model.language_model."), fixture::next_config())
                ->tensors()
                .size(),
            45U);
  EXPECT_EQ(open(renamed(weights, "model.", "language_model.model."), fixture::next_config())
                ->tensors()
                .size(),
            45U);
  EXPECT_EQ(open(renamed(weights, "lm_head", "language_model.lm_head"), fixture::next_config())
                ->tensors()
                .size(),
            45U);
}

TEST(Checkpoint, FindsNothingUnderAnUnknownName) {
  EXPECT_EQ(open(fixture::next_weights(), fixture::next_config())->find("layers.2.mixer_norm"),
            nullptr);
}

TEST(Checkpoint, RunsTiedWithoutAHead) {
  Weights weights = fixture::next_weights();
  weights.erase("lm_head.weight");
  Json config = fixture::next_config();
  config["tie_word_embeddings"] = true;

  EXPECT_EQ(open(weights, config)->find("head"), nullptr);
}

TEST(Checkpoint, PrefersAStoredHeadToATiedOne) {
  Json config = fixture::next_config();
  config["tie_word_embeddings"] = true;

  EXPECT_NE(open(fixture::next_weights(), config)->find("head"), nullptr);
}

TEST(Checkpoint, ReadsAnUngatedQueryProjection) {
  Weights weights = fixture::moe_weights();
  weights["model.language_model.layers.1.self_attn.q_proj.weight"] = {"BF16", {8, 4}};
  Json config = fixture::moe_config();
  config["text_config"]["attn_output_gate"] = false;

  const auto checkpoint = open(weights, config);

  EXPECT_EQ(checkpoint->find("layers.1.attn.gate"), nullptr);
  EXPECT_TRUE(checkpoint->find("layers.1.attn.q")->row_map.empty());
}

TEST(Checkpoint, FindsMtpInTheMainFile) {
  const auto checkpoint =
      open(fixture::next_weights() + fixture::mtp_weights(), fixture::next_config());

  EXPECT_TRUE(checkpoint->has_mtp());
  EXPECT_EQ(checkpoint->find("mtp.fc")->columns, 8U);
  EXPECT_NE(checkpoint->find("mtp.layers.0.moe.experts.1.down"), nullptr);
}

TEST(Checkpoint, FindsMtpInAFileThatNoIndexLists) {
  const fixture::TempDirectory directory;
  const auto [a, b] = halves(fixture::next_weights());
  directory.write("a.safetensors", fixture::file_of(a));
  directory.write("b.safetensors", fixture::file_of(b));
  directory.write("model.safetensors.index.json", index_of(a, b));
  directory.write("extra.safetensors", fixture::file_of(fixture::mtp_weights()));

  EXPECT_TRUE(open(directory, fixture::next_config())->has_mtp());
}

TEST(Checkpoint, FindsMtpInItsOwnFolder) {
  const fixture::TempDirectory directory;
  directory.write("model.safetensors", fixture::file_of(fixture::next_weights()));
  directory.write("mtp/model.safetensors",
                  fixture::file_of(renamed(fixture::mtp_weights(), "mtp.", "model.mtp.")));

  EXPECT_TRUE(open(directory, fixture::next_config())->has_mtp());
}

TEST(Checkpoint, LeavesOtherFilesOfTheFolderAlone) {
  const fixture::TempDirectory directory;
  directory.write("model.safetensors", fixture::file_of(fixture::next_weights()));
  directory.write("adapter.safetensors", fixture::file_of({{"lora.weight", {"F64", {2}}}}));

  const auto checkpoint = open(directory, fixture::next_config());

  EXPECT_EQ(checkpoint->file_bytes(), fixture::file_of(fixture::next_weights()).size());
}

TEST(Checkpoint, ReadsShardsWithoutAnIndex) {
  const fixture::TempDirectory directory;
  const auto [a, b] = halves(fixture::next_weights());
  directory.write("model-00001-of-00002.safetensors", fixture::file_of(a));
  directory.write("model-00002-of-00002.safetensors", fixture::file_of(b));

  const auto checkpoint = open(directory, fixture::next_config());

  EXPECT_EQ(checkpoint->tensors().size(), 45U);
  EXPECT_EQ(checkpoint->file_bytes(), fixture::file_of(a).size() + fixture::file_of(b).size());
}

TEST(Checkpoint, ReadsBlockFp8WithItsScales) {
  Weights weights = fixture::next_weights();
  weights["model.layers.1.self_attn.q_proj.weight"].dtype = "F8_E4M3";
  weights["model.layers.1.self_attn.q_proj.weight_scale_inv"] = {"F32", {1, 1}};

  const auto checkpoint = open(weights, fixture::next_config());
  const TensorView* query = checkpoint->find("layers.1.attn.q");
  const TensorView* gate = checkpoint->find("layers.1.attn.gate");

  EXPECT_EQ(query->dtype, DType::kF8E4M3);
  EXPECT_EQ(query->scale_dtype, DType::kF32);
  EXPECT_EQ(query->scale_columns, 1U);
  EXPECT_NE(query->scale, nullptr);
  EXPECT_EQ(query->scale, gate->scale);
}

TEST(Checkpoint, ReadsTheSameBytesAfterRelease) {
  const auto checkpoint = open(fixture::next_weights(), fixture::next_config());
  const TensorView* qkv = checkpoint->find("layers.0.gdn.qkv");
  std::vector<std::byte> before(std::size_t{32} * 4 * 2);  // all stored rows: 2Kd + 2Vd = 32
  std::memcpy(before.data(), qkv->data, before.size());

  checkpoint->release(*qkv);
  checkpoint->release(*checkpoint->find("embed"));

  EXPECT_EQ(std::memcmp(before.data(), qkv->data, before.size()), 0);
}

TEST(Checkpoint, DigestsNamesSizesAndHeadersButNotWeights) {
  const std::string file = fixture::file_of(fixture::next_weights());
  std::string other_weights = file;
  other_weights.back() = 'x';
  Weights f16 = fixture::next_weights();
  f16["model.norm.weight"].dtype = "F16";
  const auto digest = [](const std::string& name, const std::string& bytes) {
    const fixture::TempDirectory directory;
    directory.write(name, bytes);
    return open(directory, fixture::next_config())->header_digest();
  };

  const std::string reference = digest("model.safetensors", file);

  EXPECT_EQ(reference.size(), 64U);
  EXPECT_EQ(digest("model.safetensors", other_weights), reference);
  EXPECT_NE(digest("weights.safetensors", file), reference);
  EXPECT_NE(digest("model.safetensors", fixture::file_of(f16)), reference);
}

}  // namespace
}  // namespace troupe
