// The kernel set "avx512": AVX-512 F, BW, VL and DQ.
#define TROUPE_ISA avx512
#define TROUPE_VEC_AVX512

#include "kernels/cpu/isa_set.inl.h"

namespace troupe::cpu::avx512 {

extern constinit const KernelSet kSet = make_fma_set("avx512", has_avx512);

}  // namespace troupe::cpu::avx512
