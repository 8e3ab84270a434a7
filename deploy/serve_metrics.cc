// The server's metrics, one family after another.
#include "deploy/metric_text.h"
#include "deploy/report.h"
#include "deploy/serve_monitor.h"

#include <array>
#include <string>
#include <vector>

namespace troupe::deploy {
namespace {

template <std::size_t N>
void add(MetricText& out,
         const std::string& name,
         const std::string& help,
         const Histogram<N>& histogram) {
  std::vector<MetricText::Bucket> buckets;
  for (std::size_t i = 0; i < N; ++i) {
    buckets.push_back({histogram.bounds()[i], histogram.counts()[i]});
  }
  out.histogram(name, help, buckets, histogram.count(), histogram.sum());
}

void add_requests(MetricText& out, const NodeStatus& status) {
  const std::string state = "Requests in the engine now, by state.";
  out.gauge("troupe_requests", state, status.waiting, {{"state", "waiting"}});
  out.gauge("troupe_requests", state, status.running, {{"state", "running"}});
  out.counter("troupe_requests_admitted_total",
              "Requests that the engine took in (each choice of a request counts).",
              static_cast<double>(status.admitted));
  for (std::size_t i = 0; i < status.finished.size(); ++i) {
    out.counter("troupe_requests_finished_total",
                "Requests that ended, by reason.",
                static_cast<double>(status.finished[i]),
                {{"reason", std::string(name(static_cast<FinishReason>(i)))}});
  }
  for (std::size_t i = 0; i < status.failed.size(); ++i) {
    out.counter("troupe_requests_failed_total",
                "Of the requests that ended with an error, how many with which kind of it.",
                static_cast<double>(status.failed[i]),
                {{"error", std::string(name(static_cast<Kind>(i)))}});
  }
  const std::array<std::pair<const char*, std::uint64_t>, 3> refused = {
      {{"queue_full", status.refused_full},
       {"invalid", status.refused_invalid},
       {"closed", status.refused_closed}}};
  for (const auto& [reason, count] : refused) {
    out.counter("troupe_requests_refused_total",
                "Requests that the engine did not take in, by reason.",
                static_cast<double>(count),
                {{"reason", reason}});
  }
  add(out, "troupe_queue_seconds", "From admission to the first step.", status.queue_s);
  add(out,
      "troupe_time_to_first_token_seconds",
      "From admission to the first token.",
      status.first_token_s);
  add(out,
      "troupe_inter_token_seconds",
      "Between two tokens of one request.",
      status.between_tokens_s);
  add(out, "troupe_request_seconds", "From admission to the end.", status.total_s);
}

void add_steps(MetricText& out, const NodeStatus& status) {
  out.counter("troupe_prompt_tokens_total",
              "Prompt tokens of admitted requests.",
              static_cast<double>(status.prompt_tokens));
  out.counter("troupe_generated_tokens_total",
              "Tokens handed to clients.",
              static_cast<double>(status.generated_tokens));
  out.counter("troupe_recomputed_tokens_total",
              "Tokens computed again after a preemption or a failed step.",
              static_cast<double>(status.recomputed_tokens));
  out.counter("troupe_steps_total", "Steps planned.", static_cast<double>(status.steps));
  out.counter("troupe_steps_failed_total",
              "Steps that came back with an error.",
              static_cast<double>(status.failed_steps));
  out.gauge("troupe_steps_in_flight", "Steps on the device now.", status.steps_away);
  const std::string rows = "Rows of steps that came back, by kind.";
  out.counter("troupe_step_rows_total",
              rows,
              static_cast<double>(status.decode_rows),
              {{"kind", "decode"}});
  out.counter("troupe_step_rows_total",
              rows,
              static_cast<double>(status.prompt_rows),
              {{"kind", "prompt"}});
  add(out, "troupe_step_rows", "Rows of a step.", status.rows);
  add(out, "troupe_step_seconds", "Duration of a step on the device.", status.step_s);
}

void add_pool(MetricText& out, const std::string& what, const PoolUse& pool) {
  const std::string name = "troupe_" + what;
  const std::string help = what + " of the device, by state.";
  out.gauge(name, help, pool.used, {{"state", "used"}});
  out.gauge(name, help, pool.total - pool.used - pool.quarantined, {{"state", "free"}});
  out.gauge(name, help, pool.quarantined, {{"state", "quarantined"}});
}

void add_progress(MetricText& out, const NodeStatus& status, Time now) {
  for (const auto& actor : status.progress) {
    out.gauge("troupe_actor_idle_seconds",
              "Since an actor last finished something; a busy one with a high age is stalled.",
              in_seconds(std::max(now - actor.last, Time(0))),
              {{"actor", actor.actor}});
  }
  for (const auto& actor : status.progress) {
    out.gauge("troupe_actor_busy",
              "Whether an actor has work.",
              actor.busy ? 1 : 0,
              {{"actor", actor.actor}});
  }
  out.gauge("troupe_engine_lost", "1: no more steps will be run.", status.lost ? 1 : 0);
}

}  // namespace

std::string ServeMonitor::metrics() const {
  const NodeStatus status = node_.status();
  MetricText out;
  add_requests(out, status);
  add_steps(out, status);
  add_pool(out, "state_pages", status.pages);
  add_pool(out, "kv_blocks", status.blocks);
  out.counter("troupe_preemptions_total",
              "Sequences whose state was dropped to make room.",
              static_cast<double>(status.preemptions));
  out.counter("troupe_pool_imbalances_total",
              "Pages or blocks whose book-keeping did not add up: a bug.",
              static_cast<double>(status.imbalances));
  add_progress(out, status, clock_.now());
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [key, count] : outcomes_) {
      const auto& [route, code, reason] = key;
      out.counter("troupe_http_requests_total",
                  "HTTP requests to the API that were answered, by route, status and error code.",
                  static_cast<double>(count),
                  {{"route", route}, {"status", std::to_string(code)}, {"error", reason}});
    }
  }
  if (http_) {
    const net::HttpCounts http = http_();
    out.gauge("troupe_http_connections", "Open connections.", http.open);
    out.counter("troupe_http_connections_accepted_total",
                "Connections accepted.",
                static_cast<double>(http.accepted));
    out.counter("troupe_http_connections_refused_total",
                "Connections over the limit.",
                static_cast<double>(http.refused));
    out.gauge("troupe_http_bodies_bytes",
              "Bodies of requests that are read or wait to be.",
              static_cast<double>(http.bodies_bytes));
    out.counter("troupe_http_bodies_refused_total",
                "Requests over the limit of all bodies together.",
                static_cast<double>(http.bodies_refused));
    out.counter("troupe_http_slow_readers_total",
                "Streams that were dropped because their readers took nothing.",
                static_cast<double>(http.slow_readers));
  }
  out.gauge("process_resident_memory_bytes",
            "Memory of this process that is in RAM.",
            static_cast<double>(resident_bytes()));
  return out.text();
}

}  // namespace troupe::deploy
