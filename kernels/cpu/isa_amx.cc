// The kernel set "amx-bf16": matrix products by the tile registers, all else as avx512.
#define TROUPE_ISA amx_bf16
#define TROUPE_VEC_AVX512

#include "kernels/cpu/amx_engine.inl.h"
#include "kernels/cpu/isa_set.inl.h"

namespace troupe::cpu::amx_bf16 {
namespace {

// Assembly, because the compiler's own macros paste a tile's number into it as text and so can't
// take a template parameter.
struct Hardware {
  void configure(const TileShape& shape) { asm volatile("ldtilecfg %0" : : "m"(shape)); }
  void release() { asm volatile("tilerelease"); }
  template <int kTile>
  void zero() {
    asm volatile("tilezero %%tmm%c0" : : "i"(kTile));
  }
  template <int kTile>
  void load(const void* from, std::size_t stride_bytes) {
    asm volatile("tileloadd (%0,%1,1), %%tmm%c2"
                 :
                 : "r"(from), "r"(stride_bytes), "i"(kTile)
                 : "memory");
  }
  template <int kTile>
  void store(void* to, std::size_t stride_bytes) {
    asm volatile("tilestored %%tmm%c2, (%0,%1,1)"
                 :
                 : "r"(to), "r"(stride_bytes), "i"(kTile)
                 : "memory");
  }
  template <int kSum, int kX, int kW>
  void dot() {
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kSum), "i"(kX), "i"(kW));
  }
};

}  // namespace

extern constinit const KernelSet kSet =
    make_bf16_set<TileEngine<Hardware>>("amx-bf16", has_amx_bf16);

}  // namespace troupe::cpu::amx_bf16
