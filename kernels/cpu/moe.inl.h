// kRouter and kMoeCombine for one instruction set and activation type. Contracts: ops.h. Included
// by vector_ops.inl.h.
#pragma once

#include "kernels/cpu/norm.inl.h"

namespace troupe::cpu::TROUPE_ISA {

struct Router {
  // p = softmax(logits)
  TROUPE_LANE void softmax(const float* logits, std::uint32_t experts, float* p) {
    const V16 nothing = set1(-__builtin_inff());
    V16 highest = nothing;
    for_lanes(experts, [&](std::uint32_t i, std::uint32_t n) {
      highest = max(highest, select(first_lanes(n), load_upto(logits + i, n), nothing));
    });
    const V16 maximum = set1(reduce_max(highest));
    V16 sum = zero();
    for_lanes(experts, [&](std::uint32_t i, std::uint32_t n) {
      const V16 value = exp(sub(load_upto(logits + i, n), maximum));
      store_upto(p + i, value, n);
      sum = add(sum, select(first_lanes(n), value, zero()));
    });
    const V16 total = set1(reduce_add(sum));
    for_lanes(experts, [&](std::uint32_t i, std::uint32_t n) {
      store_upto(p + i, div(load_upto(p + i, n), total), n);
    });
  }

  // Insertion into a short falling list: an equal later expert stays behind an earlier one.
  static void choose(const float* p,
                     std::uint32_t experts,
                     std::uint32_t top_k,
                     std::uint32_t* ids,
                     float* weights) {
    std::uint32_t count = 0;
    for (std::uint32_t e = 0; e < experts; ++e) {
      if (count == top_k && !(p[e] > weights[top_k - 1])) {
        continue;
      }
      std::uint32_t place = count < top_k ? count++ : top_k - 1;
      for (; place > 0 && p[e] > weights[place - 1]; --place) {
        weights[place] = weights[place - 1];
        ids[place] = ids[place - 1];
      }
      weights[place] = p[e];
      ids[place] = e;
    }
  }

  static void run(const KernelEnv& env,
                  const void* raw_args,
                  std::uint32_t begin,
                  std::uint32_t end,
                  std::byte* scratch) {
    const auto& args = *static_cast<const RouterArgs*>(raw_args);
    auto* p = reinterpret_cast<float*>(scratch);
    for (std::uint32_t t = begin; t < end; ++t) {
      std::uint32_t* ids = at<std::uint32_t>(env, args.ids) + std::size_t{t} * args.top_k;
      float* weights = at<float>(env, args.weights) + std::size_t{t} * args.top_k;
      softmax(at<const float>(env, args.logits) + std::size_t{t} * args.experts, args.experts, p);
      choose(p, args.experts, args.top_k, ids, weights);
      if (!args.renormalise) {
        continue;
      }
      float sum = 0;
      for (std::uint32_t c = 0; c < args.top_k; ++c) {
        sum += weights[c];
      }
      for (std::uint32_t c = 0; c < args.top_k; ++c) {
        weights[c] /= sum;
      }
    }
  }
};

template <class Act>
struct MoeCombine {
  static void run(const KernelEnv& env,
                  const void* raw_args,
                  std::uint32_t begin,
                  std::uint32_t end,
                  std::byte*) {
    const auto& args = *static_cast<const MoeCombineArgs*>(raw_args);
    const bool with_shared = !is_empty(args.shared);
    for (std::uint32_t t = begin; t < end; ++t) {
      const std::size_t first = std::size_t{t} * args.top_k;
      const float* weights = at<const float>(env, args.weights) + first;
      const Act* expert = at<const Act>(env, args.expert) + first * args.width;
      const std::size_t row = std::size_t{t} * args.width;
      const float* shared = with_shared ? at<const float>(env, args.shared) + row : nullptr;
      const V16 gate =
          set1(with_shared ? sigmoid(at<const float>(env, args.shared_gate)[t]) : 0.0F);
      float* out = at<float>(env, args.out) + row;
      for_lanes(args.width, [&](std::uint32_t i, std::uint32_t n) {
        V16 sum = zero();
        for (std::uint32_t c = 0; c < args.top_k; ++c) {
          sum = fma(set1(weights[c]), load_upto(expert + std::size_t{c} * args.width + i, n), sum);
        }
        if (with_shared) {
          sum = fma(gate, load_upto(shared + i, n), sum);
        }
        store_upto(out + i, sum, n);
      });
    }
  }
};

}  // namespace troupe::cpu::TROUPE_ISA
