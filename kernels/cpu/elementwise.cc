#include "kernels/cpu/elementwise.h"

#include "runtime/base/dtype.h"
#include "runtime/base/math.h"

#include <algorithm>

namespace troupe::cpu {
namespace {

// The row's token id; -1 when the sampler it refers to had nothing to choose from.
std::int32_t resolve(const StepTable& step, std::int32_t token) {
  return token >= 0 ? token : step.previous[static_cast<std::size_t>(~token)].token;
}

// A row of a tied head: one lane of one panel, pairs of inputs 32 elements apart.
void gather_from_panel(const std::byte* data,
                       WeightFormat format,
                       std::uint32_t token,
                       const EmbedArgs& args,
                       float* out) {
  const std::size_t base = token / 16 * panel_elements(args.hidden) + token % 16 * 2;
  const DType dtype = format == WeightFormat::kPanelF32 ? DType::kF32 : DType::kBF16;
  for (std::size_t i = 0; i < args.hidden; ++i) {
    out[i] = load_as_f32(data, dtype, base + i / 2 * 32 + i % 2);
  }
}

}  // namespace

void embed_rows(const KernelEnv& env,
                const EmbedArgs& args,
                std::uint32_t begin,
                std::uint32_t end) {
  for (std::uint32_t t = begin; t < end; ++t) {
    float* out = env.at<float>(args.out) + std::size_t{t} * args.hidden;
    const std::int32_t token = resolve(*env.step, env.step->rows[t].token);
    if (token < 0) {
      std::fill_n(out, args.hidden, 0.0F);  // the request has failed; the step goes on
      continue;
    }
    const auto id = static_cast<std::uint32_t>(token);
    if (!args.panel.data.empty()) {
      gather_from_panel(env.at<std::byte>(args.panel.data), args.panel.format, id, args, out);
      continue;
    }
    const std::byte* row =
        env.at<std::byte>(args.table) + std::size_t{id} * args.hidden * size_of(args.table_type);
    for (std::size_t i = 0; i < args.hidden; ++i) {
      out[i] = load_as_f32(row, args.table_type, i);
    }
  }
}

void rope_table_rows(const KernelEnv& env,
                     const RopeTableArgs& args,
                     std::uint32_t begin,
                     std::uint32_t end) {
  const float* inverse_frequency = env.at<float>(args.inverse_frequency);
  for (std::uint32_t t = begin; t < end; ++t) {
    float* out = env.at<float>(args.out) + std::size_t{t} * 2 * args.half;
    const auto position = static_cast<float>(env.step->rows[t].position);
    for (std::uint32_t i = 0; i < args.half; ++i) {
      const float angle = position * inverse_frequency[i];
      const SinCos turn = sin_cos_d(angle);
      out[i] = static_cast<float>(turn.cos) * args.scale;
      out[args.half + i] = static_cast<float>(turn.sin) * args.scale;
    }
  }
}

}  // namespace troupe::cpu
