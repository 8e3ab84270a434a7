// The memory of a stage, decided before anything is allocated. Pure.
#pragma once

#include "runtime/base/error.h"
#include "runtime/circuit/layout.h"
#include "runtime/model/config.h"
#include "runtime/program/stage.h"

#include <cstdint>
#include <string>

namespace troupe {

// Chooses page and block counts where the options leave them open: room for every sequence of a
// step twice over (a step reads one page and writes another) and for one sequence of full context,
// within the memory that is left after weights and workspaces (`available_bytes` 0: without a
// limit). kOverloaded with the whole table when the least that can work does not fit.
[[nodiscard]] Result<MemoryLedger> make_ledger(const ModelConfig& config,
                                               const StageOptions& options,
                                               const WeightLayout& weights,
                                               const StateLayout& states,
                                               std::uint64_t workspace_bytes,
                                               std::uint64_t available_bytes);

// "12.3 GiB", "640 KiB", "17 bytes".
[[nodiscard]] std::string bytes_text(std::uint64_t bytes);

}  // namespace troupe
