// Every kernel but the matrix products (gemm.inl.h), for the instruction set of the including file:
// fills their places in its table. Shapes and numerics are in ops.h.
//
// A set that adds only matrix instructions to AVX-512 takes the functions of the set "avx512"
// instead of compiling them again.
#pragma once

#include "kernels/cpu/access.h"

#if defined(TROUPE_VEC_AVX512) && (defined(__AVX512BF16__) || defined(__AMX_BF16__))
#define TROUPE_VECTOR_OPS avx512
#else
#define TROUPE_VECTOR_OPS TROUPE_ISA
#include "kernels/cpu/vector_bodies.inl.h"
#endif

// F(id) for each of these kernels. (clang-format 14 finds no end to laying this out.)
// clang-format off
#define TROUPE_VECTOR_KERNELS(F) \
  F(kEmbed) F(kRopeTable) F(kAdd) F(kNorm) \
  F(kSiluMul) F(kGdnConv) F(kGdnScan) F(kGdnNorm) \
  F(kAttentionPrepare) F(kAttention) F(kGateMul) F(kRouter) \
  F(kMoePermute) F(kMoeCombine) F(kSample)
// clang-format on

namespace troupe::cpu::TROUPE_VECTOR_OPS {

// Defined in vector_bodies.inl.h, instantiated below by the one file that compiles them.
template <KernelId kId, class Act>
std::uint32_t vector_items(const KernelEnv& env, const void* args);
template <KernelId kId, class Act>
void vector_run(const KernelEnv& env,
                const void* args,
                std::uint32_t begin,
                std::uint32_t end,
                std::byte* scratch);

#if defined(TROUPE_VECTOR_BODIES)
#define TROUPE_INSTANTIATE(id)                                                             \
  template std::uint32_t vector_items<KernelId::id, bf16>(const KernelEnv&, const void*);  \
  template std::uint32_t vector_items<KernelId::id, float>(const KernelEnv&, const void*); \
  template void vector_run<KernelId::id, bf16>(                                            \
      const KernelEnv&, const void*, std::uint32_t, std::uint32_t, std::byte*);            \
  template void vector_run<KernelId::id, float>(                                           \
      const KernelEnv&, const void*, std::uint32_t, std::uint32_t, std::byte*);
TROUPE_VECTOR_KERNELS(TROUPE_INSTANTIATE)
#undef TROUPE_INSTANTIATE
#endif

}  // namespace troupe::cpu::TROUPE_VECTOR_OPS

namespace troupe::cpu::TROUPE_ISA {

// Only ever evaluated while compiling (the tables are constants).
template <class Act>
constexpr void fill_vector_kernels_of(KernelSet& set) {
  constexpr auto kAct =
      static_cast<std::size_t>(sizeof(Act) == 2 ? Activation::kBF16 : Activation::kF32);
#define TROUPE_PUT(id)                                          \
  set.kernels[static_cast<std::size_t>(KernelId::id)][kAct] = { \
      cpu::TROUPE_VECTOR_OPS::vector_items<KernelId::id, Act>,  \
      cpu::TROUPE_VECTOR_OPS::vector_run<KernelId::id, Act>};
  TROUPE_VECTOR_KERNELS(TROUPE_PUT)
#undef TROUPE_PUT
}

constexpr void fill_vector_kernels(KernelSet& set) {
  fill_vector_kernels_of<bf16>(set);
  fill_vector_kernels_of<float>(set);
}

}  // namespace troupe::cpu::TROUPE_ISA
