// SimScheduler: an actor system of CAF in one thread, from one seed: which ready actor handles its
// next message is drawn, and time is virtual: it jumps to the next timer when nobody is ready. The
// same seed gives the same order of everything, and a hash to prove it.
//
// SS-1: no thread is started, nothing sleeps; actors must not be spawned detached.
// SS-2: the hash covers every handled message (actor, its count, virtual time) and every note().
#pragma once

#include "runtime/base/sources.h"

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>

namespace caf {
class actor_system;
}  // namespace caf

namespace troupe {

class SimScheduler final {
 public:
  explicit SimScheduler(std::uint64_t seed, bool keep_trace = false);
  ~SimScheduler();  // kills what is left and runs it down
  SimScheduler(const SimScheduler&) = delete;
  SimScheduler& operator=(const SimScheduler&) = delete;

  [[nodiscard]] caf::actor_system& system();
  [[nodiscard]] const Clock& clock() const { return clock_; }
  [[nodiscard]] Rng& rng() { return rng_; }

  // Calls `work` at now + delay.
  void at(Time delay, std::function<void()> work);
  // One message of one actor, or the next timer. False when nothing is left.
  bool step();
  // Until `done`, or nothing is left to do within `limit` of virtual time. True when `done`.
  bool run_until(const std::function<bool()>& done, Time limit);
  void run_for(Time span);

  void note(const std::string& what);
  [[nodiscard]] std::uint64_t trace_hash() const { return hash_; }
  [[nodiscard]] std::uint64_t steps() const { return steps_; }
  [[nodiscard]] const std::deque<std::string>& trace() const {
    return trace_;
  }  // with keep_trace: the last lines

 private:
  struct Caf;
  class VirtualClock final : public Clock {
   public:
    explicit VirtualClock(const SimScheduler& scheduler) : scheduler_(scheduler) {}
    [[nodiscard]] Time now() const override { return scheduler_.now(); }

   private:
    const SimScheduler& scheduler_;
  };

  [[nodiscard]] Time now() const;
  void hash(std::uint64_t value);
  void log(const std::string& what);
  void record_message();
  [[nodiscard]] bool fire_next_timer();
  [[nodiscard]] Time next_timer() const;  // Time::max(): none

  std::unique_ptr<Caf> caf_;
  VirtualClock clock_;
  Rng rng_;
  bool keep_trace_;
  std::map<std::pair<Time, std::uint64_t>, std::function<void()>> timers_;
  std::uint64_t next_timer_ = 0;
  std::map<std::uint64_t, std::uint64_t> handled_;  // actor -> messages
  std::uint64_t hash_ = 1469598103934665603ULL;
  std::uint64_t steps_ = 0;
  std::deque<std::string> trace_;
};

}  // namespace troupe
