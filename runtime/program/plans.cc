#include "runtime/program/plans.h"

#include "runtime/base/sha256.h"
#include "runtime/program/ledger.h"

#include <algorithm>
#include <utility>

namespace troupe {
namespace {

constexpr std::uint32_t kSmallestBucket = 16;

std::vector<PlanShape> decode_shapes(const StageOptions& options) {
  std::vector<PlanShape> shapes;
  for (const std::uint32_t rows : kDecodeLadder) {
    const std::uint32_t capped =
        std::min({rows, options.max_segments, options.max_sampled, options.max_rows});
    shapes.push_back({.mode = Mode::kDecode, .rows = capped, .sampled = capped});
    if (capped < rows) {
      break;
    }
  }
  const auto same = [](const PlanShape& a, const PlanShape& b) { return a.rows == b.rows; };
  shapes.erase(std::unique(shapes.begin(), shapes.end(), same), shapes.end());
  return shapes;
}

std::vector<PlanShape> row_shapes(const StageOptions& options) {
  std::vector<PlanShape> shapes;
  for (std::uint32_t rows = kSmallestBucket; rows < options.max_rows; rows *= 2) {
    // A bucket that could not hold the rows a step may sample would never be chosen for it; the
    // largest holds all.
    shapes.push_back(
        {.mode = Mode::kRows, .rows = rows, .sampled = std::min(rows, options.max_sampled)});
  }
  shapes.push_back({.mode = Mode::kRows, .rows = options.max_rows, .sampled = options.max_sampled});
  return shapes;
}

std::string arithmetic_digest(const StagePlans& plans,
                              const KernelCatalog& catalog,
                              const ParameterType& type,
                              const std::string& model_hash) {
  // Over the whole model and the unfused circuit: equal on every stage and under every placement
  // (decision D9).
  const ModelConfig& c = plans.circuit.config;
  Sha256 hash;
  hash.update("model " + model_hash + "\nkernels " + catalog.kernel_set +
              "\nnumerics exact\nactivations " +
              (catalog.activation == Activation::kBF16 ? "bf16" : "fp32") + "\nspan " +
              std::to_string(kSpanTokens) + "\n");
  const auto whole = build_circuit(c, {0, static_cast<std::uint32_t>(c.layers.size())});
  TROUPE_CHECK(whole.has_value(), "a whole model is a circuit");
  hash.update(whole->text());
  for (const CircuitNode& node : whole->nodes) {
    for (const std::string& parameter : node.parameters) {
      hash.update(name(type(parameter)));
    }
  }
  for (const Edge& edge : whole->edges) {
    hash.update(edge.name + " " + std::to_string(edge.width) + " " + std::to_string(edge.per_row) +
                "\n");
  }
  hash.update("top_k " + std::to_string(c.experts_per_token) + " renormalise " +
              std::to_string(c.norm_topk_prob) + " sigmoid_z " +
              std::to_string(c.gdn_gate == GateActivation::kSigmoid) + " rotary " +
              std::to_string(c.rope.rotary_dims) + " eps " + std::to_string(c.rms_norm_eps * 1e12) +
              " theta " + std::to_string(c.rope.theta) + " factor " +
              std::to_string(c.rope.factor) + "\n");
  return hash.hex();
}

}  // namespace

Result<StagePlans> make_stage_plans(const ModelConfig& config,
                                    StageRange range,
                                    const KernelCatalog& catalog,
                                    const ParameterType& type,
                                    const std::string& model_hash,
                                    const StageOptions& options,
                                    std::uint64_t available_bytes) {
  if (options.max_rows == 0 || options.max_segments == 0 || options.max_sampled == 0 ||
      options.contexts == 0 || options.max_segments > options.max_rows ||
      options.max_sampled > options.max_rows) {
    return error(
        Kind::kInvalid,
        "a stage of " + std::to_string(options.max_rows) + " rows, " +
            std::to_string(options.max_segments) + " segments, " +
            std::to_string(options.max_sampled) + " sampled rows and " +
            std::to_string(options.contexts) +
            " contexts: all must be at least 1, segments and sampled rows at most the rows");
  }
  StagePlans plans;
  TROUPE_ASSIGN(plans.circuit, build_circuit(config, range));
  for (const PlanShape& shape : decode_shapes(options)) {
    TROUPE_ASSIGN(auto plan,
                  make_fusion_plan(plans.circuit, catalog, shape, options.disabled_rules));
    plans.decode.push_back(std::move(plan));
  }
  for (const PlanShape& shape : row_shapes(options)) {
    TROUPE_ASSIGN(auto plan,
                  make_fusion_plan(plans.circuit, catalog, shape, options.disabled_rules));
    plans.rows.push_back(std::move(plan));
  }
  TROUPE_ASSIGN(plans.weights, make_weight_layout(plans.circuit, plans.decode.front(), type));
  plans.states = make_state_layout(plans.circuit, catalog.activation);
  std::uint64_t workspace = 0;
  for (const auto* list : {&plans.decode, &plans.rows}) {
    for (const FusionPlan& plan : *list) {
      workspace = std::max(workspace, make_workspace_layout(plans.circuit, plan).bytes);
    }
  }
  TROUPE_ASSIGN(
      plans.info.ledger,
      make_ledger(config, options, plans.weights, plans.states, workspace, available_bytes));
  plans.info.arithmetic_digest = arithmetic_digest(plans, catalog, type, model_hash);
  plans.info.max_rows = options.max_rows;
  plans.info.max_segments = options.max_segments;
  plans.info.max_sampled = options.max_sampled;
  plans.info.max_values = options.max_values;
  plans.info.vocab = config.vocab_size;
  const std::uint64_t tokens = std::uint64_t{plans.info.ledger.blocks} * kBlockTokens;
  plans.info.max_context =
      static_cast<std::uint32_t>(std::min<std::uint64_t>(config.max_position_embeddings, tokens));
  return plans;
}

}  // namespace troupe
