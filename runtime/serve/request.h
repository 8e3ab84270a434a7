// Request: what a client asked, as a plain value, and what it gets back. Immutable once admitted.
//
// RQ-1: every admitted request ends exactly once: one RequestEvent with `finished` set per
//       choice-less request, nothing after.
// RQ-2: events of one request arrive in order; the tokens of all its events together are the
//       answer.
#pragma once

#include "kernels/ops.h"
#include "runtime/base/error.h"
#include "runtime/base/ids.h"

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace troupe {

struct SamplingParams {
  float temperature = 0;    // 0: greedy
  std::uint32_t top_k = 0;  // 0: off
  float top_p = 1;
  float min_p = 0;
  float repetition_penalty = 1;
  float presence_penalty = 0;
  float frequency_penalty = 0;
  std::vector<std::pair<std::uint32_t, float>> logit_bias;  // token, added to its logit
  std::optional<std::uint64_t> seed;  // drawn at admission when absent, and reported (decision D4)
};

struct Request {
  std::vector<std::uint32_t> prompt;  // token ids, at least one
  SamplingParams sampling;
  std::uint32_t max_tokens = 256;
  std::vector<std::uint32_t> stop_tokens;  // end the answer and are not part of its text
  std::vector<std::string> stop_strings;   // need a tokenizer
  bool ignore_stop_tokens = false;         // --ignore-eos
  std::optional<std::uint32_t>
      logprobs;  // alternatives per token, 0..kTopLogprobs; absent: none reported
  std::optional<std::uint32_t> prompt_logprobs;  // the same for the prompt's tokens but the first
  std::uint32_t choice = 0;                      // of the request's n (decision D4's counter)
};

enum class FinishReason : std::uint8_t { kStop, kLength, kCancelled, kError };
[[nodiscard]] std::string_view name(FinishReason reason);  // "stop", "length", "cancelled", "error"

struct TokenOutput {
  std::uint32_t token = 0;
  float logprob = 0;  // with Request::logprobs; -infinity: an id that the model never chooses
  std::vector<TokenValue> top;  // with Request::logprobs
  bool operator==(const TokenOutput&) const = default;
};

struct RequestStats {
  std::uint32_t prompt_tokens = 0;
  std::uint32_t generated_tokens = 0;
  std::uint32_t preemptions = 0;
  std::uint64_t seed = 0;
  std::int64_t queue_ns = 0;        // admission to first step
  std::int64_t first_token_ns = 0;  // admission to first token
  std::int64_t total_ns = 0;
};

struct RequestEvent {
  RequestId id;
  std::vector<TokenOutput>
      tokens;  // new since the last event; a stop token is reported here but adds no text
  // With Request::prompt_logprobs, in the event that brings the first token: one for each token of
  // the prompt; the first has no logprob (0) and no alternatives, as nothing comes before it.
  std::vector<TokenOutput> prompt;
  std::string text;  // new text, whole code points only; empty without a tokenizer
  bool finished = false;
  FinishReason reason = FinishReason::kStop;
  std::optional<Error> failure;  // with kError
  RequestStats stats;            // complete when finished
};

// Called on an actor's thread, in order; must not block: hand over and return.
using RequestSink = std::function<void(const RequestEvent&)>;

// Range checks of everything that does not depend on the load. Errors: kInvalid names the
// parameter, its value and the range.
[[nodiscard]] Status check_request(const Request& request,
                                   std::uint32_t vocab,
                                   std::uint32_t max_context);

}  // namespace troupe
