#include "runtime/serve/request.h"

#include <cmath>
#include <cstdio>
#include <set>

namespace troupe {

namespace {

constexpr std::size_t kStopStringsMax = 16;
constexpr std::size_t kStopStringBytesMax = 1024;

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%g", value);
  return text;
}

Status check_range(const char* what, double value, double low, double high) {
  if (!(value >= low && value <= high)) {  // refuses a NaN too
    return error(Kind::kInvalid,
                 std::string(what) + " is " + number(value) + "; allowed is " + number(low) +
                     " to " + number(high));
  }
  return {};
}

Status check_positive(const char* what, double value, double high) {
  if (!(value > 0 && value <= high)) {
    return error(Kind::kInvalid,
                 std::string(what) + " is " + number(value) + "; allowed is more than 0, up to " +
                     number(high));
  }
  return {};
}

Status check_token(const std::string& what, std::uint32_t token, std::uint32_t vocab) {
  if (token >= vocab) {
    return error(Kind::kInvalid,
                 what + " is " + std::to_string(token) + "; the vocabulary has ids 0 to " +
                     std::to_string(vocab - 1));
  }
  return {};
}

Status check_sampling(const SamplingParams& sampling, std::uint32_t vocab) {
  TROUPE_TRY(check_range("temperature", static_cast<double>(sampling.temperature), 0, 100));
  TROUPE_TRY(check_positive("top_p", static_cast<double>(sampling.top_p), 1));
  TROUPE_TRY(check_range("min_p", static_cast<double>(sampling.min_p), 0, 1));
  TROUPE_TRY(
      check_positive("repetition_penalty", static_cast<double>(sampling.repetition_penalty), 100));
  TROUPE_TRY(
      check_range("presence_penalty", static_cast<double>(sampling.presence_penalty), -2, 2));
  TROUPE_TRY(
      check_range("frequency_penalty", static_cast<double>(sampling.frequency_penalty), -2, 2));
  std::set<std::uint32_t> biased;
  for (const auto& [token, bias] : sampling.logit_bias) {
    TROUPE_TRY(check_token("a token of logit_bias", token, vocab));
    TROUPE_TRY(check_range("a logit_bias", static_cast<double>(bias), -100, 100));
    if (!biased.insert(token).second) {
      return error(Kind::kInvalid, "logit_bias names token " + std::to_string(token) + " twice");
    }
  }
  return {};
}

Status check_stops(const std::vector<std::string>& stops) {
  if (stops.size() > kStopStringsMax) {
    return error(Kind::kInvalid,
                 "there are " + std::to_string(stops.size()) + " stop strings; at most " +
                     std::to_string(kStopStringsMax) + " are allowed");
  }
  for (const auto& stop : stops) {
    if (stop.empty() || stop.size() > kStopStringBytesMax) {
      return error(Kind::kInvalid,
                   "a stop string has " + std::to_string(stop.size()) + " bytes; allowed is 1 to " +
                       std::to_string(kStopStringBytesMax));
    }
  }
  return {};
}

Status check_alternatives(const char* what, const std::optional<std::uint32_t>& count) {
  if (count && *count > kTopLogprobs) {
    return error(Kind::kInvalid,
                 std::string(what) + " is " + std::to_string(*count) + "; allowed is 0 to " +
                     std::to_string(kTopLogprobs));
  }
  return {};
}

}  // namespace

std::string_view name(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kCancelled:
      return "cancelled";
    case FinishReason::kError:
      return "error";
  }
  return "?";
}

Status check_request(const Request& request, std::uint32_t vocab, std::uint32_t max_context) {
  if (request.prompt.empty()) {
    return error(Kind::kInvalid, "the prompt has no tokens; at least one is needed");
  }
  if (request.max_tokens == 0) {
    return error(Kind::kInvalid, "max_tokens is 0; at least 1 is needed");
  }
  const std::uint64_t total = std::uint64_t{request.prompt.size()} + request.max_tokens;
  if (total > max_context) {
    return error(Kind::kInvalid,
                 "the prompt's " + std::to_string(request.prompt.size()) +
                     " tokens and max_tokens " + std::to_string(request.max_tokens) + " make " +
                     std::to_string(total) + "; the context holds " + std::to_string(max_context));
  }
  for (std::size_t i = 0; i < request.prompt.size(); ++i) {
    if (request.prompt[i] >= vocab) {
      return check_token("prompt token " + std::to_string(i), request.prompt[i], vocab);
    }
  }
  TROUPE_TRY(check_sampling(request.sampling, vocab));
  TROUPE_TRY(check_alternatives("logprobs", request.logprobs));
  TROUPE_TRY(check_alternatives("prompt_logprobs", request.prompt_logprobs));
  return check_stops(request.stop_strings);
}

}  // namespace troupe
