// StepContext: the private memory of one un-waited commit: copies of its inputs in the form that
// kernels read, its results, its workspace. Owned by an executable; touched by its actor before
// submission and after completion, by the device in between.
//
// StepChecker: decides whether inputs may become a step, before anything is changed (EX-2, EX-4).
#pragma once

#include "kernels/ops.h"
#include "runtime/base/error.h"
#include "runtime/device/device.h"
#include "runtime/program/executable.h"
#include "runtime/program/stage.h"

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace troupe {

enum class TicketState : std::uint8_t { kFree, kRunning, kDone };

struct StepContext {
  std::vector<StepRow> rows;
  std::vector<StepSegment> segments;
  std::vector<SampledRow> sampled;
  std::vector<std::uint32_t> blocks;
  std::vector<TokenValue> values;
  std::vector<SampleResult> results;
  StepTable table;
  std::unique_ptr<Buffer> workspace;

  TicketId ticket;
  std::atomic<TicketState> state{TicketState::kFree};
  Status status;
  Time duration{0};
  Ref logits;
  std::function<void(const WorkResult&)> done;  // made once; posts to the executable

  // Reserves for the largest step (EX-1).
  void reserve(const StageInfo& info);
  // Copies checked inputs; `previous` are the results that negative tokens refer to; `key` replaces
  // a sampling key of 0.
  void fill(const StepInputs& inputs, std::span<const SampleResult> previous, std::uint64_t key);
};

class StepChecker final {
 public:
  StepChecker(const StageInfo& info, std::uint32_t pages, std::uint32_t blocks);

  // `previous`: sampled rows of the source ticket. Errors: kInvalid names the row or segment, the
  // number and its limit.
  [[nodiscard]] Status check(const StepInputs& inputs, std::uint32_t previous);
  // Remembers the generations that checked inputs name. Call when the step is certain to be
  // submitted.
  void accept(const StepInputs& inputs);

 private:
  Status check_segments(const StepInputs& inputs);
  Status check_segment(const StepInputs& inputs, std::size_t index, std::uint32_t first_row);
  Status check_rows(const StepInputs& inputs, std::uint32_t previous) const;
  Status check_sampled(const StepInputs& inputs) const;
  Status check_page(PageRef page, const char* what, std::size_t index) const;
  Status check_block(BlockRef block, std::size_t segment) const;

  const StageInfo& info_;
  std::vector<std::uint32_t> page_generations_;
  std::vector<std::uint32_t> block_generations_;
  // Who writes a page or block in the step being checked: stamp * 2^32 + segment, so that nothing
  // is cleared between steps.
  std::vector<std::uint64_t> page_writers_;
  std::vector<std::uint64_t> block_writers_;
  std::uint64_t stamp_ = 0;
};

}  // namespace troupe
