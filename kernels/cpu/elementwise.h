// Kernels that only move or look up values, compiled once for all kernel sets: embedding, rotary
// table. Contracts: ops.h.
#pragma once

#include "kernels/ops.h"

namespace troupe::cpu {

void embed_rows(const KernelEnv& env,
                const EmbedArgs& args,
                std::uint32_t begin,
                std::uint32_t end);
void rope_table_rows(const KernelEnv& env,
                     const RopeTableArgs& args,
                     std::uint32_t begin,
                     std::uint32_t end);

}  // namespace troupe::cpu
