#include "runtime/device/worker_pool.h"

#include "kernels/ops.h"

#include <algorithm>
#include <utility>

namespace troupe {

namespace {

// A pause is 40 to 140 cycles; the limit on pauses bounds a spin even under a clock that stands
// still.
constexpr std::uint32_t kPausesPerLook = 16;
constexpr std::uint32_t kMostLooks = 256;

void pause() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Looks until `ready()` or until the spinning time is over; says whether it became ready.
template <class Ready>
bool spin(const Clock& clock, const Ready& ready) {
  const Time began = clock.now();
  for (std::uint32_t look = 0; look < kMostLooks; ++look) {
    for (std::uint32_t i = 0; i < kPausesPerLook; ++i) {
      if (ready()) {
        return true;
      }
      pause();
    }
    if (clock.now() - began > WorkerPool::kSpin) {
      break;
    }
  }
  return ready();
}

}  // namespace

WorkerPool::WorkerPool(std::uint32_t workers, const Clock& clock)
    : clock_(clock), workers_(workers), active_(workers) {}

Result<std::unique_ptr<WorkerPool>> WorkerPool::make(const std::string& name,
                                                     std::uint32_t workers,
                                                     const Clock& clock) {
  TROUPE_CHECK(workers > 0, "worker 0 is the thread that drives");
  std::unique_ptr<WorkerPool> pool(new WorkerPool(workers, clock));
  auto scratch = Mapping::make(workers * kScratchBytes);
  if (!scratch) {
    return error(scratch.error().kind, name + ", scratch of workers: " + scratch.error().message);
  }
  pool->scratch_ = std::move(*scratch);
  for (std::uint32_t i = 0; i < workers; ++i) {
    pool->workers_[i].scratch = pool->scratch_->data() + i * kScratchBytes;
  }
  for (std::uint32_t i = 1; i < workers; ++i) {
    Worker& worker = pool->workers_[i];
    TROUPE_TRY(worker.thread.start(name + " w" + std::to_string(i),
                                   [self = pool.get(), &worker] { self->work_loop(worker); }));
  }
  return pool;
}

WorkerPool::~WorkerPool() {
  parking_.stop.store(true);
  parking_.session.store(false);
  wake_all();
  for (Worker& worker : workers_) {
    worker.thread.join();
  }
}

void WorkerPool::begin_session() {
  parking_.session.store(true, std::memory_order_relaxed);
}

void WorkerPool::end_session() {
  parking_.session.store(false, std::memory_order_relaxed);
}

void WorkerPool::launch(const PoolTask& task, std::uint32_t items) {
  if (items <= 1 || workers_.size() == 1) {
    if (items > 0) {
      task.run(task.context, 0, items, workers_[0].scratch);
    }
    return;
  }
  ++launches_;
  if (active_ < workers_.size()) {
    end_rests(clock_.now());
  }
  if (active_ == 1) {
    task.run(task.context, 0, items, workers_[0].scratch);
    return;
  }
  board_.task = task;
  board_.items = items;
  board_.most_at_once.store(task.most_at_once, std::memory_order_relaxed);
  progress_.completed.store(0, std::memory_order_relaxed);
  board_.word.store((launches_ << 32) | items);
  if (parking_.parked.load() > 0) {
    wake_all();
  }
  while (run_some(workers_[0])) {
  }
  await_items(items);
}

// Claims and runs a few items; false when none are left. Shares shrink with what is left, so that
// workers end together without a claim per item.
bool WorkerPool::run_some(Worker& worker) {
  std::uint64_t word = board_.word.load(std::memory_order_acquire);
  std::uint32_t left = 0;
  std::uint32_t count = 0;
  do {
    left = unclaimed(word);
    if (left == 0) {
      return false;
    }
    const auto share = left / (2 * static_cast<std::uint32_t>(workers_.size()));
    // A stale limit can only make the share larger or smaller than meant.
    count =
        std::clamp(share, 1U, std::max(1U, board_.most_at_once.load(std::memory_order_relaxed)));
    count = std::min(count, left);
  } while (!board_.word.compare_exchange_weak(
      word, word - count, std::memory_order_acq_rel, std::memory_order_acquire));
  worker.holds.store(true, std::memory_order_relaxed);
  const PoolTask task = board_.task;
  const std::uint32_t items = board_.items;
  task.run(task.context, items - left, items - left + count, worker.scratch);
  worker.holds.store(false, std::memory_order_relaxed);
  if (progress_.completed.fetch_add(count) + count == items && progress_.awaited.load()) {
    progress_.completed.notify_all();
  }
  return true;
}

void WorkerPool::await_items(std::uint32_t items) {
  const auto all_done = [this, items] {
    return progress_.completed.load(std::memory_order_acquire) == items;
  };
  if (all_done() || spin(clock_, all_done)) {
    return;
  }
  const Time blocked = clock_.now();
  for (Worker& worker : workers_) {
    worker.suspect = worker.holds.load(std::memory_order_relaxed);
    if (worker.suspect) {
      worker.used_before = worker.thread.processor_time();
    }
  }
  progress_.awaited.store(true);
  for (std::uint32_t done = progress_.completed.load(); done != items;
       done = progress_.completed.load()) {
    progress_.completed.wait(done);
  }
  progress_.awaited.store(false, std::memory_order_relaxed);
  judge(blocked);
}

// Looks at those that held an item since `blocked` but were not on a processor. One that computed
// was not late: its item was long.
void WorkerPool::judge(Time blocked) {
  const Time now = clock_.now();
  const Time waited = now - blocked;
  if (waited < kLate) {
    return;
  }
  for (Worker& worker : workers_) {
    if (!worker.suspect || 2 * (worker.thread.processor_time() - worker.used_before) >= waited) {
      continue;
    }
    late_.fetch_add(1, std::memory_order_relaxed);
    worker.waited += waited;
    if (is_worth_it(worker, now)) {
      continue;
    }
    worker.rest_for = std::clamp(2 * worker.rest_for, 2 * waited, kLongestRest);
    worker.rest_until = now + worker.rest_for;
    worker.rests.store(true);
    next_rest_end_ = active_ == workers_.size() ? worker.rest_until
                                                : std::min(next_rest_end_, worker.rest_until);
    --active_;
  }
  resting_.store(workers() - active_, std::memory_order_relaxed);
}

// With it n workers stand still for what it was waited for, without it one share of n is lost all
// the time. Twice the wait, because what it does of its items then comes late too.
bool WorkerPool::is_worth_it(Worker& worker, Time now) {
  if (now - worker.active_since > kMemory) {
    // It did well for long: older waits are forgotten in proportion, and so are its rests.
    const Time over = now - worker.active_since - kMemory;
    worker.waited = std::max(Time{0}, worker.waited - over / (2 * static_cast<int>(active_)));
    worker.active_since = now - kMemory;
    worker.rest_for = Time{0};
  }
  return 2 * static_cast<int>(active_) * worker.waited <= now - worker.active_since;
}

void WorkerPool::end_rests(Time now) {
  if (now < next_rest_end_) {
    return;
  }
  next_rest_end_ = Time::max();
  for (Worker& worker : workers_) {
    if (!worker.rests.load(std::memory_order_relaxed)) {
      continue;
    }
    if (now >= worker.rest_until) {
      worker.rests.store(false);
      worker.active_since = now;
      worker.waited = Time{0};
      ++active_;
    } else {
      next_rest_end_ = std::min(next_rest_end_, worker.rest_until);
    }
  }
  resting_.store(workers() - active_, std::memory_order_relaxed);
  wake_all();
}

void WorkerPool::wake_all() {
  parking_.wakes.fetch_add(1);
  parking_.wakes.notify_all();
}

void WorkerPool::work_loop(Worker& worker) {
  const auto launched = [this] {
    return unclaimed(board_.word.load(std::memory_order_relaxed)) > 0;
  };
  const auto enough = [this, &launched] {
    return launched() || !parking_.session.load(std::memory_order_relaxed);
  };
  while (!parking_.stop.load()) {
    if (worker.rests.load() || (!run_some(worker) && !(spin(clock_, enough) && launched()))) {
      park(worker);
    }
  }
}

// Blocks until there are items to claim, a session needs this worker again, or the pool stops. The
// order "count myself, look at the word, block" against launch()'s "write the word, look at the
// count" loses no launch.
void WorkerPool::park(Worker& worker) {
  bool counted = false;
  while (!parking_.stop.load()) {
    const std::uint32_t wakes = parking_.wakes.load();
    const bool rests = worker.rests.load();
    if (rests == counted) {
      counted = !rests;
      parking_.parked.fetch_add(rests ? ~0U : 1U);
    }
    if (!rests && unclaimed(board_.word.load()) > 0) {
      break;
    }
    parking_.wakes.wait(wakes);
    if (!rests && parking_.session.load(std::memory_order_relaxed)) {
      break;
    }
  }
  if (counted) {
    parking_.parked.fetch_sub(1);
  }
}

}  // namespace troupe
