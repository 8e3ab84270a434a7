// Step: one pass of the batch as plain values: what the planner asks of the devices and what it
// tells about the sequences. Immutable once planned; any thread.
#pragma once

#include "kernels/ops.h"
#include "runtime/base/error.h"
#include "runtime/base/ids.h"
#include "runtime/base/sources.h"
#include "runtime/program/executable.h"
#include "runtime/serve/request.h"
#include "runtime/state/slot_pool.h"

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace troupe {

// The owned form of StepInputs; the fields mean the same.
struct StepPlan {
  StepId id;
  std::vector<std::int32_t> tokens;
  std::vector<PageRef> write_pages;
  std::vector<SegmentInput> segments;
  std::vector<BlockRef> blocks;
  std::uint32_t block_width = 0;
  std::vector<SampledInput> sampled;
  std::vector<TokenValue> values;
  std::vector<PageRef> freed_pages;
  std::vector<BlockRef> freed_blocks;

  std::uint32_t decode_rows = 0;  // rows of sequences that wait for nothing but their next token
  // Sequences that lost their state for this step, and the tokens to compute again; also in a step
  // that is empty.
  std::vector<std::pair<RequestId, std::uint32_t>> preempted;

  [[nodiscard]] bool empty() const { return segments.empty(); }
  [[nodiscard]] StepInputs inputs() const {  // borrows from this plan
    return {.tokens = tokens,
            .write_pages = write_pages,
            .segments = segments,
            .blocks = blocks,
            .block_width = block_width,
            .sampled = sampled,
            .values = values,
            .source = {},
            .freed_pages = freed_pages,
            .freed_blocks = freed_blocks};
  }
};

// What came of a step. `results` belong to StepPlan::sampled, one each, when status is good.
struct StepResult {
  Status status;
  std::vector<SampleResult> results;
  Time duration{0};
};

// News about one sequence. Exactly one event of a sequence has `finished` set, and it is the last.
struct SequenceEvent {
  RequestId id;
  std::vector<TokenOutput> tokens;
  std::vector<TokenOutput> prompt;  // as RequestEvent::prompt
  bool finished = false;
  FinishReason reason = FinishReason::kStop;
  std::optional<Error> failure;  // with kError
  std::uint32_t preemptions = 0;
  Time first_step{0};  // when its first row was planned; the time of its admission before that
};

}  // namespace troupe
