#include "tests/world/scheduler.h"

#include "runtime/base/error.h"

#include <caf/all.hpp>
#include <caf/scheduler/test_coordinator.hpp>

#include <algorithm>
#include <cstdlib>
#include <cxxabi.h>

namespace troupe {

namespace {

constexpr std::size_t kTraceLines = 2000;
constexpr std::uint64_t kPrime = 1099511628211ULL;

struct SystemConfig : caf::actor_system_config {
  SystemConfig() { set("scheduler.policy", caf::atom("testing")); }
};

// CAF keeps its schedule protected; the accessor adds no members, so the cast below changes
// nothing.
struct OpenClock : caf::detail::test_actor_clock {
  static const auto& schedule(const caf::detail::test_actor_clock& clock) {
    return clock.*(&OpenClock::schedule_);
  }
};

// The messages' own types have no text form; their names say enough.
std::string types_of(const caf::type_erased_tuple& content) {
  std::string names;
  for (std::size_t i = 0; i < content.size(); ++i) {
    const auto [number, type] = content.type(i);
    int status = 0;
    const std::unique_ptr<char, void (*)(void*)> plain(
        type != nullptr ? abi::__cxa_demangle(type->name(), nullptr, nullptr, &status) : nullptr,
        std::free);
    names +=
        (i > 0 ? ", " : "") + (plain ? std::string(plain.get()) : "type " + std::to_string(number));
  }
  return names;
}

}  // namespace

struct SimScheduler::Caf {
  Caf()
      : system(config),
        scheduler(dynamic_cast<caf::scheduler::test_coordinator*>(&system.scheduler())) {
    TROUPE_CHECK(scheduler != nullptr, "CAF runs its testing scheduler");
    scheduler->clock().current_time += std::chrono::hours(1);  // time zero means "never" to CAF
    start = scheduler->clock().now();
  }
  [[nodiscard]] caf::actor_clock::time_point time(Time since_start) const {
    return start + std::chrono::duration_cast<caf::actor_clock::duration_type>(since_start);
  }

  SystemConfig config;
  caf::actor_system system;
  caf::scheduler::test_coordinator* scheduler;
  caf::actor_clock::time_point start;
};

SimScheduler::SimScheduler(std::uint64_t seed, bool keep_trace)
    : caf_(std::make_unique<Caf>()), clock_(*this), rng_(seed), keep_trace_(keep_trace) {}

SimScheduler::~SimScheduler() {
  timers_.clear();
  while (caf_->scheduler->try_run_once()) {
  }
}

caf::actor_system& SimScheduler::system() {
  return caf_->system;
}

Time SimScheduler::now() const {
  return std::chrono::duration_cast<Time>(caf_->scheduler->clock().now() - caf_->start);
}

void SimScheduler::at(Time delay, std::function<void()> work) {
  timers_.emplace(std::make_pair(now() + delay, next_timer_++), std::move(work));
}

void SimScheduler::hash(std::uint64_t value) {
  hash_ ^= value;
  hash_ *= kPrime;
}

void SimScheduler::note(const std::string& what) {
  for (const char byte : what) {
    hash(static_cast<unsigned char>(byte));
  }
  log(what);
}

void SimScheduler::log(const std::string& what) {
  if (keep_trace_) {
    const auto us = std::chrono::duration_cast<std::chrono::microseconds>(now()).count();
    trace_.push_back("[" + std::to_string(us) + " us] " + what);
    if (trace_.size() > kTraceLines) {
      trace_.pop_front();
    }
  }
}

void SimScheduler::record_message() {
  auto* actor = dynamic_cast<caf::scheduled_actor*>(caf_->scheduler->jobs.front());
  if (actor == nullptr) {
    return;
  }
  const std::uint64_t count = ++handled_[actor->id()];
  hash(actor->id());
  hash(count);
  hash(static_cast<std::uint64_t>(now().count()));
  if (keep_trace_) {
    if (const auto* element = actor->peek_at_next_mailbox_element()) {
      log(std::string(actor->name()) + " <- " + types_of(element->content()));
    }
  }
}

bool SimScheduler::step() {
  auto& jobs = caf_->scheduler->jobs;
  if (jobs.empty()) {
    return fire_next_timer();
  }
  const auto chosen = static_cast<std::ptrdiff_t>(rng_.below(jobs.size()));
  std::rotate(jobs.begin(), jobs.begin() + chosen, jobs.begin() + chosen + 1);
  record_message();
  ++steps_;
  caf_->scheduler->try_run_once();
  return true;
}

bool SimScheduler::fire_next_timer() {
  const auto& schedule = OpenClock::schedule(caf_->scheduler->clock());
  const bool ours =
      !timers_.empty() &&
      (schedule.empty() || caf_->time(timers_.begin()->first.first) <= schedule.begin()->first);
  if (!ours) {
    return !schedule.empty() && caf_->scheduler->trigger_timeout();
  }
  const auto timer = timers_.begin();
  const auto work = std::move(timer->second);
  auto& current = caf_->scheduler->clock().current_time;
  current = std::max(current, caf_->time(timer->first.first));
  timers_.erase(timer);
  work();
  return true;
}

bool SimScheduler::run_until(const std::function<bool()>& done, Time limit) {
  const Time end = now() + limit;
  while (!done()) {
    if (caf_->scheduler->jobs.empty() && next_timer() > end) {
      return false;
    }
    static_cast<void>(step());
  }
  return true;
}

Time SimScheduler::next_timer() const {
  const auto& schedule = OpenClock::schedule(caf_->scheduler->clock());
  Time next = timers_.empty() ? Time::max() : timers_.begin()->first.first;
  if (!schedule.empty()) {
    next = std::min(next, std::chrono::duration_cast<Time>(schedule.begin()->first - caf_->start));
  }
  return next;
}

void SimScheduler::run_for(Time span) {
  bool over = false;
  at(span, [&over] { over = true; });
  while (!over && step()) {
  }
}

}  // namespace troupe
