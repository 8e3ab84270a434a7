#include "runtime/circuit/circuit.h"

#include "tests/circuit/published.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace troupe::test {
namespace {

TEST(Circuit, ProducesEveryEdgeOnceAndBeforeItIsRead) {
  for (const std::string& name : published_names()) {
    const Circuit circuit = whole(published(name));
    std::set<EdgeIndex> written;
    for (const CircuitNode& node : circuit.nodes) {
      for (const EdgeIndex e : node.inputs) {
        EXPECT_TRUE(written.contains(e))
            << name << ": " << node.name << " reads " << circuit.edges[e].name;
      }
      for (const EdgeIndex e : node.outputs) {
        EXPECT_TRUE(written.insert(e).second)
            << name << ": " << circuit.edges[e].name << " is written twice";
      }
    }
  }
}

TEST(Circuit, NamesEveryParameterOfThePublishedModels) {
  const ModelConfig config = published("qwen3.5-35b-a3b");
  std::set<std::string> names;
  const Circuit circuit = whole(config);
  for (const CircuitNode& node : circuit.nodes) {
    for (const std::string& parameter : node.parameters) {
      EXPECT_TRUE(names.insert(parameter).second) << parameter << " is used twice";
    }
  }
  // embed, final_norm, head; 2 norms a layer; 9 of a GDN layer (30), 7 of an attention layer (10);
  // router, 3 shared and the shared gate a layer; 3 of each of 256 experts a layer.
  EXPECT_EQ(names.size(), 3U + 40 * 2 + 30 * 9 + 10 * 7 + 40 * 5 + 40 * 256 * 3);
}

TEST(Circuit, HasStatesAsEdges) {
  const Circuit circuit = whole(published("qwen3.5-27b"));
  const auto count = [&](EdgeKind kind) {
    return std::count_if(circuit.edges.begin(), circuit.edges.end(), [kind](const Edge& e) {
      return e.kind == kind;
    });
  };
  EXPECT_EQ(count(EdgeKind::kPage), 48 * 2);
  EXPECT_EQ(count(EdgeKind::kKv), 16);
  EXPECT_EQ(count(EdgeKind::kExchange), 0);
}

TEST(Circuit, OfAMiddleStageReceivesAndSendsTheResidualStream) {
  const Circuit circuit = build_circuit(published("qwen3-next-80b-a3b"), {12, 24}).value();

  std::vector<std::string> exchanges;
  for (const Edge& edge : circuit.edges) {
    if (edge.kind == EdgeKind::kExchange) {
      exchanges.push_back(edge.name);
    }
  }

  EXPECT_EQ(exchanges, (std::vector<std::string>{"stage_in", "stage_out"}));
  for (const CircuitNode& node : circuit.nodes) {
    EXPECT_NE(node.op, Op::kEmbed);
    EXPECT_NE(node.op, Op::kSample);
  }
}

TEST(Circuit, RefusesAnEmptyOrTooLongRange) {
  const ModelConfig config = published("qwen3.5-27b");
  EXPECT_EQ(build_circuit(config, {5, 5}).error().message,
            "a stage of layers [5, 5) is empty or beyond the model's 64 layers");
  EXPECT_EQ(build_circuit(config, {0, 65}).error().message,
            "a stage of layers [0, 65) is empty or beyond the model's 64 layers");
}

TEST(Circuit, TextIsTheSameForEveryBuild) {
  const ModelConfig config = published("qwen3-next-80b-a3b");
  EXPECT_EQ(whole(config).text(), whole(config).text());
}

}  // namespace
}  // namespace troupe::test
