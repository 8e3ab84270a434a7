// ServeMonitor: what the server tells about itself: health, metrics, the page's state, profile,
// flight recorder, and one log line for each HTTP request. It reads the node's telemetry and never
// waits for an actor. Owned by `troupe serve`; any thread.
#pragma once

#include "actors/node.h"
#include "deploy/report.h"
#include "net/http.h"
#include "net/openai.h"
#include "runtime/base/sources.h"

#include <atomic>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <tuple>

namespace troupe::deploy {

struct MonitorOptions {
  std::string model;
  std::string version;
  std::uint32_t queue_max = 0;
  std::uint32_t sequences_max = 0;
  Time stall_after{0};  // work to do and no step finished for this long: not healthy
};

class ServeMonitor final {
 public:
  enum class Question {
    kLive,   // may this process go on? no: restart it
    kReady,  // should requests be sent here?
  };
  struct Health {
    bool good = false;
    std::string json;
  };

  // All outlive the monitor.
  ServeMonitor(Node& node, const Clock& clock, const Setting& setting, MonitorOptions options);

  // Logs and counts. ApiOptions::on_outcome.
  void note(const net::ApiOutcome& outcome);
  void set_draining() { draining_ = true; }
  [[nodiscard]] bool draining() const { return draining_; }
  // Where connection counts come from; set once, before the first request.
  void set_http(std::function<net::HttpCounts()> counts) { http_ = std::move(counts); }

  [[nodiscard]] Health health(Question question) const;
  [[nodiscard]] std::string progress_json() const;
  [[nodiscard]] std::string state_json() const;
  [[nodiscard]] std::string metrics() const;  // Prometheus text format 0.0.4
  [[nodiscard]] std::string profile_json(Time window) const;
  [[nodiscard]] std::string flight_record() const;  // JSON lines

 private:
  Node& node_;
  const Clock& clock_;
  const Setting& setting_;
  const MonitorOptions options_;
  const Time started_;
  std::function<net::HttpCounts()> http_;
  std::atomic<bool> draining_ = false;
  mutable std::mutex mutex_;
  std::map<std::tuple<std::string, unsigned, std::string>, std::uint64_t>
      outcomes_;  // (route, status, code) -> HTTP requests
};

}  // namespace troupe::deploy
