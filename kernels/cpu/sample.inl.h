// The loops of sampling that go over the whole vocabulary, for one instruction set. Included by
// vector_ops.inl.h.
#pragma once

#include "kernels/cpu/elementwise.inl.h"
#include "kernels/cpu/sample.h"

namespace troupe::cpu::TROUPE_ISA {

struct Sample {
  static float maximum(const float* x, std::uint32_t n) {
    const V16 nothing = set1(-__builtin_inff());
    V16 highest = nothing;
    V16 numbers = zero();  // stays zero unless a NaN comes
    for_lanes(n, [&](std::uint32_t i, std::uint32_t count) {
      const V16 value = select(first_lanes(count), load_upto(x + i, count), nothing);
      highest = max(highest, value);
      numbers = select(equal(value, value), numbers, value);
    });
    const float top = reduce_max(highest);
    return reduce_add(numbers) == 0 ? top : __builtin_nanf("");
  }

  static float exp_sum(const float* x, std::uint32_t n, float top, float scale) {
    V16 sum = zero();
    for_lanes(n, [&](std::uint32_t i, std::uint32_t count) {
      const V16 weight = exp(mul(sub(load_upto(x + i, count), set1(top)), set1(scale)));
      sum = add(sum, select(first_lanes(count), weight, zero()));
    });
    return reduce_add(sum);
  }

  static void exp_each(const float* x, float* out, std::uint32_t n, float top, float scale) {
    for_lanes(n, [&](std::uint32_t i, std::uint32_t count) {
      store_upto(out + i, exp(mul(sub(load_upto(x + i, count), set1(top)), set1(scale))), count);
    });
  }

  static std::uint32_t items(const KernelEnv& env, const void* args) {
    return sample_items(env, args);
  }

  static void run(const KernelEnv& env,
                  const void* args,
                  std::uint32_t begin,
                  std::uint32_t end,
                  std::byte* scratch) {
    sample_rows(env,
                *static_cast<const SampleArgs*>(args),
                begin,
                end,
                scratch,
                {maximum, exp_sum, exp_each});
  }
};

}  // namespace troupe::cpu::TROUPE_ISA
