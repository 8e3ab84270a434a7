#include "tests/support/fake_token.h"

#include "tests/support/fake_stage.h"

#include <algorithm>
#include <array>
#include <bit>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

namespace troupe {

namespace {

std::uint64_t bits(float value) {
  return std::uint64_t{std::bit_cast<std::uint32_t>(value)};
}

}  // namespace

std::uint64_t fake_mix(std::uint64_t hash, std::uint64_t value) {
  hash ^= value + 0x632be59bd9b4e019ULL;
  hash *= 0xff51afd7ed558ccdULL;
  return hash ^ (hash >> 32);
}

std::uint32_t fake_token(std::uint64_t history,
                         std::uint32_t position,
                         const SampleParams& params,
                         std::span<const TokenValue> values,
                         std::uint32_t vocab) {
  std::uint64_t hash = history;
  for (const float value : {params.temperature,
                            params.top_p,
                            params.min_p,
                            params.repetition_penalty,
                            params.presence_penalty,
                            params.frequency_penalty}) {
    hash = fake_mix(hash, bits(value));
  }
  hash = fake_mix(hash, params.top_k);
  if (params.temperature > 0) {
    hash = fake_mix(fake_mix(fake_mix(hash, params.key), params.choice), position);
  }
  const std::array<std::pair<std::uint32_t, std::uint32_t>, 3> lists{
      {{params.prompt_begin, params.prompt_end},
       {params.generated_begin, params.generated_end},
       {params.bias_begin, params.bias_end}}};
  for (const auto& [begin, end] : lists) {
    hash = fake_mix(hash, end - begin);
    for (std::uint32_t i = begin; i < end; ++i) {
      hash = fake_mix(fake_mix(hash, values[i].token), bits(values[i].value));
    }
  }
  return static_cast<std::uint32_t>(hash % vocab);
}

SampleResult fake_report(std::uint64_t history,
                         std::uint32_t token,
                         const SampleParams& params,
                         std::uint32_t vocab) {
  const auto value = [history](std::uint64_t of) {
    return -static_cast<float>(fake_mix(history, of) % 4096) / 64;
  };
  SampleResult result;
  result.token = static_cast<std::int32_t>(token);
  result.logprob = params.want_logprob != 0 ? value(token) : 0;
  result.top_count = std::min(params.top_logprobs, kTopLogprobs);
  for (std::uint32_t i = 0; i < result.top_count; ++i) {
    const auto other = static_cast<std::uint32_t>((history + i) % vocab);
    result.top[i] = {other, value(other)};
  }
  return result;
}

namespace {

TokenOutput fake_output(std::uint64_t history,
                        std::uint32_t token,
                        const std::optional<std::uint32_t>& alternatives,
                        std::uint32_t vocab) {
  SampleParams params;
  params.top_logprobs = alternatives.value_or(0);
  params.want_logprob = alternatives ? 1 : 0;
  const SampleResult result = fake_report(history, token, params, vocab);
  return {token, result.logprob, {result.top.begin(), result.top.begin() + result.top_count}};
}

}  // namespace

FakeAnswer fake_answer(const Request& request, std::uint64_t seed, std::uint32_t vocab) {
  const SamplingParams& from = request.sampling;
  FakeAnswer answer;
  std::uint64_t hash = kFakeEmptyHistory;
  for (const std::uint32_t token : request.prompt) {
    if (request.prompt_logprobs) {
      answer.prompt.push_back(answer.prompt.empty()
                                  ? TokenOutput{.token = token, .top = {}}
                                  : fake_output(hash, token, request.prompt_logprobs, vocab));
    }
    hash = fake_mix(hash, token);
  }
  auto position = static_cast<std::uint32_t>(request.prompt.size() - 1);
  std::map<std::uint32_t, float> counts;
  while (answer.tokens.size() < request.max_tokens) {
    // Built from the request here, on purpose not by the planner's own function.
    std::vector<TokenValue> values;
    SampleParams params;
    params.temperature = from.temperature;
    params.top_k = from.top_k;
    params.top_p = from.top_p;
    params.min_p = from.min_p;
    params.repetition_penalty = from.repetition_penalty;
    params.presence_penalty = from.presence_penalty;
    params.frequency_penalty = from.frequency_penalty;
    params.key = seed;
    params.choice = request.choice;
    if (from.repetition_penalty != 1) {
      for (const std::uint32_t token :
           std::set<std::uint32_t>(request.prompt.begin(), request.prompt.end())) {
        if (!counts.contains(token)) {
          values.push_back({token, 1});
        }
      }
    }
    params.prompt_end = params.generated_begin = static_cast<std::uint32_t>(values.size());
    if (from.repetition_penalty != 1 || from.presence_penalty != 0 || from.frequency_penalty != 0) {
      for (const auto& [token, count] : counts) {
        values.push_back({token, count});
      }
    }
    params.generated_end = params.bias_begin = static_cast<std::uint32_t>(values.size());
    for (const auto& [token, bias] :
         std::map<std::uint32_t, float>(from.logit_bias.begin(), from.logit_bias.end())) {
      values.push_back({token, bias});
    }
    params.bias_end = static_cast<std::uint32_t>(values.size());
    const std::uint32_t token = fake_token(hash, position, params, values, vocab);
    answer.tokens.push_back(token);
    answer.outputs.push_back(fake_output(hash, token, request.logprobs, vocab));
    if (!request.ignore_stop_tokens &&
        std::find(request.stop_tokens.begin(), request.stop_tokens.end(), token) !=
            request.stop_tokens.end()) {
      answer.reason = FinishReason::kStop;
      break;
    }
    counts[token] += 1;
    hash = fake_mix(hash, token);
    ++position;
  }
  return answer;
}

}  // namespace troupe
