#include "runtime/serve/sequence.h"

#include <algorithm>
#include <utility>

namespace troupe {

namespace {

std::uint32_t end_of(const std::vector<TokenValue>& values) {
  return static_cast<std::uint32_t>(values.size());
}

}  // namespace

std::vector<std::uint32_t> distinct(std::vector<std::uint32_t> tokens) {
  std::sort(tokens.begin(), tokens.end());
  tokens.erase(std::unique(tokens.begin(), tokens.end()), tokens.end());
  return tokens;
}

Status check_lists(const Request& request, std::uint32_t vocab, std::uint32_t values_max) {
  const SamplingParams& sampling = request.sampling;
  std::uint64_t values = 0;
  if (sampling.repetition_penalty != 1) {
    values = distinct(request.prompt).size() + std::uint64_t{request.max_tokens};
  } else if (sampling.presence_penalty != 0 || sampling.frequency_penalty != 0) {
    values = request.max_tokens;
  }
  values = std::min<std::uint64_t>(values, vocab) + sampling.logit_bias.size();
  if (values > values_max) {
    return error(Kind::kInvalid,
                 "penalties and logit_bias may need " + std::to_string(values) +
                     " entries; a step holds " + std::to_string(values_max) +
                     ": lower max_tokens, or leave the penalties out");
  }
  return {};
}

std::string text_of(RequestId id) {
  return "request " + std::to_string(id.value);
}

std::uint32_t sampled_rows(const Sequence& sequence, std::uint32_t rows) {
  std::uint32_t count = rows == sequence.remaining() ? 1 : 0;
  for (std::uint32_t i = 0; i < rows; ++i) {
    count += sequence.reports(sequence.computed + i) ? 1 : 0;
  }
  return count;
}

SampleParams report_params(const Sequence& sequence, std::uint32_t next) {
  SampleParams params;
  params.forced = static_cast<std::int32_t>(next);
  params.key = sequence.seed;
  params.top_logprobs = sequence.request->prompt_logprobs.value_or(0);
  params.want_logprob = 1;
  return params;
}

SampleParams sample_params(const Sequence& sequence, std::vector<TokenValue>& values) {
  const SamplingParams& from = sequence.request->sampling;
  SampleParams to;
  to.temperature = from.temperature;
  to.top_k = from.top_k;
  to.top_p = from.top_p;
  to.min_p = from.min_p;
  to.repetition_penalty = from.repetition_penalty;
  to.presence_penalty = from.presence_penalty;
  to.frequency_penalty = from.frequency_penalty;
  to.key = sequence.seed;
  to.choice = sequence.request->choice;
  to.top_logprobs = sequence.request->logprobs.value_or(0);
  to.want_logprob = sequence.request->logprobs ? 1 : 0;

  const bool repetition = from.repetition_penalty != 1;
  const bool counted = repetition || from.presence_penalty != 0 || from.frequency_penalty != 0;
  to.prompt_begin = end_of(values);
  if (repetition) {
    for (const std::uint32_t token : sequence.prompt_set) {
      if (!sequence.counts.contains(token)) {
        values.push_back({token, 1});
      }
    }
  }
  to.prompt_end = to.generated_begin = end_of(values);
  if (counted) {
    for (const auto& [token, count] : sequence.counts) {
      values.push_back({token, static_cast<float>(count)});
    }
  }
  to.generated_end = to.bias_begin = end_of(values);
  for (const auto& [token, bias] : from.logit_bias) {
    values.push_back({token, bias});
  }
  to.bias_end = end_of(values);
  std::sort(values.begin() + to.bias_begin,
            values.end(),
            [](const TokenValue& a, const TokenValue& b) { return a.token < b.token; });
  return to;
}

}  // namespace troupe
