// kNorm and kGdnNorm for one instruction set and activation type. Contracts: ops.h. Included by
// vector_ops.inl.h.
#pragma once

#include "kernels/cpu/elementwise.inl.h"

namespace troupe::cpu::TROUPE_ISA {

// Sum of squares in 16 lanes, then the tree.
template <class T>
TROUPE_LANE float sum_of_squares(const T* x, std::uint32_t width) {
  V16 sum = zero();
  for_lanes(width, [&](std::uint32_t i, std::uint32_t n) {
    const V16 value = load_upto(x + i, n);
    sum = fma(value, value, sum);
  });
  return reduce_add(sum);
}

// 1 / sqrt(mean + eps) in every lane.
TROUPE_LANE V16 inverse_rms(float square_sum, std::uint32_t width, float eps) {
  const V16 mean = div(set1(square_sum), set1(static_cast<float>(width)));
  return div(set1(1.0F), sqrt(add(mean, set1(eps))));
}

template <class Act>
struct Norm {
  static std::uint32_t items(const KernelEnv& env, const void* args) {
    const bool all = static_cast<const NormArgs*>(args)->rows == RowSet::kAll;
    return all ? row_items(env, args) : sampled_items(env, args);
  }

  static void run(const KernelEnv& env,
                  const void* raw_args,
                  std::uint32_t begin,
                  std::uint32_t end,
                  std::byte*) {
    const auto& args = *static_cast<const NormArgs*>(raw_args);
    const StepView step = view(env);
    const bool with_delta = !is_empty(args.delta);
    const float* weight = at<const float>(env, args.weight);
    for (std::uint32_t item = begin; item < end; ++item) {
      const std::size_t row = args.rows == RowSet::kAll ? item : step.sampled[item].row;
      float* x = at<float>(env, args.x) + row * args.width;
      if (with_delta) {
        const float* delta = at<const float>(env, args.delta) + row * args.width;
        for_lanes(args.width, [&](std::uint32_t i, std::uint32_t n) {
          store_upto(x + i, add(load_upto(x + i, n), load_upto(delta + i, n)), n);
        });
      }
      const V16 scale = inverse_rms(sum_of_squares(x, args.width), args.width, args.eps);
      Act* out = at<Act>(env, args.out) + std::size_t{item} * args.width;
      float* exact = is_empty(args.out_f32)
                         ? nullptr
                         : at<float>(env, args.out_f32) + std::size_t{item} * args.width;
      for_lanes(args.width, [&](std::uint32_t i, std::uint32_t n) {
        const V16 y = mul(mul(load_upto(x + i, n), scale), load_upto(weight + i, n));
        store_upto(out + i, y, n);
        if (exact != nullptr) {
          store_upto(exact + i, y, n);
        }
      });
    }
  }
};

template <class Act>
struct GdnNorm {
  static void run(const KernelEnv& env,
                  const void* raw_args,
                  std::uint32_t begin,
                  std::uint32_t end,
                  std::byte*) {
    const auto& args = *static_cast<const GdnNormArgs*>(raw_args);
    const float* weight = at<const float>(env, args.weight);
    const std::size_t first = std::size_t{begin} * args.heads;
    const std::size_t last = std::size_t{end} * args.heads;
    for (std::size_t head = first; head < last; ++head) {
      const float* o = at<const float>(env, args.o) + head * args.dim;
      const float* z = at<const float>(env, args.z) + head * args.dim;
      Act* out = at<Act>(env, args.out) + head * args.dim;
      const V16 scale = inverse_rms(sum_of_squares(o, args.dim), args.dim, args.eps);
      for_lanes(args.dim, [&](std::uint32_t i, std::uint32_t n) {
        const V16 gate = load_upto(z + i, n);
        const V16 normed = mul(mul(load_upto(o + i, n), scale), load_upto(weight + i, n));
        store_upto(out + i, mul(normed, args.sigmoid_gate ? sigmoid(gate) : silu(gate)), n);
      });
    }
  }
};

}  // namespace troupe::cpu::TROUPE_ISA
