// FusionPlan: which kernel runs which nodes of a circuit, in which order, for one mode and row
// count on one device. Pure and deterministic: rules are tried in a fixed order, greedily; the text
// of a plan is tested against a recorded one.
//
// FP-1: every node is covered by exactly one group; a node that no kernel of the catalog covers is
// an error that names it. FP-2: each rule says how its result relates to the unfused one; `exact`
// plans use no rule that differs. FP-3: what a plan lists is what runs: a program's launches equal
// `groups`, one kernel each (promise P5).
#pragma once

#include "kernels/ops.h"
#include "runtime/base/error.h"
#include "runtime/circuit/circuit.h"

#include <bitset>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace troupe {

// How a rule's kernel relates to running its nodes one by one.
enum class NumericsClass : std::uint8_t {
  kReference,     // a single node: defines the numbers
  kBitIdentical,  // same bits as the unfused nodes (tested by Fusion.EveryRuleKeepsTheBits)
};
[[nodiscard]] std::string_view name(NumericsClass numerics);

enum class Rule : std::uint8_t {
  kSingle,          // one node, one kernel
  kResidualNorm,    // add, norm -> norm that adds first
  kSwigluLinear,    // gate linear, up linear, silu_mul -> one linear with a SwiGLU epilogue
  kSiblingLinears,  // linears of the same input -> one launch of up to kLinearParts weights
  kAttentionGate,   // attention, gate_mul -> attention that gates its output
};
inline constexpr std::size_t kRuleCount = 5;
[[nodiscard]] std::string_view name(Rule rule);

// What a device can run: plans are made against this, not against a device (decision D6).
struct KernelCatalog {
  std::string kernel_set;
  Activation activation = Activation::kBF16;
  std::bitset<kKernelCount> kernels;
  bool formats[3] = {true, true, true};  // by WeightFormat
};
[[nodiscard]] KernelCatalog make_catalog(const KernelSet& set, Activation activation);

enum class Mode : std::uint8_t { kDecode, kRows };
[[nodiscard]] std::string_view name(Mode mode);

// The ladder of decode row counts (ARCHITECTURE.md section 4).
inline constexpr std::uint32_t kDecodeLadder[] = {1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128};

struct PlanShape {
  Mode mode = Mode::kDecode;
  std::uint32_t rows = 1;     // capacity
  std::uint32_t sampled = 1;  // capacity of sampled rows
};

// A linear of a group: one weight, or a gate and an up weight for SwiGLU. Nodes that make several
// weights (b and a) make several parts; `column` says where in the output row the part begins.
struct PlanPart {
  std::vector<std::string> parameters;  // 1, or 2 = {gate, up}
  EdgeIndex output = 0;
  std::uint32_t column = 0;
  std::uint32_t outputs = 0;
};

struct Group {
  KernelId kernel = KernelId::kEmbed;
  Rule rule = Rule::kSingle;
  NumericsClass numerics = NumericsClass::kReference;
  std::vector<NodeIndex> nodes;  // in circuit order
  std::vector<EdgeIndex> reads;  // tensors and exchanges
  std::vector<EdgeIndex> writes;
  std::vector<PlanPart> parts;  // kLinear only
  // (written, read): the written edge takes the place of the read one, which must end here.
  std::vector<std::pair<EdgeIndex, EdgeIndex>> in_place;
};

struct LaunchCounts {
  std::uint32_t kernels = 0;
  std::uint32_t copies = 0;
  std::uint32_t events = 0;
  std::uint32_t collectives = 0;
  bool operator==(const LaunchCounts&) const = default;
};

struct FusionPlan {
  PlanShape shape;
  KernelCatalog catalog;
  std::vector<Group> groups;
  LaunchCounts counts;

  // One line a group; the first lines say model, mode, rows, kernel set, counts.
  [[nodiscard]] std::string text(const Circuit& circuit) const;
};

// `disabled` rules are not tried: every rule can be proven against the plan without it.
[[nodiscard]] Result<FusionPlan> make_fusion_plan(const Circuit& circuit,
                                                  const KernelCatalog& catalog,
                                                  const PlanShape& shape,
                                                  std::bitset<kRuleCount> disabled = {});

}  // namespace troupe
