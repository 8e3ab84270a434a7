// kAdd, kSiluMul, kGateMul for one instruction set and activation type. Contracts: ops.h. Included
// by vector_ops.inl.h.
#pragma once

#include "kernels/cpu/access.h"
#include "kernels/cpu/math.h"
#include "kernels/cpu/vec.h"

namespace troupe::cpu::TROUPE_ISA {

template <class T>
TROUPE_LANE T* at(const KernelEnv& env, const Ref& ref) {
  return reinterpret_cast<T*>(address(env, ref));
}

TROUPE_LANE std::byte* arena(const KernelEnv& env, Arena which) {
  return address(env, {which, 0});
}

// Rows begin .. end-1 of a row-major array, which is one contiguous run.
struct RowRun {
  std::size_t first;
  std::uint32_t elements;
};
TROUPE_LANE RowRun row_run(std::uint32_t begin, std::uint32_t end, std::uint32_t width) {
  return {std::size_t{begin} * width, (end - begin) * width};
}

struct Add {
  static void run(const KernelEnv& env,
                  const void* raw_args,
                  std::uint32_t begin,
                  std::uint32_t end,
                  std::byte*) {
    const auto& args = *static_cast<const AddArgs*>(raw_args);
    const RowRun rows = row_run(begin, end, args.width);
    const float* a = at<const float>(env, args.a) + rows.first;
    const float* b = at<const float>(env, args.b) + rows.first;
    float* out = at<float>(env, args.out) + rows.first;
    for_lanes(rows.elements, [&](std::uint32_t i, std::uint32_t n) {
      store_upto(out + i, add(load_upto(a + i, n), load_upto(b + i, n)), n);
    });
  }
};

template <class Act>
struct SiluMul {
  static void run(const KernelEnv& env,
                  const void* raw_args,
                  std::uint32_t begin,
                  std::uint32_t end,
                  std::byte*) {
    const auto& args = *static_cast<const SiluMulArgs*>(raw_args);
    const RowRun rows = row_run(begin, end, args.width);
    const float* gate = at<const float>(env, args.gate) + rows.first;
    const float* up = at<const float>(env, args.up) + rows.first;
    Act* out = at<Act>(env, args.out) + rows.first;
    for_lanes(rows.elements, [&](std::uint32_t i, std::uint32_t n) {
      store_upto(out + i, mul(silu(load_upto(gate + i, n)), load_upto(up + i, n)), n);
    });
  }
};

template <class Act>
struct GateMul {
  static void run(const KernelEnv& env,
                  const void* raw_args,
                  std::uint32_t begin,
                  std::uint32_t end,
                  std::byte*) {
    const auto& args = *static_cast<const GateMulArgs*>(raw_args);
    const RowRun rows = row_run(begin, end, args.width);
    const float* x = at<const float>(env, args.x) + rows.first;
    const float* gate = at<const float>(env, args.gate) + rows.first;
    Act* out = at<Act>(env, args.out) + rows.first;
    for_lanes(rows.elements, [&](std::uint32_t i, std::uint32_t n) {
      store_upto(out + i, mul(load_upto(x + i, n), sigmoid(load_upto(gate + i, n))), n);
    });
  }
};

}  // namespace troupe::cpu::TROUPE_ISA
