#include "runtime/program/launch_work.h"

namespace troupe {
namespace {

std::uint64_t stored_bytes(WeightFormat format, std::uint64_t outputs, std::uint64_t inputs) {
  return packed_bytes(format, outputs, inputs) +
         (format == WeightFormat::kPanelF8 ? packed_scale_bytes(outputs, inputs) : 0);
}

LaunchWork of_linear(const LinearArgs& args, const KernelEnv& env) {
  const std::uint64_t rows =
      args.rows == RowSet::kAll ? env.step->rows.size() : env.step->sampled.size();
  LaunchWork work;
  for (std::uint32_t i = 0; i < args.part_count; ++i) {
    const LinearPart& part = args.parts[i];
    const std::uint64_t outputs =
        std::uint64_t{part.outputs} * (part.epilogue == Epilogue::kSwiglu ? 2 : 1);
    work.bytes += stored_bytes(part.weight.format, outputs, args.inputs);
    work.multiplications += rows * outputs * args.inputs;
  }
  return work;
}

// `outputs` counts gate and up.
LaunchWork of_experts(const auto& args,
                      std::uint64_t outputs,
                      std::uint64_t inputs,
                      const KernelEnv& env) {
  const std::uint64_t active = *env.at<const std::uint32_t>(args.active_count);
  const std::uint64_t entries = env.at<const std::uint32_t>(args.offsets)[args.experts];
  return {.bytes = active * (args.expert_bytes + args.scale_bytes),
          .multiplications = entries * outputs * inputs};
}

LaunchWork of_scan(const GdnScanArgs& args, const KernelEnv& env) {
  const std::uint64_t state =
      std::uint64_t{args.value_heads} * args.key_dim * args.value_dim * sizeof(float);
  LaunchWork work;
  for (const StepRow& row : env.step->rows) {
    work.bytes += row.write_page == kNoPage ? 0 : state;
  }
  work.bytes += env.step->segments.size() * state;
  // decay, S^T k, k (x) d and S^T q
  work.multiplications = env.step->rows.size() * state / sizeof(float) * 4;
  return work;
}

LaunchWork of_attention(const AttentionArgs& args, const KernelEnv& env) {
  LaunchWork work;
  for (const StepSegment& segment : env.step->segments) {
    const std::uint64_t first = env.step->rows[segment.first_row].position;
    const std::uint64_t end = first + segment.rows;
    work.bytes += (end + kBlockTokens - 1) / kBlockTokens * args.block_bytes;
    for (std::uint64_t p = first; p < end; ++p) {
      work.multiplications += 2 * (p + 1) * args.heads * args.dim;
    }
  }
  return work;
}

}  // namespace

LaunchWork work_of(KernelId kernel, const void* args, const KernelEnv& env) {
  switch (kernel) {
    case KernelId::kLinear:
      return of_linear(*static_cast<const LinearArgs*>(args), env);
    case KernelId::kExpertSwiglu: {
      const auto& expert = *static_cast<const ExpertSwigluArgs*>(args);
      return of_experts(expert, 2 * std::uint64_t{expert.inner}, expert.inputs, env);
    }
    case KernelId::kExpertDown: {
      const auto& expert = *static_cast<const ExpertDownArgs*>(args);
      return of_experts(expert, expert.outputs, expert.inner, env);
    }
    case KernelId::kGdnScan:
      return of_scan(*static_cast<const GdnScanArgs*>(args), env);
    case KernelId::kAttention:
      return of_attention(*static_cast<const AttentionArgs*>(args), env);
    default:
      return {};
  }
}

}  // namespace troupe
