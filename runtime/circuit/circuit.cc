#include "runtime/circuit/circuit.h"

#include <array>
#include <utility>

namespace troupe {
namespace {

constexpr std::array<std::string_view, 18> kOpNames = {"embed",
                                                       "rope_table",
                                                       "norm",
                                                       "add",
                                                       "linear",
                                                       "silu_mul",
                                                       "gdn_conv",
                                                       "gdn_scan",
                                                       "gdn_norm",
                                                       "attention_prepare",
                                                       "attention",
                                                       "gate_mul",
                                                       "router",
                                                       "moe_permute",
                                                       "expert_swiglu",
                                                       "expert_down",
                                                       "moe_combine",
                                                       "sample"};

class Builder final {
 public:
  Builder(const ModelConfig& config, StageRange range) {
    circuit_.config = config;
    circuit_.range = range;
  }

  Circuit build() {
    const ModelConfig& c = circuit_.config;
    EdgeIndex residual = 0;
    if (circuit_.embeds()) {
      residual = edge("embed", Element::kF32, c.hidden_size);
      add({.op = Op::kEmbed, .name = "embed", .outputs = {residual}, .parameters = {"embed"}});
    } else {
      residual = exchange("stage_in");
    }
    for (std::uint32_t i = circuit_.range.first; i < circuit_.range.last; ++i) {
      if (c.layers[i].mixer == Mixer::kAttention) {
        rope_ = edge("rope", Element::kF32, c.rope.rotary_dims);
        add({.op = Op::kRopeTable, .name = "rope_table", .outputs = {rope_}});
        break;
      }
    }
    for (std::uint32_t i = circuit_.range.first; i < circuit_.range.last; ++i) {
      residual = layer(i, residual);
    }
    if (circuit_.has_head()) {
      head(residual);
    } else {
      circuit_.edges[residual].kind = EdgeKind::kExchange;
      circuit_.edges[residual].name = "stage_out";
    }
    return std::move(circuit_);
  }

 private:
  EdgeIndex edge(std::string name,
                 Element element,
                 std::uint32_t width,
                 std::uint32_t per_row = 1,
                 RowSet rows = RowSet::kAll,
                 EdgeKind kind = EdgeKind::kTensor) {
    circuit_.edges.push_back({std::move(name), kind, element, rows, per_row, width});
    return static_cast<EdgeIndex>(circuit_.edges.size() - 1);
  }
  EdgeIndex exchange(std::string name) {
    return edge(std::move(name),
                Element::kF32,
                circuit_.config.hidden_size,
                1,
                RowSet::kAll,
                EdgeKind::kExchange);
  }
  void add(CircuitNode node) {
    node.layer = layer_;
    circuit_.nodes.push_back(std::move(node));
  }
  // What a product gives is fp32.
  EdgeIndex linear(const std::string& name,
                   EdgeIndex x,
                   std::uint32_t outputs,
                   std::string parameter,
                   RowSet rows = RowSet::kAll) {
    const EdgeIndex y = edge(name, Element::kF32, outputs, circuit_.edges[x].per_row, rows);
    add({.op = Op::kLinear,
         .name = name,
         .inputs = {x},
         .outputs = {y},
         .parameters = {std::move(parameter)}});
    return y;
  }
  EdgeIndex norm(const std::string& name,
                 EdgeIndex x,
                 std::string parameter,
                 RowSet rows = RowSet::kAll) {
    const EdgeIndex y = edge(name, Element::kAct, circuit_.config.hidden_size, 1, rows);
    add({.op = Op::kNorm,
         .name = name,
         .inputs = {x},
         .outputs = {y},
         .parameters = {std::move(parameter)}});
    return y;
  }
  EdgeIndex add_residual(const std::string& name, EdgeIndex x, EdgeIndex delta) {
    const EdgeIndex y = edge(name, Element::kF32, circuit_.config.hidden_size);
    add({.op = Op::kAdd, .name = name, .inputs = {x, delta}, .outputs = {y}});
    return y;
  }

  // What the norm added last writes, before it is rounded.
  EdgeIndex again_in_f32(std::string name) {
    const EdgeIndex y = edge(std::move(name), Element::kF32, circuit_.config.hidden_size);
    circuit_.nodes.back().outputs.push_back(y);
    return y;
  }

  EdgeIndex layer(std::uint32_t index, EdgeIndex residual) {
    layer_ = index;
    const std::string p = "layers." + std::to_string(index) + ".";
    const LayerKind kind = circuit_.config.layers[index];
    EdgeIndex x = norm(p + "mixer_norm", residual, p + "mixer_norm");
    const EdgeIndex mixed =
        kind.mixer == Mixer::kAttention ? attention(p, x) : gated_delta_net(p, x);
    residual = add_residual(p + "mixer_residual", residual, mixed);
    x = norm(p + "ffn_norm", residual, p + "ffn_norm");
    const EdgeIndex fed = kind.feed_forward == FeedForward::kMoe
                              ? moe(p, x, again_in_f32(p + "ffn_norm_f32"))
                              : dense(p, x);
    residual = add_residual(p + "out", residual, fed);
    layer_ = kNoLayer;
    return residual;
  }

  EdgeIndex gated_delta_net(const std::string& p, EdgeIndex x) {
    const ModelConfig& c = circuit_.config;
    const std::string g = p + "gdn.";
    const std::uint32_t kd = c.gdn_key_width();
    const std::uint32_t vd = c.gdn_value_width();
    const std::uint32_t nv = c.gdn_value_heads;
    const EdgeIndex qkv = linear(g + "qkv", x, 2 * kd + vd, g + "qkv");
    const EdgeIndex z = linear(g + "z", x, vd, g + "z");
    // b and a of all value heads side by side, as the convolution reads them.
    const EdgeIndex ba = edge(g + "ba", Element::kF32, 2 * nv);
    add({.op = Op::kLinear,
         .name = g + "ba",
         .inputs = {x},
         .outputs = {ba},
         .parameters = {g + "b", g + "a"}});
    const EdgeIndex window = edge(g + "window",
                                  Element::kF32,
                                  (c.conv_kernel - 1) * (2 * kd + vd),
                                  0,
                                  RowSet::kAll,
                                  EdgeKind::kPage);
    const EdgeIndex state = edge(g + "state",
                                 Element::kF32,
                                 nv * c.gdn_key_dim * c.gdn_value_dim,
                                 0,
                                 RowSet::kAll,
                                 EdgeKind::kPage);
    const EdgeIndex q = edge(g + "q", Element::kF32, kd);
    const EdgeIndex k = edge(g + "k", Element::kF32, kd);
    const EdgeIndex v = edge(g + "v", Element::kF32, vd);
    const EdgeIndex decay = edge(g + "decay", Element::kF32, nv);
    const EdgeIndex beta = edge(g + "beta", Element::kF32, nv);
    add({.op = Op::kGdnConv,
         .name = g + "conv",
         .inputs = {qkv, ba},
         .outputs = {q, k, v, decay, beta},
         .states = {window},
         .parameters = {g + "conv", g + "a_log", g + "dt_bias"}});
    const EdgeIndex o = edge(g + "o", Element::kF32, vd);
    add({.op = Op::kGdnScan,
         .name = g + "scan",
         .inputs = {q, k, v, decay, beta, qkv},
         .outputs = {o},
         .states = {state, window}});
    const EdgeIndex y = edge(g + "y", Element::kAct, vd);
    add({.op = Op::kGdnNorm,
         .name = g + "norm",
         .inputs = {o, z},
         .outputs = {y},
         .parameters = {g + "norm"}});
    return linear(p + "mixer_out", y, c.hidden_size, g + "out");
  }

  EdgeIndex attention(const std::string& p, EdgeIndex x) {
    const ModelConfig& c = circuit_.config;
    const std::string a = p + "attn.";
    const std::uint32_t q_width = c.attention_heads * c.head_dim;
    const std::uint32_t kv_width = c.kv_heads * c.head_dim;
    const EdgeIndex q = linear(a + "q", x, q_width, a + "q");
    EdgeIndex gate = 0;
    if (c.attention_output_gate) {
      gate = linear(a + "gate", x, q_width, a + "gate");
    }
    const EdgeIndex k = linear(a + "k", x, kv_width, a + "k");
    const EdgeIndex v = linear(a + "v", x, kv_width, a + "v");
    const EdgeIndex kv =
        edge(a + "kv", Element::kAct, 2 * kBlockTokens * kv_width, 0, RowSet::kAll, EdgeKind::kKv);
    const EdgeIndex rotated = edge(a + "q_rotated", Element::kAct, q_width);
    add({.op = Op::kAttentionPrepare,
         .name = a + "prepare",
         .inputs = {q, k, v, rope_},
         .outputs = {rotated},
         .states = {kv},
         .parameters = {a + "q_norm", a + "k_norm"}});
    const Element element = c.attention_output_gate ? Element::kF32 : Element::kAct;
    EdgeIndex o = edge(a + "o", element, q_width);
    add({.op = Op::kAttention,
         .name = a + "attention",
         .inputs = {rotated},
         .outputs = {o},
         .states = {kv}});
    if (c.attention_output_gate) {
      const EdgeIndex gated = edge(a + "gated", Element::kAct, q_width);
      add({.op = Op::kGateMul, .name = a + "gate_mul", .inputs = {o, gate}, .outputs = {gated}});
      o = gated;
    }
    return linear(p + "mixer_out", o, c.hidden_size, a + "o");
  }

  EdgeIndex swiglu(const std::string& prefix, EdgeIndex x, std::uint32_t inner) {
    const EdgeIndex gate = linear(prefix + "gate", x, inner, prefix + "gate");
    const EdgeIndex up = linear(prefix + "up", x, inner, prefix + "up");
    const EdgeIndex y = edge(prefix + "inner", Element::kAct, inner);
    add({.op = Op::kSiluMul, .name = prefix + "silu_mul", .inputs = {gate, up}, .outputs = {y}});
    return y;
  }

  EdgeIndex dense(const std::string& p, EdgeIndex x) {
    const ModelConfig& c = circuit_.config;
    const EdgeIndex inner = swiglu(p + "mlp.", x, c.intermediate_size);
    return linear(p + "ffn_out", inner, c.hidden_size, p + "mlp.down");
  }

  // Experts are chosen by differences that rounding may turn, so the router reads fp32.
  EdgeIndex moe(const std::string& p, EdgeIndex x, EdgeIndex x_f32) {
    const ModelConfig& c = circuit_.config;
    const std::string m = p + "moe.";
    const std::uint32_t k = c.experts_per_token;
    const EdgeIndex logits = linear(m + "router_logits", x_f32, c.experts, m + "router");
    EdgeIndex shared = 0;
    EdgeIndex shared_gate = 0;
    const bool has_shared = c.shared_expert_intermediate_size > 0;
    if (has_shared) {
      shared = swiglu(m + "shared.", x, c.shared_expert_intermediate_size);
      shared_gate = linear(m + "shared_gate", x, 1, m + "shared_gate");
    }
    const EdgeIndex ids = edge(m + "router_ids", Element::kU32, 1, k);
    const EdgeIndex weights = edge(m + "router_weights", Element::kF32, 1, k);
    add({.op = Op::kRouter, .name = m + "router", .inputs = {logits}, .outputs = {ids, weights}});
    const EdgeIndex offsets = edge(m + "offsets", Element::kU32, c.experts + 1, 0);
    const EdgeIndex entries = edge(m + "entries", Element::kU32, 1, k);
    const EdgeIndex active = edge(m + "active", Element::kU32, c.experts, 0);
    const EdgeIndex count = edge(m + "active_count", Element::kU32, 1, 0);
    add({.op = Op::kMoePermute,
         .name = m + "permute",
         .inputs = {ids},
         .outputs = {offsets, entries, active, count}});
    const EdgeIndex inner = edge(m + "inner", Element::kAct, c.moe_intermediate_size, k);
    std::vector<std::string> gate_up;
    std::vector<std::string> down;
    for (std::uint32_t e = 0; e < c.experts; ++e) {
      const std::string expert = m + "experts." + std::to_string(e) + ".";
      gate_up.push_back(expert + "gate");
      gate_up.push_back(expert + "up");
      down.push_back(expert + "down");
    }
    add({.op = Op::kExpertSwiglu,
         .name = m + "expert_swiglu",
         .inputs = {x, offsets, entries, active, count},
         .outputs = {inner},
         .parameters = std::move(gate_up)});
    const EdgeIndex routed = edge(m + "routed", Element::kAct, c.hidden_size, k);
    add({.op = Op::kExpertDown,
         .name = m + "expert_down",
         .inputs = {inner, offsets, entries, active, count},
         .outputs = {routed},
         .parameters = std::move(down)});
    std::vector<EdgeIndex> inputs = {routed, weights};
    if (has_shared) {
      inputs.push_back(linear(m + "shared_out", shared, c.hidden_size, m + "shared.down"));
      inputs.push_back(shared_gate);
    }
    const EdgeIndex out = edge(p + "ffn_out", Element::kF32, c.hidden_size);
    add({.op = Op::kMoeCombine,
         .name = m + "combine",
         .inputs = std::move(inputs),
         .outputs = {out}});
    return out;
  }

  void head(EdgeIndex residual) {
    const ModelConfig& c = circuit_.config;
    const EdgeIndex x = norm("final_norm", residual, "final_norm", RowSet::kSampled);
    const EdgeIndex logits = linear(
        "logits", x, c.vocab_size, c.tie_word_embeddings ? "embed" : "head", RowSet::kSampled);
    add({.op = Op::kSample, .name = "sample", .inputs = {logits}});
  }

  Circuit circuit_;
  std::uint32_t layer_ = kNoLayer;
  EdgeIndex rope_ = 0;
};

void append_list(std::string& text,
                 const std::vector<EdgeIndex>& list,
                 const std::vector<Edge>& edges) {
  for (std::size_t i = 0; i < list.size(); ++i) {
    text += (i == 0 ? "" : ", ") + edges[list[i]].name;
  }
}

}  // namespace

std::string_view name(Op op) {
  return kOpNames[static_cast<std::size_t>(op)];
}

Result<Circuit> build_circuit(const ModelConfig& config, StageRange range) {
  if (range.first >= range.last || range.last > config.layers.size()) {
    return error(Kind::kInvalid,
                 "a stage of layers [" + std::to_string(range.first) + ", " +
                     std::to_string(range.last) + ") is empty or beyond the model's " +
                     std::to_string(config.layers.size()) + " layers");
  }
  return Builder(config, range).build();
}

std::string Circuit::text() const {
  std::string out = "circuit " + config.model_type + " layers [" + std::to_string(range.first) +
                    ", " + std::to_string(range.last) + ")\n";
  for (const CircuitNode& node : nodes) {
    out += "  " + std::string(troupe::name(node.op)) + " " + node.name + ": ";
    append_list(out, node.inputs, edges);
    out += " -> ";
    append_list(out, node.outputs, edges);
    if (!node.states.empty()) {
      out += " state ";
      append_list(out, node.states, edges);
    }
    if (!node.parameters.empty()) {
      out += " with " + node.parameters.front();
      if (node.parameters.size() > 1) {
        out +=
            " .. " + node.parameters.back() + " (" + std::to_string(node.parameters.size()) + ")";
      }
    }
    out += "\n";
  }
  return out;
}

}  // namespace troupe
