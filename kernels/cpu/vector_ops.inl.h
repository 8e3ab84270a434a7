// Every kernel but the matrix products (gemm.inl.h), for the instruction set of the including file: fills their places in its
// table. Shapes and numerics are in ops.h.
#pragma once

#include "kernels/cpu/attention.inl.h"
#include "kernels/cpu/elementwise.h"
#include "kernels/cpu/elementwise.inl.h"
#include "kernels/cpu/gdn.inl.h"
#include "kernels/cpu/moe.h"
#include "kernels/cpu/moe.inl.h"
#include "kernels/cpu/norm.inl.h"
#include "kernels/cpu/sample.inl.h"

namespace troupe::cpu::TROUPE_ISA {

template <class Act>
struct Embed {
  static void run(const KernelEnv& env, const void* args, std::uint32_t begin, std::uint32_t end, std::byte*) {
    constexpr Activation kAct = sizeof(Act) == 2 ? Activation::kBF16 : Activation::kF32;
    embed_rows(env, *static_cast<const EmbedArgs*>(args), kAct, begin, end);
  }
};

struct RopeTable {
  static void run(const KernelEnv& env, const void* args, std::uint32_t begin, std::uint32_t end, std::byte*) {
    rope_table_rows(env, *static_cast<const RopeTableArgs*>(args), begin, end);
  }
};

struct MoePermute {
  static std::uint32_t items(const KernelEnv&, const void*) { return 1; }
  static void run(const KernelEnv& env, const void* args, std::uint32_t, std::uint32_t, std::byte*) {
    permute(env, *static_cast<const MoePermuteArgs*>(args));
  }
};

// Only ever evaluated while compiling (the tables are constants).
template <class Act>
constexpr void fill_vector_kernels_of(KernelSet& set) {
  constexpr auto kAct = static_cast<std::size_t>(sizeof(Act) == 2 ? Activation::kBF16 : Activation::kF32);
  const auto put = [&set](KernelId id, auto items, auto run) {
    set.kernels[static_cast<std::size_t>(id)][kAct] = {items, run};
  };
  put(KernelId::kEmbed, row_items, Embed<Act>::run);
  put(KernelId::kRopeTable, row_items, RopeTable::run);
  put(KernelId::kAdd, row_items, Add<Act>::run);
  put(KernelId::kNorm, Norm<Act>::items, Norm<Act>::run);
  put(KernelId::kSiluMul, row_items, SiluMul<Act>::run);
  put(KernelId::kGdnConv, GdnConv<Act>::items, GdnConv<Act>::run);
  put(KernelId::kGdnScan, GdnScan<Act>::items, GdnScan<Act>::run);
  put(KernelId::kGdnNorm, row_items, GdnNorm<Act>::run);
  put(KernelId::kAttentionPrepare, row_items, AttentionPrepare<Act>::run);
  put(KernelId::kAttention, Attention<Act>::items, Attention<Act>::run);
  put(KernelId::kGateMul, row_items, GateMul<Act>::run);
  put(KernelId::kRouter, row_items, Router::run);
  put(KernelId::kMoePermute, MoePermute::items, MoePermute::run);
  put(KernelId::kMoeCombine, row_items, MoeCombine<Act>::run);
  put(KernelId::kSample, sample_items, Sample::run);
}

constexpr void fill_vector_kernels(KernelSet& set) {
  fill_vector_kernels_of<bf16>(set);
  fill_vector_kernels_of<float>(set);
}

}  // namespace troupe::cpu::TROUPE_ISA
