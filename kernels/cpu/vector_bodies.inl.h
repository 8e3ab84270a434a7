// The code behind the table of vector_ops.inl.h: which struct implements which kernel. Included by
// it, in the files that compile these kernels themselves.
#pragma once

#include "kernels/cpu/attention.inl.h"
#include "kernels/cpu/elementwise.h"
#include "kernels/cpu/elementwise.inl.h"
#include "kernels/cpu/gdn.inl.h"
#include "kernels/cpu/moe.h"
#include "kernels/cpu/moe.inl.h"
#include "kernels/cpu/norm.inl.h"
#include "kernels/cpu/sample.inl.h"

#define TROUPE_VECTOR_BODIES

namespace troupe::cpu::TROUPE_ISA {

struct Embed {
  static void run(
      const KernelEnv& env, const void* args, std::uint32_t begin, std::uint32_t end, std::byte*) {
    embed_rows(env, *static_cast<const EmbedArgs*>(args), begin, end);
  }
};

struct RopeTable {
  static void run(
      const KernelEnv& env, const void* args, std::uint32_t begin, std::uint32_t end, std::byte*) {
    rope_table_rows(env, *static_cast<const RopeTableArgs*>(args), begin, end);
  }
};

struct MoePermute {
  static std::uint32_t items(const KernelEnv&, const void*) { return 1; }
  static void run(
      const KernelEnv& env, const void* args, std::uint32_t, std::uint32_t, std::byte*) {
    permute(env, *static_cast<const MoePermuteArgs*>(args));
  }
};

template <KernelId kId, class Act>
struct Body;
template <class Act>
struct Body<KernelId::kEmbed, Act> : Embed {};
template <class Act>
struct Body<KernelId::kRopeTable, Act> : RopeTable {};
template <class Act>
struct Body<KernelId::kAdd, Act> : Add {};
template <class Act>
struct Body<KernelId::kNorm, Act> : Norm<Act> {};
template <class Act>
struct Body<KernelId::kSiluMul, Act> : SiluMul<Act> {};
template <class Act>
struct Body<KernelId::kGdnConv, Act> : GdnConv {};
template <class Act>
struct Body<KernelId::kGdnScan, Act> : GdnScan {};
template <class Act>
struct Body<KernelId::kGdnNorm, Act> : GdnNorm<Act> {};
template <class Act>
struct Body<KernelId::kAttentionPrepare, Act> : AttentionPrepare<Act> {};
template <class Act>
struct Body<KernelId::kAttention, Act> : Attention<Act> {};
template <class Act>
struct Body<KernelId::kGateMul, Act> : GateMul<Act> {};
template <class Act>
struct Body<KernelId::kRouter, Act> : Router {};
template <class Act>
struct Body<KernelId::kMoePermute, Act> : MoePermute {};
template <class Act>
struct Body<KernelId::kMoeCombine, Act> : MoeCombine<Act> {};
template <class Act>
struct Body<KernelId::kSample, Act> : Sample {};

// A struct without items() of its own has one per row.
template <KernelId kId, class Act>
std::uint32_t vector_items(const KernelEnv& env, const void* args) {
  if constexpr (requires { Body<kId, Act>::items(env, args); }) {
    return Body<kId, Act>::items(env, args);
  } else {
    return row_items(env, args);
  }
}

template <KernelId kId, class Act>
void vector_run(const KernelEnv& env,
                const void* args,
                std::uint32_t begin,
                std::uint32_t end,
                std::byte* scratch) {
  Body<kId, Act>::run(env, args, begin, end, scratch);
}

}  // namespace troupe::cpu::TROUPE_ISA
