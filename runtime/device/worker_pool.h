// WorkerPool: spreads the items of one launch over worker threads, launch after launch, at the
// price of about a microsecond. Owned by a device. One thread at a time drives it (launch() and the
// session calls) and is worker 0.
//
// WP-1: every item of a launch runs exactly once; launch() returns when all items are complete, not
//       when all workers came (decision D10): a worker without a claimed item holds up nobody.
// WP-2: a worker touches the arguments of a launch only while it holds a claimed item of it.
// WP-3: outside of a session idle workers block. Inside they spin for at most kSpin between
//       launches, then block.
// WP-4: launch() allocates nothing. It blocks only for items that others have claimed, after
//       spinning for at most kSpin.
// WP-5: a worker that holds items without getting a processor for so long that the others lose more
//       by waiting than it adds rests: twice as long as it was waited for, and twice as long again
//       each time it does no better, at most kLongestRest. A core that another process takes costs
//       its share and not a time slice a launch; one that is taken now and then stays in use.
#pragma once

#include "runtime/base/error.h"
#include "runtime/base/sources.h"
#include "runtime/device/memory.h"
#include "runtime/device/thread.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace troupe {

// Runs items [begin, end) of what `context` describes. `scratch` is the worker's own,
// kScratchBytes.
struct PoolTask {
  void (*run)(const void* context,
              std::uint32_t begin,
              std::uint32_t end,
              std::byte* scratch) = nullptr;
  const void* context = nullptr;
  std::uint32_t most_at_once = 0xffffffffU;  // items handed out together
};

class WorkerPool final {
 public:
  static constexpr Time kSpin{30'000};
  static constexpr Time kLate{300'000};       // shorter waits are never held against a worker
  static constexpr Time kMemory{64'000'000};  // of what a worker did since it last rested
  static constexpr Time kLongestRest{1'000'000'000};

  // `clock` outlives the pool and is read by its threads. Errors: kOverloaded when the system gives
  // no threads or memory.
  [[nodiscard]] static Result<std::unique_ptr<WorkerPool>> make(const std::string& name,
                                                                std::uint32_t workers,
                                                                const Clock& clock);
  ~WorkerPool();  // REQUIRES: no launch runs
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  // Between these calls launches are expected one after the other.
  void begin_session();
  void end_session();

  // Runs all items of the task; with one item or one worker on this thread alone.
  void launch(const PoolTask& task, std::uint32_t items);

  [[nodiscard]] std::uint32_t workers() const {
    return static_cast<std::uint32_t>(workers_.size());
  }
  // Any thread.
  [[nodiscard]] std::uint64_t late_count() const { return late_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::uint32_t resting_count() const {
    return resting_.load(std::memory_order_relaxed);
  }

 private:
  // The shared word of a launch: its number and how many items nobody has claimed yet. A claim is
  // one compare-and-swap, so it fails if the launch is over. (A worker would have to sleep through
  // exactly 2^32 launches to be fooled.)
  struct alignas(64) Board {
    std::atomic<std::uint64_t> word{0};
    std::atomic<std::uint32_t> most_at_once{1};
    PoolTask task;  // of that launch: written before the word, read only by holders of a claim
    std::uint32_t items = 0;
  };
  struct alignas(64) Progress {
    std::atomic<std::uint32_t> completed{0};
    std::atomic<bool> awaited{false};  // worker 0 blocks on `completed`
  };
  struct alignas(64) Parking {
    std::atomic<std::uint32_t> wakes{0};   // blocked workers wait for it to change
    std::atomic<std::uint32_t> parked{0};  // blocked workers that want to hear of launches
    std::atomic<bool> session{false};
    std::atomic<bool> stop{false};
  };
  struct alignas(64) Worker {
    std::byte* scratch = nullptr;
    std::atomic<bool> holds{false};  // a claimed item; advice only
    std::atomic<bool> rests{false};
    // Worker 0's notes.
    bool suspect = false;  // held an item when worker 0 began to wait
    Time used_before{0};   // its processor time then
    Time active_since{0};
    Time waited{0};    // for this worker, since then
    Time rest_for{0};  // the last rest
    Time rest_until{0};
    Thread thread;  // last: it ends before the rest of the worker does
  };

  WorkerPool(std::uint32_t workers, const Clock& clock);
  [[nodiscard]] static std::uint32_t unclaimed(std::uint64_t word) {
    return static_cast<std::uint32_t>(word);
  }
  void work_loop(Worker& worker);
  bool run_some(Worker& worker);
  void park(Worker& worker);
  void wake_all();
  void await_items(std::uint32_t items);
  void judge(Time blocked);
  [[nodiscard]] bool is_worth_it(Worker& worker, Time now);
  void end_rests(Time now);

  const Clock& clock_;
  std::unique_ptr<Mapping> scratch_;
  std::vector<Worker> workers_;
  Board board_;
  Progress progress_;
  Parking parking_;
  // Of the thread that drives.
  std::uint64_t launches_ = 0;
  Time next_rest_end_{0};
  std::uint32_t active_;  // workers that do not rest
  std::atomic<std::uint64_t> late_{0};
  std::atomic<std::uint32_t> resting_{0};
};

}  // namespace troupe
