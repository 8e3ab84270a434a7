// Kernel sets whose matrix products run the code of avx512-bf16 and amx-bf16 with VDPBF16PS and
// TDPBF16PS emulated exactly, so that all but the bare instructions is tested on any processor.
// Only kLinear, kExpertSwiglu and kExpertDown are filled.
#pragma once

#include "kernels/ops.h"

namespace troupe::testing {

[[nodiscard]] const KernelSet& emulated_pair_set();  // "emulated-pairs"
[[nodiscard]] const KernelSet& emulated_tile_set();  // "emulated-tiles"

}  // namespace troupe::testing
