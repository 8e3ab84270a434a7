#include "runtime/circuit/fusion_plan.h"

#include "tests/circuit/published.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>

namespace troupe::test {
namespace {

FusionPlan plan_of(const Circuit& circuit, PlanShape shape, std::bitset<kRuleCount> disabled = {}) {
  return make_fusion_plan(circuit, full_catalog(), shape, disabled).value();
}

// The first 4 layers (3 GDN, 1 attention) and the last one with the head say all that a plan can
// say: the rest repeats them.
std::string shortened(ModelConfig config, PlanShape shape) {
  config.layers.resize(4);
  const Circuit circuit = whole(config);
  return plan_of(circuit, shape).text(circuit);
}

struct Golden {
  std::string model;
  PlanShape shape;
};

class PlanText : public testing::TestWithParam<Golden> {};

TEST_P(PlanText, EqualsTheRecordedOne) {
  const auto& [model, shape] = GetParam();
  const std::string path = std::string(TROUPE_SOURCE_DIR) + "/tests/circuit/plans/" + model + "-" +
                           std::string(name(shape.mode)) + "-" + std::to_string(shape.rows) +
                           ".txt";
  const std::string text = shortened(published(model), shape);
  if (std::getenv("UPDATE_GOLDEN") != nullptr) {
    std::ofstream(path) << text;
  }

  std::ifstream file(path);
  const std::string recorded{std::istreambuf_iterator<char>(file),
                             std::istreambuf_iterator<char>()};

  EXPECT_EQ(text, recorded) << "set UPDATE_GOLDEN=1 to record " << path;
}

std::vector<Golden> goldens() {
  std::vector<Golden> all;
  for (const std::string& model : published_names()) {
    all.push_back({model, {.mode = Mode::kDecode, .rows = 8, .sampled = 8}});
    all.push_back({model, {.mode = Mode::kRows, .rows = 128, .sampled = 64}});
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(
    Published, PlanText, testing::ValuesIn(goldens()), [](const auto& instance) {
      std::string id = instance.param.model + "_" + std::string(name(instance.param.shape.mode));
      std::replace_if(
          id.begin(), id.end(), [](char c) { return c == '-' || c == '.'; }, '_');
      return id;
    });

TEST(FusionPlan, CoversEveryNodeOnce) {
  for (const std::string& model : published_names()) {
    const Circuit circuit = whole(published(model));
    for (unsigned long disabled = 0; disabled < (1UL << kRuleCount); disabled += 2) {
      const FusionPlan plan = plan_of(circuit, {.rows = 4, .sampled = 4}, disabled);
      std::vector<int> times(circuit.nodes.size(), 0);
      for (const Group& group : plan.groups) {
        for (const NodeIndex n : group.nodes) {
          ++times[n];
        }
      }
      EXPECT_EQ(std::count(times.begin(), times.end(), 1),
                static_cast<std::ptrdiff_t>(times.size()));
      EXPECT_EQ(plan.counts.kernels, plan.groups.size());
    }
  }
}

TEST(FusionPlan, NeedsFifteenLaunchesForAGdnMoeLayer) {
  ModelConfig config = published("qwen3.5-35b-a3b");
  const auto groups = [&](std::size_t layers) {
    config.layers.resize(layers);
    return plan_of(whole(config), {.rows = 1, .sampled = 1}).groups.size();
  };
  // norm+residual twice, projections, conv, scan, gated norm, out; router logits, shared, router,
  // permute, swiglu, down, shared down, combine
  EXPECT_EQ(groups(3) - groups(2), 15U);
}

TEST(FusionPlan, NamesTheNodeThatNoKernelCovers) {
  const Circuit circuit = whole(published("qwen3.5-27b"));
  KernelCatalog catalog = full_catalog();
  catalog.kernel_set = "thin";
  catalog.kernels.reset(static_cast<std::size_t>(KernelId::kGdnScan));

  const auto plan = make_fusion_plan(circuit, catalog, {.rows = 1, .sampled = 1});

  ASSERT_FALSE(plan.has_value());
  EXPECT_EQ(plan.error().kind, Kind::kUnsupported);
  EXPECT_EQ(plan.error().message,
            "node layers.0.gdn.scan needs kernel gdn_scan, which kernel set thin does not have for "
            "these activations");
}

TEST(FusionPlan, RefusesMoreSampledRowsThanRows) {
  const Circuit circuit = whole(published("qwen3.5-27b"));
  EXPECT_EQ(make_fusion_plan(circuit, full_catalog(), {.rows = 2, .sampled = 3}).error().message,
            "a plan for 2 rows, 3 of them sampled: rows must be at least 1 and not fewer than the "
            "sampled ones");
}

TEST(FusionPlan, OfAStageWithoutHeadEndsWithTheResidualStream) {
  const Circuit circuit = build_circuit(published("qwen3.5-27b"), {0, 8}).value();
  const FusionPlan plan = plan_of(circuit, {.rows = 16, .sampled = 16});
  EXPECT_EQ(circuit.edges[plan.groups.back().writes.back()].name, "stage_out");
}

}  // namespace
}  // namespace troupe::test
