#include "runtime/program/program.h"

#include "runtime/base/sha256.h"

#include <array>
#include <cstring>
#include <type_traits>
#include <utility>

namespace troupe {

// Turns each group of a plan into one launch: looks up where its edges, parameters and states lie.
class Emitter final {
 public:
  Emitter(const Circuit& circuit,
          const FusionPlan& plan,
          const WeightLayout& weights,
          const StateLayout& states,
          std::uint32_t blocks,
          std::uint32_t valid)
      : circuit_(circuit),
        plan_(plan),
        weights_(weights),
        states_(states),
        blocks_(blocks),
        valid_(valid),
        program_(std::unique_ptr<Program>(new Program)) {}

  Result<std::unique_ptr<const Program>> emit() {
    program_->shape_ = plan_.shape;
    program_->activation_ = plan_.catalog.activation;
    program_->workspace_ = make_workspace_layout(circuit_, plan_);
    TROUPE_TRY(check_layout(circuit_, plan_, program_->workspace_));
    for (std::uint32_t g = 0; g < plan_.groups.size(); ++g) {
      group_ = g;
      group(plan_.groups[g]);
    }
    for (const Launch& launch : program_->launches_) {
      program_->calls_.push_back({launch.kernel, program_->arguments(launch).data()});
    }
    TROUPE_CHECK(program_->counts() == plan_.counts, "a program's launches differ from its plan's");
    Sha256 hash;
    hash.update(plan_.text(circuit_));
    for (const Launch& launch : program_->launches_) {
      hash.update(program_->arguments(launch));
    }
    program_->digest_ = hash.hex();
    return std::unique_ptr<const Program>(std::move(program_));
  }

 private:
  [[nodiscard]] const ModelConfig& config() const { return circuit_.config; }

  [[nodiscard]] Ref at(EdgeIndex edge) const {
    const EdgePlace& place = program_->workspace_.places[edge];
    TROUPE_CHECK(place.used,
                 "a launch needs an edge that has no place: " + circuit_.edges[edge].name);
    return {Arena::kWorkspace, place.offset};
  }

  [[nodiscard]] Ref vector(std::string_view name) const {
    return {Arena::kWeights, weights_.of(name).offset};
  }

  [[nodiscard]] Weight weight(std::string_view name) const {
    const PackedParameter& p = weights_.of(name);
    Weight w{.data = {Arena::kWeights, p.offset}, .format = p.format};
    if (p.format == WeightFormat::kPanelF8) {
      w.scales = {Arena::kWeights, p.scale_offset};
    }
    return w;
  }

  [[nodiscard]] const GdnPlace& gdn(std::uint32_t layer) const {
    for (const GdnPlace& place : states_.gdn) {
      if (place.layer == layer) {
        return place;
      }
    }
    TROUPE_CHECK(false, "layer " + std::to_string(layer) + " has no recurrent state");
    return states_.gdn.front();
  }

  [[nodiscard]] std::uint64_t kv_offset(std::uint32_t layer) const {
    for (std::size_t i = 0; i < states_.attention_layers.size(); ++i) {
      if (states_.attention_layers[i] == layer) {
        return i * states_.layer_block_bytes * blocks_;
      }
    }
    TROUPE_CHECK(false, "layer " + std::to_string(layer) + " has no keys and values");
    return 0;
  }

  template <class Args>
  void put(KernelId kernel, Args args) {
    static_assert(std::is_trivially_copyable_v<Args>);
#if __has_builtin(__builtin_clear_padding)
    __builtin_clear_padding(&args);  // the digest covers these bytes
#endif
    const std::size_t words =
        (sizeof(Args) + sizeof(std::max_align_t) - 1) / sizeof(std::max_align_t);
    const std::size_t at_word = program_->arguments_.size();
    program_->arguments_.resize(at_word + words);
    std::memcpy(&program_->arguments_[at_word], &args, sizeof(Args));
    program_->launches_.push_back(
        {.kernel = kernel,
         .group = group_,
         .args_offset = static_cast<std::uint32_t>(at_word * sizeof(std::max_align_t)),
         .args_bytes = sizeof(Args)});
  }

  void group(const Group& group) {
    const CircuitNode& node = circuit_.nodes[group.nodes.front()];
    switch (group.kernel) {
      case KernelId::kEmbed:
        return embed(node);
      case KernelId::kRopeTable:
        return rope_table(node);
      case KernelId::kAdd:
        return add(node);
      case KernelId::kNorm:
        return norm(group);
      case KernelId::kLinear:
        return linear(group);
      case KernelId::kSiluMul:
        return silu_mul(node);
      case KernelId::kGdnConv:
        return gdn_conv(node);
      case KernelId::kGdnScan:
        return gdn_scan(node);
      case KernelId::kGdnNorm:
        return gdn_norm(node);
      case KernelId::kAttentionPrepare:
        return attention_prepare(node);
      case KernelId::kAttention:
        return attention(group);
      case KernelId::kGateMul:
        return gate_mul(node);
      case KernelId::kRouter:
        return router(node);
      case KernelId::kMoePermute:
        return moe_permute(node);
      case KernelId::kExpertSwiglu:
        return expert_swiglu(node);
      case KernelId::kExpertDown:
        return expert_down(node);
      case KernelId::kMoeCombine:
        return moe_combine(node);
      case KernelId::kSample:
        return sample(node);
    }
  }

  void embed(const CircuitNode& node) {
    EmbedArgs args;
    const PackedParameter& p = weights_.of(node.parameters[0]);
    if (p.packing == Packing::kTable) {
      args.table = {Arena::kWeights, p.offset};
      args.table_type = p.table_type;
    } else {
      args.panel = weight(node.parameters[0]);
    }
    args.out = at(node.outputs[0]);
    args.hidden = config().hidden_size;
    put(KernelId::kEmbed, args);
  }

  void rope_table(const CircuitNode& node) {
    RopeTableArgs args;
    args.inverse_frequency = {Arena::kWeights, weights_.rope_offset};
    args.out = at(node.outputs[0]);
    args.half = config().rope.rotary_dims / 2;
    args.scale = static_cast<float>(config().rope.attention_factor);
    put(KernelId::kRopeTable, args);
  }

  void add(const CircuitNode& node) {
    AddArgs args;
    args.a = at(node.inputs[0]);
    args.b = at(node.inputs[1]);
    args.out = at(node.outputs[0]);
    args.width = config().hidden_size;
    put(KernelId::kAdd, args);
  }

  void norm(const Group& group) {
    const CircuitNode& node = circuit_.nodes[group.nodes.back()];
    NormArgs args;
    args.x = at(node.inputs[0]);  // with a residual: the sum's place, which is the old stream's
    if (group.rule == Rule::kResidualNorm) {
      args.delta = at(circuit_.nodes[group.nodes.front()].inputs[1]);
    }
    args.weight = vector(node.parameters[0]);
    args.out = at(node.outputs[0]);
    if (node.outputs.size() > 1) {
      args.out_f32 = at(node.outputs[1]);
    }
    args.width = config().hidden_size;
    args.eps = static_cast<float>(config().rms_norm_eps);
    args.rows = circuit_.edges[node.outputs[0]].rows;
    put(KernelId::kNorm, args);
  }

  void linear(const Group& group) {
    const Edge& x = circuit_.edges[group.reads[0]];
    LinearArgs args;
    args.x = at(group.reads[0]);
    args.inputs = x.width;
    args.x_stride = x.width;
    args.x_f32 = x.element == Element::kF32;
    args.rows = x.rows;
    args.part_count = static_cast<std::uint32_t>(group.parts.size());
    for (std::size_t i = 0; i < group.parts.size(); ++i) {
      const PlanPart& part = group.parts[i];
      const Edge& out = circuit_.edges[part.output];
      LinearPart& to = args.parts[i];
      to.weight = weight(part.parameters[0]);
      to.out = at(part.output);
      to.out_f32 = out.element == Element::kF32;
      to.out.offset += part.column * (to.out_f32 ? 4 : size_of(plan_.catalog.activation));
      to.outputs = part.outputs;
      to.out_stride = out.width;
      to.epilogue = part.parameters.size() == 2 ? Epilogue::kSwiglu : Epilogue::kNone;
      if (out.name == "logits") {
        program_->logits_ = to.out;
      }
    }
    put(KernelId::kLinear, args);
  }

  void silu_mul(const CircuitNode& node) {
    SiluMulArgs args;
    args.gate = at(node.inputs[0]);
    args.up = at(node.inputs[1]);
    args.out = at(node.outputs[0]);
    args.width = circuit_.edges[node.outputs[0]].width;
    put(KernelId::kSiluMul, args);
  }

  template <class Args>
  void gdn_shape(Args& args) const {
    args.key_heads = config().gdn_key_heads;
    args.value_heads = config().gdn_value_heads;
    args.key_dim = config().gdn_key_dim;
    args.value_dim = config().gdn_value_dim;
    args.taps = config().conv_kernel;
    args.page_bytes = states_.page_bytes;
  }

  void gdn_conv(const CircuitNode& node) {
    GdnConvArgs args;
    gdn_shape(args);
    args.qkv = at(node.inputs[0]);
    args.ba = at(node.inputs[1]);
    args.conv = vector(node.parameters[0]);
    args.a_coefficient = vector(node.parameters[1]);
    args.dt_bias = vector(node.parameters[2]);
    args.q = at(node.outputs[0]);
    args.k = at(node.outputs[1]);
    args.v = at(node.outputs[2]);
    args.decay = at(node.outputs[3]);
    args.beta = at(node.outputs[4]);
    args.window_offset = gdn(node.layer).window_offset;
    put(KernelId::kGdnConv, args);
  }

  void gdn_scan(const CircuitNode& node) {
    GdnScanArgs args;
    gdn_shape(args);
    args.q = at(node.inputs[0]);
    args.k = at(node.inputs[1]);
    args.v = at(node.inputs[2]);
    args.decay = at(node.inputs[3]);
    args.beta = at(node.inputs[4]);
    args.qkv = at(node.inputs[5]);
    args.out = at(node.outputs[0]);
    args.state_offset = gdn(node.layer).state_offset;
    args.window_offset = gdn(node.layer).window_offset;
    put(KernelId::kGdnScan, args);
  }

  void gdn_norm(const CircuitNode& node) {
    GdnNormArgs args;
    args.o = at(node.inputs[0]);
    args.z = at(node.inputs[1]);
    args.weight = vector(node.parameters[0]);
    args.out = at(node.outputs[0]);
    args.heads = config().gdn_value_heads;
    args.dim = config().gdn_value_dim;
    args.eps = static_cast<float>(config().rms_norm_eps);
    args.sigmoid_gate = config().gdn_gate == GateActivation::kSigmoid;
    put(KernelId::kGdnNorm, args);
  }

  void attention_prepare(const CircuitNode& node) {
    AttentionPrepareArgs args;
    args.q = at(node.inputs[0]);
    args.k = at(node.inputs[1]);
    args.v = at(node.inputs[2]);
    args.rope = at(node.inputs[3]);
    args.q_norm = vector(node.parameters[0]);
    args.k_norm = vector(node.parameters[1]);
    args.q_out = at(node.outputs[0]);
    args.heads = config().attention_heads;
    args.kv_heads = config().kv_heads;
    args.dim = config().head_dim;
    args.half = config().rope.rotary_dims / 2;
    args.eps = static_cast<float>(config().rms_norm_eps);
    args.kv_offset = kv_offset(node.layer);
    args.block_bytes = states_.layer_block_bytes;
    put(KernelId::kAttentionPrepare, args);
  }

  void attention(const Group& group) {
    const CircuitNode& node = circuit_.nodes[group.nodes.front()];
    AttentionArgs args;
    args.q = at(node.inputs[0]);
    EdgeIndex out = node.outputs[0];
    if (group.rule == Rule::kAttentionGate) {
      const CircuitNode& gate = circuit_.nodes[group.nodes.back()];
      args.gate = at(gate.inputs[1]);
      out = gate.outputs[0];
    }
    args.out = at(out);
    args.out_f32 = circuit_.edges[out].element == Element::kF32;
    args.heads = config().attention_heads;
    args.kv_heads = config().kv_heads;
    args.dim = config().head_dim;
    args.kv_offset = kv_offset(node.layer);
    args.block_bytes = states_.layer_block_bytes;
    put(KernelId::kAttention, args);
  }

  void gate_mul(const CircuitNode& node) {
    GateMulArgs args;
    args.x = at(node.inputs[0]);
    args.gate = at(node.inputs[1]);
    args.out = at(node.outputs[0]);
    args.width = circuit_.edges[node.outputs[0]].width;
    put(KernelId::kGateMul, args);
  }

  void router(const CircuitNode& node) {
    RouterArgs args;
    args.logits = at(node.inputs[0]);
    args.ids = at(node.outputs[0]);
    args.weights = at(node.outputs[1]);
    args.experts = config().experts;
    args.top_k = config().experts_per_token;
    args.renormalise = config().norm_topk_prob;
    put(KernelId::kRouter, args);
  }

  void moe_permute(const CircuitNode& node) {
    MoePermuteArgs args;
    args.ids = at(node.inputs[0]);
    args.offsets = at(node.outputs[0]);
    args.entries = at(node.outputs[1]);
    args.active = at(node.outputs[2]);
    args.active_count = at(node.outputs[3]);
    args.experts = config().experts;
    args.top_k = config().experts_per_token;
    put(KernelId::kMoePermute, args);
  }

  template <class Args>
  void expert_common(const CircuitNode& node, Args& args) const {
    const PackedParameter& p = weights_.of(node.parameters.front());
    args.x = at(node.inputs[0]);
    args.weight = weight(node.parameters.front());
    args.expert_bytes = p.matrix_bytes;
    args.scale_bytes = p.scale_bytes;
    args.offsets = at(node.inputs[1]);
    args.entries = at(node.inputs[2]);
    args.active = at(node.inputs[3]);
    args.active_count = at(node.inputs[4]);
    args.out = at(node.outputs[0]);
    args.experts = config().experts;
    args.top_k = config().experts_per_token;
  }

  void expert_swiglu(const CircuitNode& node) {
    ExpertSwigluArgs args;
    expert_common(node, args);
    args.inputs = config().hidden_size;
    args.inner = config().moe_intermediate_size;
    put(KernelId::kExpertSwiglu, args);
  }

  void expert_down(const CircuitNode& node) {
    ExpertDownArgs args;
    expert_common(node, args);
    args.inner = config().moe_intermediate_size;
    args.outputs = config().hidden_size;
    put(KernelId::kExpertDown, args);
  }

  void moe_combine(const CircuitNode& node) {
    MoeCombineArgs args;
    args.expert = at(node.inputs[0]);
    args.weights = at(node.inputs[1]);
    if (node.inputs.size() == 4) {
      args.shared = at(node.inputs[2]);
      args.shared_gate = at(node.inputs[3]);
    }
    args.out = at(node.outputs[0]);
    args.width = config().hidden_size;
    args.top_k = config().experts_per_token;
    put(KernelId::kMoeCombine, args);
  }

  void sample(const CircuitNode& node) {
    SampleArgs args;
    args.logits = at(node.inputs[0]);
    args.vocab = config().vocab_size;
    args.valid = valid_;
    put(KernelId::kSample, args);
  }

  const Circuit& circuit_;
  const FusionPlan& plan_;
  const WeightLayout& weights_;
  const StateLayout& states_;
  std::uint32_t blocks_;
  std::uint32_t valid_;
  std::uint32_t group_ = 0;
  std::unique_ptr<Program> program_;
};

Result<std::unique_ptr<const Program>> Program::compile(const Circuit& circuit,
                                                        const FusionPlan& plan,
                                                        const WeightLayout& weights,
                                                        const StateLayout& states,
                                                        std::uint32_t blocks,
                                                        std::uint32_t valid) {
  return Emitter(circuit, plan, weights, states, blocks, valid).emit();
}

LaunchCounts Program::counts() const {
  LaunchCounts counts;
  counts.kernels = static_cast<std::uint32_t>(launches_.size());
  return counts;
}

std::span<const std::byte> Program::arguments(const Launch& launch) const {
  const auto* base = reinterpret_cast<const std::byte*>(arguments_.data());
  return {base + launch.args_offset, launch.args_bytes};
}

std::string Program::text() const {
  std::string out;
  for (const Launch& launch : launches_) {
    Sha256 hash;
    hash.update(arguments(launch));
    out += std::string(name(launch.kernel)) + " group " + std::to_string(launch.group) + " args " +
           std::to_string(launch.args_bytes) + " " + hash.hex().substr(0, 16) + "\n";
  }
  return out;
}

Status Program::run(Device& device,
                    const KernelEnv& env,
                    const LaunchObserver* observer,
                    std::function<void(const WorkResult&)>& done) const {
  return device.submit({.calls = calls_,
                        .activation = activation_,
                        .env = env,
                        .observer = observer,
                        .done = &done});
}

}  // namespace troupe
