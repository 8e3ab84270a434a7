// Which kernel set runs here (decision D8). The tables themselves are constants, one per file
// isa_*.cc; this header has what decides between them. Pure functions, any thread.
//
// KS-1: a set's table is constant-initialised: nothing compiled for a newer processor runs before
// its available() said yes.
#pragma once

#include "kernels/ops.h"
#include "runtime/base/sources.h"

#include <string>

namespace troupe {

struct KernelChoice {
  const KernelSet* set = nullptr;  // never null
  std::string why;                 // the measured figures, for people
};

// Measures the sets that may run here with `activation` on a product of one row (bound by memory)
// and one of 64 rows (bound by arithmetic), some 10 ms in all, and takes the one with the smallest
// product of both times. Allocates and frees 9 MB.
[[nodiscard]] KernelChoice choose_kernel_set(Activation activation, const Clock& clock);

namespace cpu {

// Does this processor, and this kernel, have what the set needs?
[[nodiscard]] bool has_scalar();
[[nodiscard]] bool has_avx2();
[[nodiscard]] bool has_avx512();
[[nodiscard]] bool has_avx512_bf16();
[[nodiscard]] bool
has_amx_bf16();  // also asks the kernel to let this process use the tile registers

namespace scalar {
extern const KernelSet kSet;
}
namespace avx2 {
extern const KernelSet kSet;
}
namespace avx512 {
extern const KernelSet kSet;
}
namespace avx512_bf16 {
extern const KernelSet kSet;
}
namespace amx_bf16 {
extern const KernelSet kSet;
}

}  // namespace cpu
}  // namespace troupe
