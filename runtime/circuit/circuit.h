// Circuit: what a range of layers computes, as typed nodes and edges, independent of any device.
// The vocabulary of operations is closed: a new operation is a new enumerator that every pass must
// handle. An immutable value once built; pure and deterministic, so two builds of the same model
// print the same text.
//
// CI-1: nodes stand in an order in which every edge is produced before it is read; every tensor
// edge has one producer. CI-2: states (pages, KV) and exchanges (what enters or leaves the stage)
// are edges like any other, with a kind of their own.
#pragma once

#include "kernels/ops.h"
#include "runtime/base/error.h"
#include "runtime/model/config.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

enum class Op : std::uint8_t {
  kEmbed,
  kRopeTable,
  kNorm,
  kAdd,
  kLinear,
  kSiluMul,
  kGdnConv,
  kGdnScan,
  kGdnNorm,
  kAttentionPrepare,
  kAttention,
  kGateMul,
  kRouter,
  kMoePermute,
  kExpertSwiglu,
  kExpertDown,
  kMoeCombine,
  kSample,
};
[[nodiscard]] std::string_view name(Op op);

enum class EdgeKind : std::uint8_t {
  kTensor,    // lives in the workspace, within one step
  kPage,      // part of the recurrent state of a layer
  kKv,        // keys and values of a layer
  kExchange,  // enters or leaves the stage: the residual stream between two stages
};

enum class Element : std::uint8_t { kAct, kF32, kU32 };

struct Edge {
  std::string name;
  EdgeKind kind = EdgeKind::kTensor;
  Element element = Element::kAct;
  RowSet rows = RowSet::kAll;
  std::uint32_t per_row =
      1;  // entries per step row (top_k for routed values); 0: `width` elements in all
  std::uint32_t width = 0;  // elements of an entry
};

using EdgeIndex = std::uint32_t;
using NodeIndex = std::uint32_t;
inline constexpr std::uint32_t kNoLayer = 0xffffffffU;

struct CircuitNode {
  Op op = Op::kEmbed;
  std::string name;
  std::uint32_t layer = kNoLayer;
  std::vector<EdgeIndex> inputs;
  std::vector<EdgeIndex> outputs;
  std::vector<EdgeIndex> states;  // page and KV edges that it reads and writes
  std::vector<std::string>
      parameters;  // Troupe's names (runtime/model/checkpoint.h), in the operation's order
};

// Layers [first, last) of a model; the stage with layer 0 embeds, the one with the last layer has
// the head.
struct StageRange {
  std::uint32_t first = 0;
  std::uint32_t last = 0;
  bool operator==(const StageRange&) const = default;
};

struct Circuit {
  ModelConfig config;
  StageRange range;
  std::vector<Edge> edges;
  std::vector<CircuitNode> nodes;

  [[nodiscard]] bool embeds() const { return range.first == 0; }
  [[nodiscard]] bool has_head() const { return range.last == config.layers.size(); }
  // One line a node: op, name, inputs -> outputs, states, parameters.
  [[nodiscard]] std::string text() const;
};

// Errors: kInvalid for an empty or impossible range.
[[nodiscard]] Result<Circuit> build_circuit(const ModelConfig& config, StageRange range);

}  // namespace troupe
