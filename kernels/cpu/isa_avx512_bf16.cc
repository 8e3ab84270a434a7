// The kernel set "avx512-bf16": matrix products by VDPBF16PS, all else as avx512.
#define TROUPE_ISA avx512_bf16
#define TROUPE_VEC_AVX512

#include "kernels/cpu/bf16_engine.inl.h"
#include "kernels/cpu/isa_set.inl.h"

namespace troupe::cpu::avx512_bf16 {
namespace {

struct Hardware {
  using Sum = __m512;
  using Weights = __m512i;
  using Inputs = __m512i;

  static Sum zero() { return _mm512_setzero_ps(); }
  static Sum load(const float* from) { return _mm512_loadu_ps(from); }
  static void store(float* to, Sum sum) { _mm512_storeu_ps(to, sum); }
  static Weights weights(const bf16* line) { return _mm512_loadu_si512(line); }
  static Inputs pair(const bf16* x) {
    std::int32_t both;
    __builtin_memcpy(&both, x, sizeof both);
    return _mm512_set1_epi32(both);
  }
  static Sum dot(Sum sum, Weights w, Inputs x) {
    return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(w), reinterpret_cast<__m512bh>(x));
  }
};

}  // namespace

extern constinit const KernelSet kSet =
    make_bf16_set<PairEngine<Hardware>>("avx512-bf16", has_avx512_bf16);

}  // namespace troupe::cpu::avx512_bf16
