#include "deploy/serve_monitor.h"

#include "runtime/base/flight_recorder.h"

#include <nlohmann/json.hpp>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>
#include <vector>

namespace troupe::deploy {
namespace {

using Json = nlohmann::ordered_json;

std::string text(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// The busy actor that has finished nothing for longer than `patience`, if there is one.
const ActorProgress* stalled(const NodeStatus& status, Time now, Time patience) {
  for (const auto& actor : status.progress) {
    if (actor.busy && now - actor.last > patience) {
      return &actor;
    }
  }
  return nullptr;
}

Json progress_list(const NodeStatus& status, Time now) {
  auto list = Json::array();
  for (const auto& actor : status.progress) {
    list.push_back({{"actor", actor.actor},
                    {"busy", actor.busy},
                    {"age_s", in_seconds(std::max(now - actor.last, Time(0)))}});
  }
  return list;
}

double quantile(std::vector<double>& sorted, double at) {
  return sorted.empty()
             ? 0
             : sorted[std::min(sorted.size() - 1,
                               static_cast<std::size_t>(at * static_cast<double>(sorted.size())))];
}

}  // namespace

ServeMonitor::ServeMonitor(Node& node,
                           const Clock& clock,
                           const Setting& setting,
                           MonitorOptions options)
    : node_(node),
      clock_(clock),
      setting_(setting),
      options_(std::move(options)),
      started_(clock.now()) {}

void ServeMonitor::note(const net::ApiOutcome& outcome) {
  {
    const std::lock_guard lock(mutex_);
    ++outcomes_[{outcome.route, outcome.status, outcome.error_code}];
  }
  Json line = {{"request_id", outcome.request_id},
               {"remote", outcome.remote},
               {"route", outcome.route},
               {"status", outcome.status},
               {"ms", std::chrono::duration<double, std::milli>(outcome.duration).count()}};
  if (!outcome.error_code.empty()) {
    line["error"] = outcome.error_code;
  }
  if (!outcome.finish_reason.empty()) {
    line["finish_reason"] = outcome.finish_reason;
    line["prompt_tokens"] = outcome.prompt_tokens;
    line["completion_tokens"] = outcome.completion_tokens;
    line["stream"] = outcome.streamed;
  }
  spdlog::info("request {}", text(line));
}

ServeMonitor::Health ServeMonitor::health(Question question) const {
  const NodeStatus status = node_.status();
  const Time now = clock_.now();
  Json answer;
  bool good = true;
  if (status.lost) {
    good = false;
    answer = {{"status", "lost"}, {"why", status.lost->message}};
  } else if (const auto* actor = stalled(status, now, options_.stall_after)) {
    good = false;
    answer = {{"status", "stalled"},
              {"actor", actor->actor},
              {"age_s", in_seconds(now - actor->last)},
              {"limit_s", in_seconds(options_.stall_after)}};
  } else if (draining_) {
    good = question == Question::kLive;
    answer = {{"status", "draining"}};
  } else {
    answer = {{"status", "ok"}};
  }
  return {good, text(answer)};
}

std::string ServeMonitor::progress_json() const {
  const NodeStatus status = node_.status();
  return text({{"progress", progress_list(status, clock_.now())}, {"steps", status.steps}});
}

std::string ServeMonitor::state_json() const {
  const NodeStatus status = node_.status();
  const Time now = clock_.now();
  return text({
      {"model", options_.model},
      {"version", options_.version},
      {"uptime_s", in_seconds(now - started_)},
      {"draining", draining_.load()},
      {"device",
       {{"name", setting_.device.name},
        {"kernel_set", setting_.device.kernel_set},
        {"threads", setting_.device.threads},
        {"memory_bytes", setting_.device.memory_bytes}}},
      {"pages", {{"used", status.pages.used}, {"total", status.pages.total}}},
      {"blocks", {{"used", status.blocks.used}, {"total", status.blocks.total}}},
      {"queue",
       {{"waiting", status.waiting},
        {"running", status.running},
        {"queue_max", options_.queue_max},
        {"sequences_max", options_.sequences_max}}},
      {"steps",
       {{"count", status.steps},
        {"last_rows", status.last_decode_rows + status.last_prompt_rows},
        {"decode_rows", status.last_decode_rows},
        {"prompt_rows", status.last_prompt_rows},
        {"last_ms", status.last_step_s * 1e3}}},
      {"tokens", {{"prompt", status.prompt_tokens}, {"generated", status.generated_tokens}}},
      {"preemptions", status.preemptions},
      {"progress", progress_list(status, now)},
  });
}

std::string ServeMonitor::profile_json(Time window) const {
  const Time since = clock_.now() - window;
  std::vector<double> step_s;
  std::uint64_t planned = 0;
  std::uint64_t failed = 0;
  std::uint64_t decode_rows = 0;
  std::uint64_t prompt_rows = 0;
  for (const auto& event : node_.flight().events()) {
    if (event.at < since) {
      continue;
    }
    if (event.kind == FlightKind::kStepPlanned) {
      ++planned;
      decode_rows += event.a;
      prompt_rows += event.b;
    } else if (event.kind == FlightKind::kStepDone) {
      step_s.push_back(static_cast<double>(event.a) * 1e-6);
      failed += event.b;
    }
  }
  std::sort(step_s.begin(), step_s.end());
  double busy = 0;
  for (const double step : step_s) {
    busy += step;
  }
  return text({{"window_s", in_seconds(window)},
               {"events_dropped", node_.flight().dropped()},
               {"steps_planned", planned},
               {"steps_done", step_s.size()},
               {"steps_failed", failed},
               {"decode_rows", decode_rows},
               {"prompt_rows", prompt_rows},
               {"step_s",
                {{"p50", quantile(step_s, 0.5)},
                 {"p90", quantile(step_s, 0.9)},
                 {"p99", quantile(step_s, 0.99)},
                 {"max", step_s.empty() ? 0 : step_s.back()},
                 {"sum", busy}}}});
}

std::string ServeMonitor::flight_record() const {
  return node_.flight().json_lines();
}

}  // namespace troupe::deploy
