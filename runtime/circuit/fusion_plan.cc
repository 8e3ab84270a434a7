#include "runtime/circuit/fusion_plan.h"

#include <algorithm>
#include <array>
#include <optional>

namespace troupe {
namespace {

constexpr std::array<std::string_view, kRuleCount> kRuleNames = {
    "single", "residual_norm", "swiglu_linear", "sibling_linears", "attention_gate"};

KernelId kernel_of(Op op) {
  switch (op) {
    case Op::kEmbed:
      return KernelId::kEmbed;
    case Op::kRopeTable:
      return KernelId::kRopeTable;
    case Op::kNorm:
      return KernelId::kNorm;
    case Op::kAdd:
      return KernelId::kAdd;
    case Op::kLinear:
      return KernelId::kLinear;
    case Op::kSiluMul:
      return KernelId::kSiluMul;
    case Op::kGdnConv:
      return KernelId::kGdnConv;
    case Op::kGdnScan:
      return KernelId::kGdnScan;
    case Op::kGdnNorm:
      return KernelId::kGdnNorm;
    case Op::kAttentionPrepare:
      return KernelId::kAttentionPrepare;
    case Op::kAttention:
      return KernelId::kAttention;
    case Op::kGateMul:
      return KernelId::kGateMul;
    case Op::kRouter:
      return KernelId::kRouter;
    case Op::kMoePermute:
      return KernelId::kMoePermute;
    case Op::kExpertSwiglu:
      return KernelId::kExpertSwiglu;
    case Op::kExpertDown:
      return KernelId::kExpertDown;
    case Op::kMoeCombine:
      return KernelId::kMoeCombine;
    case Op::kSample:
      return KernelId::kSample;
  }
  return KernelId::kEmbed;
}

class Fuser final {
 public:
  Fuser(const Circuit& circuit, std::bitset<kRuleCount> disabled)
      : circuit_(circuit),
        disabled_(disabled),
        covered_(circuit.nodes.size(), false),
        readers_(circuit.edges.size(), 0),
        producer_(circuit.edges.size(), kNone) {
    for (NodeIndex n = 0; n < circuit.nodes.size(); ++n) {
      for (const EdgeIndex e : circuit.nodes[n].inputs) {
        ++readers_[e];
      }
      for (const EdgeIndex e : circuit.nodes[n].outputs) {
        producer_[e] = n;
      }
    }
  }

  std::vector<Group> run() {
    std::vector<Group> groups;
    for (NodeIndex n = 0; n < circuit_.nodes.size(); ++n) {
      if (covered_[n]) {
        continue;
      }
      Group group = match(n);
      std::sort(group.nodes.begin(), group.nodes.end());
      for (const NodeIndex member : group.nodes) {
        covered_[member] = true;
      }
      finish(group);
      groups.push_back(std::move(group));
    }
    return groups;
  }

 private:
  static constexpr NodeIndex kNone = 0xffffffffU;

  [[nodiscard]] bool on(Rule rule) const { return !disabled_[static_cast<std::size_t>(rule)]; }
  [[nodiscard]] const CircuitNode& node(NodeIndex n) const { return circuit_.nodes[n]; }

  Group match(NodeIndex n) {
    const Op op = node(n).op;
    if (op == Op::kAdd && on(Rule::kResidualNorm)) {
      if (auto group = residual_norm(n)) {
        return *group;
      }
    }
    if (op == Op::kAttention && on(Rule::kAttentionGate)) {
      if (auto group = attention_gate(n)) {
        return *group;
      }
    }
    if (op == Op::kLinear) {
      return linears(n);
    }
    return {.kernel = kernel_of(op), .nodes = {n}};
  }

  // The sum is still written (the next residual reads it), so any number of readers is fine; the
  // norm must come next.
  std::optional<Group> residual_norm(NodeIndex n) {
    const NodeIndex next = n + 1;
    if (next >= circuit_.nodes.size() || node(next).op != Op::kNorm ||
        node(next).inputs[0] != node(n).outputs[0]) {
      return std::nullopt;
    }
    return Group{.kernel = KernelId::kNorm,
                 .rule = Rule::kResidualNorm,
                 .numerics = NumericsClass::kBitIdentical,
                 .nodes = {n, next}};
  }

  std::optional<Group> attention_gate(NodeIndex n) {
    const EdgeIndex o = node(n).outputs[0];
    const NodeIndex next = n + 1;
    if (readers_[o] != 1 || next >= circuit_.nodes.size() || node(next).op != Op::kGateMul ||
        node(next).inputs[0] != o) {
      return std::nullopt;
    }
    return Group{.kernel = KernelId::kAttention,
                 .rule = Rule::kAttentionGate,
                 .numerics = NumericsClass::kBitIdentical,
                 .nodes = {n, next}};
  }

  // The linear at n alone, or as the gate half of a SwiGLU: nodes and parts are appended to `group`
  // when there is room.
  bool take_linear(NodeIndex n, Group& group) {
    if (on(Rule::kSwigluLinear)) {
      if (const auto silu = swiglu_of(n); silu) {
        if (group.parts.size() + 1 > kLinearParts) {
          return false;
        }
        const NodeIndex up = producer_[node(*silu).inputs[1]];
        const EdgeIndex out = node(*silu).outputs[0];
        group.parts.push_back({.parameters = {node(n).parameters[0], node(up).parameters[0]},
                               .output = out,
                               .outputs = circuit_.edges[out].width});
        group.nodes.insert(group.nodes.end(), {n, up, *silu});
        group.rule = Rule::kSwigluLinear;
        group.numerics = NumericsClass::kBitIdentical;
        return true;
      }
    }
    const std::size_t count = node(n).parameters.size();
    if (group.parts.size() + count > kLinearParts) {
      return false;
    }
    const EdgeIndex out = node(n).outputs[0];
    const auto each = static_cast<std::uint32_t>(circuit_.edges[out].width / count);
    for (std::uint32_t i = 0; i < count; ++i) {
      group.parts.push_back({.parameters = {node(n).parameters[i]},
                             .output = out,
                             .column = i * each,
                             .outputs = each});
    }
    group.nodes.push_back(n);
    return true;
  }

  // The silu_mul that reads linear n as its gate and a sibling as its up half, if n's output goes
  // nowhere else.
  std::optional<NodeIndex> swiglu_of(NodeIndex n) const {
    const EdgeIndex out = node(n).outputs[0];
    for (NodeIndex m = n + 1; m < circuit_.nodes.size() && m <= n + 2; ++m) {
      if (node(m).op != Op::kSiluMul || node(m).inputs[0] != out || covered_[m]) {
        continue;
      }
      const EdgeIndex up = node(m).inputs[1];
      const NodeIndex sibling = producer_[up];
      if (readers_[out] == 1 && readers_[up] == 1 && node(sibling).op == Op::kLinear &&
          node(sibling).inputs == node(n).inputs && !covered_[sibling]) {
        return m;
      }
    }
    return std::nullopt;
  }

  Group linears(NodeIndex n) {
    Group group{.kernel = KernelId::kLinear};
    take_linear(n, group);
    if (!on(Rule::kSiblingLinears)) {
      return group;
    }
    bool siblings = false;
    for (NodeIndex m = n + 1; m < circuit_.nodes.size() && node(m).layer == node(n).layer; ++m) {
      const bool taken = std::find(group.nodes.begin(), group.nodes.end(), m) != group.nodes.end();
      if (covered_[m] || taken || node(m).op != Op::kLinear || node(m).inputs != node(n).inputs) {
        continue;
      }
      siblings = take_linear(m, group) || siblings;
    }
    if (siblings) {
      group.rule = Rule::kSiblingLinears;
      group.numerics = NumericsClass::kBitIdentical;
    }
    return group;
  }

  // Reads are what comes from outside the group, writes what somebody outside still needs.
  void finish(Group& group) {
    const auto inside = [&group](NodeIndex n) {
      return std::find(group.nodes.begin(), group.nodes.end(), n) != group.nodes.end();
    };
    const auto add_once = [](std::vector<EdgeIndex>& list, EdgeIndex e) {
      if (std::find(list.begin(), list.end(), e) == list.end()) {
        list.push_back(e);
      }
    };
    for (const NodeIndex n : group.nodes) {
      for (const EdgeIndex e : node(n).inputs) {
        if (producer_[e] == kNone || !inside(producer_[e])) {
          add_once(group.reads, e);
        }
      }
      for (const EdgeIndex e : node(n).outputs) {
        const bool internal = group.kernel == KernelId::kLinear && node(n).op == Op::kLinear &&
                              std::none_of(group.parts.begin(),
                                           group.parts.end(),
                                           [e](const PlanPart& part) { return part.output == e; });
        const bool gated = group.rule == Rule::kAttentionGate && node(n).op == Op::kAttention;
        if (!internal && !gated) {
          add_once(group.writes, e);
        }
      }
    }
    // A residual sum replaces the stream it was added to.
    if (node(group.nodes.front()).op == Op::kAdd) {
      group.in_place.emplace_back(node(group.nodes.front()).outputs[0],
                                  node(group.nodes.front()).inputs[0]);
    }
  }

  const Circuit& circuit_;
  std::bitset<kRuleCount> disabled_;
  std::vector<bool> covered_;
  std::vector<std::uint32_t> readers_;
  std::vector<NodeIndex> producer_;
};

Status check_cover(const Circuit& circuit, const FusionPlan& plan) {
  std::vector<std::uint32_t> times(circuit.nodes.size(), 0);
  std::vector<bool> written(circuit.edges.size(), false);
  for (EdgeIndex e = 0; e < circuit.edges.size(); ++e) {
    written[e] = circuit.edges[e].name == "stage_in";
  }
  for (const Group& group : plan.groups) {
    const CircuitNode& first = circuit.nodes[group.nodes.front()];
    if (!plan.catalog.kernels[static_cast<std::size_t>(group.kernel)]) {
      return error(Kind::kUnsupported,
                   "node " + first.name + " needs kernel " + std::string(name(group.kernel)) +
                       ", which kernel set " + plan.catalog.kernel_set +
                       " does not have for these activations");
    }
    for (const EdgeIndex e : group.reads) {
      TROUPE_CHECK(written[e],
                   "a group reads an edge that no earlier group writes: " + circuit.edges[e].name);
    }
    for (const EdgeIndex e : group.writes) {
      written[e] = true;
    }
    for (const NodeIndex n : group.nodes) {
      ++times[n];
    }
  }
  for (NodeIndex n = 0; n < circuit.nodes.size(); ++n) {
    TROUPE_CHECK(times[n] == 1,
                 "a node is covered by other than one group: " + circuit.nodes[n].name);
  }
  return {};
}

}  // namespace

std::string_view name(NumericsClass numerics) {
  return numerics == NumericsClass::kReference ? "reference" : "bit-identical";
}

std::string_view name(Rule rule) {
  return kRuleNames[static_cast<std::size_t>(rule)];
}

std::string_view name(Mode mode) {
  return mode == Mode::kDecode ? "decode" : "rows";
}

KernelCatalog make_catalog(const KernelSet& set, Activation activation) {
  KernelCatalog catalog;
  catalog.kernel_set = std::string(set.name);
  catalog.activation = activation;
  for (std::size_t k = 0; k < kKernelCount; ++k) {
    catalog.kernels[k] = set.kernels[k][static_cast<std::size_t>(activation)].run != nullptr;
  }
  return catalog;
}

Result<FusionPlan> make_fusion_plan(const Circuit& circuit,
                                    const KernelCatalog& catalog,
                                    const PlanShape& shape,
                                    std::bitset<kRuleCount> disabled) {
  if (shape.rows == 0 || shape.sampled > shape.rows) {
    return error(
        Kind::kInvalid,
        "a plan for " + std::to_string(shape.rows) + " rows, " + std::to_string(shape.sampled) +
            " of them sampled: rows must be at least 1 and not fewer than the sampled ones");
  }
  FusionPlan plan{.shape = shape, .catalog = catalog, .groups = Fuser(circuit, disabled).run()};
  TROUPE_TRY(check_cover(circuit, plan));
  plan.counts.kernels = static_cast<std::uint32_t>(plan.groups.size());
  return plan;
}

std::string FusionPlan::text(const Circuit& circuit) const {
  std::string out =
      "plan " + circuit.config.model_type + " layers [" + std::to_string(circuit.range.first) +
      ", " + std::to_string(circuit.range.last) + ") mode " + std::string(name(shape.mode)) +
      " rows " + std::to_string(shape.rows) + " sampled " + std::to_string(shape.sampled) + "\n";
  out += "kernels " + catalog.kernel_set + " activations " +
         (catalog.activation == Activation::kBF16 ? "bf16" : "fp32") + " numerics exact\n";
  out += "launches: " + std::to_string(counts.kernels) + " kernels, " +
         std::to_string(counts.copies) + " copies, " + std::to_string(counts.events) + " events, " +
         std::to_string(counts.collectives) + " collectives in 1 segment\n";
  for (std::size_t g = 0; g < groups.size(); ++g) {
    const Group& group = groups[g];
    out += std::to_string(g) + " " + std::string(name(group.kernel)) + " [" +
           std::string(name(group.rule)) + ", " + std::string(name(group.numerics)) + "]";
    for (const NodeIndex n : group.nodes) {
      out += " " + circuit.nodes[n].name;
    }
    for (std::size_t i = 0; i < group.reads.size(); ++i) {
      out += (i == 0 ? ": " : ", ") + circuit.edges[group.reads[i]].name;
    }
    for (std::size_t i = 0; i < group.writes.size(); ++i) {
      out += (i == 0 ? " -> " : ", ") + circuit.edges[group.writes[i]].name;
    }
    out += "\n";
  }
  return out;
}

}  // namespace troupe
