// The kernel set "scalar": plain C++, the reference that the other fp32 sets equal bit for bit.
#define TROUPE_ISA scalar
#define TROUPE_VEC_SCALAR

#include "kernels/cpu/isa_set.inl.h"

namespace troupe::cpu::scalar {

extern constinit const KernelSet kSet = make_fma_set("scalar", has_scalar);

}  // namespace troupe::cpu::scalar
