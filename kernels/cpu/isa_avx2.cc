// The kernel set "avx2": AVX2 with FMA.
#define TROUPE_ISA avx2
#define TROUPE_VEC_AVX2

#include "kernels/cpu/isa_set.inl.h"

namespace troupe::cpu::avx2 {

extern constinit const KernelSet kSet = make_fma_set("avx2", has_avx2);

}  // namespace troupe::cpu::avx2
