// Sequence: what the planner knows about one admitted request: its tokens, how many of them the
// state covers, and what it holds of the pools. Part of the planner; no thread of its own.
#pragma once

#include "kernels/ops.h"
#include "runtime/base/error.h"
#include "runtime/base/ids.h"
#include "runtime/base/sources.h"
#include "runtime/serve/request.h"
#include "runtime/state/slot_pool.h"

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace troupe {

struct Sequence {
  RequestId id;
  std::shared_ptr<const Request> request;
  std::uint64_t seed = 0;

  std::vector<std::uint32_t> tokens;  // prompt, then what was generated
  std::uint32_t computed = 0;         // of them, the first ones that page and blocks cover
  std::optional<PageRef> page;        // absent at the start: the zero page
  std::vector<BlockRef> blocks;
  std::optional<StepId> away;  // the step that it is in

  std::map<std::uint32_t, std::uint32_t> counts;  // generated token -> occurrences
  std::vector<std::uint32_t>
      prompt_set;  // distinct prompt tokens, ascending; only with a repetition penalty

  // With Request::prompt_logprobs: of the prompt's first tokens, in order. Taken once, with the
  // first token of the answer; kept when the state is recomputed, so that no row reports twice.
  std::vector<TokenOutput> prompt_outputs;

  bool cancelled = false;
  bool spared = false;         // resumed and has emitted no token since: not to be preempted
  bool started = false;        // first_step is the time of its first step
  std::uint32_t attempts = 0;  // failed steps since its last token
  std::uint32_t preemptions = 0;
  Time first_step{0};

  [[nodiscard]] std::uint32_t remaining() const {
    return static_cast<std::uint32_t>(tokens.size()) - computed;
  }
  [[nodiscard]] std::uint32_t generated() const {
    return static_cast<std::uint32_t>(tokens.size() - request->prompt.size());
  }
  // Whether the row of tokens[index] tells how likely the next token of the prompt is, which is
  // not known yet.
  [[nodiscard]] bool reports(std::uint32_t index) const {
    return request->prompt_logprobs && generated() == 0 && index + 1 < tokens.size() &&
           index + 1 >= prompt_outputs.size();
  }
};

// Of the sequence's next `rows` rows: how many are sampled, as they report on the prompt or bring
// the next token.
[[nodiscard]] std::uint32_t sampled_rows(const Sequence& sequence, std::uint32_t rows);

[[nodiscard]] std::string text_of(RequestId id);  // "request 7"

// The tokens, each once, ascending.
[[nodiscard]] std::vector<std::uint32_t> distinct(std::vector<std::uint32_t> tokens);

// Whether the sparse sampling lists of a request will always fit into a step; else it would wait
// for ever. kInvalid names the numbers.
[[nodiscard]] Status check_lists(const Request& request,
                                 std::uint32_t vocab,
                                 std::uint32_t values_max);

[[nodiscard]] constexpr std::uint32_t blocks_for(std::uint64_t token_count) {
  return static_cast<std::uint32_t>((token_count + kBlockTokens - 1) / kBlockTokens);
}

// The sampling parameters of the sequence's next token. Appends its sparse lists to `values`,
// ascending by token; the prompt's list leaves out tokens that are in the generated list, so that
// no token is penalised twice.
[[nodiscard]] SampleParams sample_params(const Sequence& sequence, std::vector<TokenValue>& values);

// Those of a row that reports on the prompt's token `next`.
[[nodiscard]] SampleParams report_params(const Sequence& sequence, std::uint32_t next);

}  // namespace troupe
