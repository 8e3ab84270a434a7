// Row maps of the fused projections: entry i is the stored row of logical row i
// (MODEL.md 2.3, 2.4). Private to runtime/model. Pure functions, any thread.
//
// LA-1: the maps of one fused tensor are disjoint and together name each of its rows once.
#pragma once

#include "runtime/model/config.h"

#include <cstdint>
#include <vector>

namespace troupe {

using RowMap = std::vector<std::uint32_t>;

// in_proj_qkvz [2Kd+2Vd, H] is grouped by key head: its q, its k, the v of its value heads, the z
// of its value heads.
[[nodiscard]] RowMap fused_qkv_rows(
    const ModelConfig& config);  // 2Kd+Vd entries: all q | all k | all v
[[nodiscard]] RowMap fused_z_rows(const ModelConfig& config);  // Vd entries

// in_proj_ba [2nv, H] is grouped by key head: the b of its value heads, then their a.
[[nodiscard]] RowMap fused_b_rows(const ModelConfig& config);  // nv entries
[[nodiscard]] RowMap fused_a_rows(const ModelConfig& config);  // nv entries

// q_proj [2NqD, H] holds, head by head, D rows of query and D rows of output gate.
[[nodiscard]] RowMap query_rows(const ModelConfig& config);  // NqD entries
[[nodiscard]] RowMap gate_rows(const ModelConfig& config);   // NqD entries

}  // namespace troupe
