#include "runtime/circuit/layout.h"

#include "runtime/program/ledger.h"
#include "runtime/program/plans.h"
#include "tests/circuit/published.h"

#include <gtest/gtest.h>

namespace troupe::test {
namespace {

DType bf16_everywhere(std::string_view /*name*/) {
  return DType::kBF16;
}

TEST(Layout, LifetimesNeverOverlapInThePublishedModels) {
  for (const std::string& name : published_names()) {
    const Circuit circuit = whole(published(name));
    for (const std::uint32_t rows : {1U, 17U, 512U}) {
      const FusionPlan plan =
          make_fusion_plan(circuit, full_catalog(), {.rows = rows, .sampled = rows}).value();
      const WorkspaceLayout layout = make_workspace_layout(circuit, plan);
      const Status proof = check_layout(circuit, plan, layout);
      EXPECT_TRUE(proof.has_value()) << name << ": " << (proof ? "" : proof.error().message);
    }
  }
}

TEST(Layout, ReusesMemory) {
  const Circuit circuit = whole(published("qwen3.5-27b"));
  const FusionPlan plan =
      make_fusion_plan(circuit, full_catalog(), {.rows = 64, .sampled = 1}).value();
  const WorkspaceLayout layout = make_workspace_layout(circuit, plan);
  std::uint64_t sum = 0;
  for (const EdgePlace& place : layout.places) {
    sum += place.bytes;
  }
  EXPECT_LT(layout.bytes * 20, sum);
}

TEST(Layout, ProofFindsTwoLiveEdgesInOnePlace) {
  const Circuit circuit = whole(published("qwen3.5-27b"));
  const FusionPlan plan =
      make_fusion_plan(circuit, full_catalog(), {.rows = 2, .sampled = 2}).value();
  WorkspaceLayout layout = make_workspace_layout(circuit, plan);
  const auto edge = [&](std::string_view wanted) {
    for (EdgeIndex e = 0; e < circuit.edges.size(); ++e) {
      if (circuit.edges[e].name == wanted) {
        return e;
      }
    }
    return EdgeIndex{0};
  };
  layout.places[edge("layers.0.gdn.z")].offset = layout.places[edge("layers.0.gdn.qkv")].offset;

  const Status proof = check_layout(circuit, plan, layout);

  ASSERT_FALSE(proof.has_value());
  EXPECT_EQ(
      proof.error().message,
      "edges layers.0.gdn.qkv and layers.0.gdn.z share workspace while both are alive at group 3");
}

TEST(Layout, WeightBytesOfThePublishedModelsAreTheirParameters) {
  const ModelConfig config = published("qwen3.5-35b-a3b");
  const StagePlans plans =
      make_stage_plans(config, {0, 40}, full_catalog(), bf16_everywhere, "none", {}, 0).value();
  // 34.661e9 parameters of two bytes; panels pad a little, norms are held in fp32.
  EXPECT_NEAR(
      static_cast<double>(plans.info.ledger.weight_bytes), 34.661e9 * 2, 34.661e9 * 2 * 0.001);
}

TEST(Layout, StateOfThePublishedModelsHasTheirDocumentedSize) {
  const Circuit circuit = whole(published("qwen3.5-35b-a3b"));
  const StateLayout states = make_state_layout(circuit, Activation::kBF16);
  // 30 layers: 32 matrices of 128 x 128 and a window of 3 x 8192, all fp32.
  EXPECT_EQ(states.page_bytes, 30ULL * 4 * (32 * 128 * 128 + 3 * 8192));
  EXPECT_EQ(states.block_bytes(), 20480ULL * kBlockTokens);
}

TEST(Ledger, RefusesWhatDoesNotFitWithTheArithmetic) {
  const ModelConfig config = published("qwen3.5-397b-a17b");
  const auto plans =
      make_stage_plans(config, {0, 60}, full_catalog(), bf16_everywhere, "none", {}, 64ULL << 30);
  ASSERT_FALSE(plans.has_value());
  EXPECT_EQ(plans.error().kind, Kind::kOverloaded);
  EXPECT_TRUE(plans.error().message.starts_with("the model does not fit: 739."))
      << plans.error().message;
  EXPECT_NE(plans.error().message.find("64.0 GiB available"), std::string::npos)
      << plans.error().message;
  EXPECT_NE(plans.error().message.find("weights\n"), std::string::npos) << plans.error().message;
}

TEST(Ledger, GivesWhatWasWantedWhereNothingLimitsIt) {
  const ModelConfig config = published("qwen3.5-35b-a3b");
  const auto plans =
      make_stage_plans(config, {0, 40}, full_catalog(), bf16_everywhere, "none", {}, 0).value();
  EXPECT_EQ(plans.info.ledger.pages, 2 * StageOptions{}.max_segments + 1);
  EXPECT_EQ(plans.info.ledger.blocks, config.max_position_embeddings / kBlockTokens);
  EXPECT_EQ(plans.info.max_context, config.max_position_embeddings);
}

TEST(Digests, ArithmeticDigestIsTheSameForEveryStageAndDiffersByModel) {
  const ModelConfig config = published("qwen3.5-35b-a3b");
  const auto digest = [&](StageRange range, const std::string& hash) {
    return make_stage_plans(config, range, full_catalog(), bf16_everywhere, hash, {}, 0)
        .value()
        .info.arithmetic_digest;
  };
  EXPECT_EQ(digest({0, 40}, "a"), digest({10, 20}, "a"));
  EXPECT_NE(digest({0, 40}, "a"), digest({0, 40}, "b"));
}

TEST(BytesText, UsesBinaryUnits) {
  EXPECT_EQ(bytes_text(17), "17 bytes");
  EXPECT_EQ(bytes_text(1536), "1.5 KiB");
  EXPECT_EQ(bytes_text(3ULL << 30), "3.0 GiB");
}

}  // namespace
}  // namespace troupe::test
