#include "deploy/report.h"

#include "runtime/program/ledger.h"

#include <nlohmann/json.hpp>

#include <array>
#include <cstdio>
#include <fstream>
#include <unistd.h>
#include <utility>

namespace troupe::deploy {
namespace {

using Json = nlohmann::ordered_json;

double seconds(std::int64_t ns) {
  return static_cast<double>(ns) * 1e-9;
}

// Text of a model may hold anything; what is not UTF-8 is replaced rather than refused.
std::string line(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string format(const char* pattern, double value) {
  std::array<char, 64> buffer{};
  std::snprintf(buffer.data(), buffer.size(), pattern, value);
  return buffer.data();
}

Json logprobs_json(const std::vector<TokenOutput>& tokens) {
  Json list = Json::array();
  for (const auto& token : tokens) {
    Json top = Json::array();
    for (const auto& other : token.top) {
      top.push_back(Json::array({other.token, other.value}));
    }
    list.push_back(
        {{"token_id", token.token}, {"logprob", token.logprob}, {"top", std::move(top)}});
  }
  return list;
}

Json stats_json(const RequestStats& stats, const Setting& setting) {
  return {{"prompt_tokens", stats.prompt_tokens},
          {"generated_tokens", stats.generated_tokens},
          {"seed", stats.seed},
          {"preemptions", stats.preemptions},
          {"queue_s", seconds(stats.queue_ns)},
          {"first_token_s", seconds(stats.first_token_ns)},
          {"total_s", seconds(stats.total_ns)},
          {"decode_tokens_per_s", decode_rate(stats)},
          {"load_s", setting.load_s},
          {"kernel_set", setting.device.kernel_set},
          {"threads", setting.device.threads},
          {"arithmetic_digest", setting.stage.arithmetic_digest}};
}

}  // namespace

double decode_rate(const RequestStats& stats) {
  const double time = seconds(stats.total_ns - stats.first_token_ns);
  return stats.generated_tokens < 2 || time <= 0 ? 0 : (stats.generated_tokens - 1) / time;
}

std::string answer_json(const std::vector<std::uint32_t>& prompt,
                        const Answer& answer,
                        bool logprobs,
                        const Setting& setting,
                        std::optional<std::size_t> index) {
  Json json = Json::object();
  if (index) {
    json["index"] = *index;
  }
  Json ids = Json::array();
  for (const auto& token : answer.tokens) {
    ids.push_back(token.token);
  }
  json["prompt_token_ids"] = prompt;
  json["token_ids"] = std::move(ids);
  json["text"] = answer.text;
  json["finish_reason"] = name(answer.reason);
  if (logprobs) {
    json["logprobs"] = logprobs_json(answer.tokens);
  }
  json["stats"] = stats_json(answer.stats, setting);
  return line(json);
}

std::string failure_json(const Error& error, std::size_t index) {
  return line(
      {{"index", index}, {"error", {{"kind", name(error.kind)}, {"message", error.message}}}});
}

std::string rate_text(double amount, double time_s) {
  return time_s <= 0 ? "-" : format("%.1f", amount / time_s);
}

std::string stats_text(const Answer& answer) {
  const auto& stats = answer.stats;
  const double first = seconds(stats.first_token_ns);
  return "prompt: " + std::to_string(stats.prompt_tokens) + " tokens, first token after " +
         format("%.3f s", first) + " (queued " + format("%.3f s", seconds(stats.queue_ns)) + ")\n" +
         "answer: " + std::to_string(stats.generated_tokens) + " tokens in " +
         format("%.3f s", seconds(stats.total_ns)) + ", " + format("%.1f", decode_rate(stats)) +
         " tokens/s after the first\n" + "seed: " + std::to_string(stats.seed) +
         ", preemptions: " + std::to_string(stats.preemptions) + "\n";
}

std::string setting_text(const Setting& setting, std::uint64_t resident) {
  return "kernels: " + setting.device.kernel_set +
         ", threads: " + std::to_string(setting.device.threads) + "\n" + "loaded in " +
         format("%.2f s", setting.load_s) + ", resident " + bytes_text(resident) + "\n" +
         setting.stage.ledger.text();
}

std::uint64_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  std::uint64_t size = 0;
  std::uint64_t resident = 0;
  return file >> size >> resident ? resident * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE))
                                  : 0;
}

}  // namespace troupe::deploy
