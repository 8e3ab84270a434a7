// The pool under the CPU device: items once each, from few and many workers, through interruptions.
#include "runtime/device/worker_pool.h"

#include "runtime/base/sources.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

namespace troupe {
namespace {

using Body = std::function<void(std::uint32_t item)>;

void launch(WorkerPool& pool,
            std::uint32_t items,
            const Body& body,
            std::uint32_t most_at_once = 0xffffffffU) {
  const PoolTask task{
      .run =
          [](const void* context, std::uint32_t begin, std::uint32_t end, std::byte*) {
            for (std::uint32_t i = begin; i < end; ++i) {
              (*static_cast<const Body*>(context))(i);
            }
          },
      .context = &body,
      .most_at_once = most_at_once};
  pool.launch(task, items);
}

// Work without memory, about 1 ns a turn.
void burn(std::uint64_t turns) {
  for (std::uint64_t i = 0; i < turns; ++i) {
    asm volatile("");
  }
}

class WorkerPoolStress : public testing::TestWithParam<std::uint32_t> {};

TEST_P(WorkerPoolStress, RunsEveryItemOfThousandsOfLaunchesOnce) {
  const SteadyClock clock;
  const auto pool = WorkerPool::make("test", GetParam(), clock).value();
  Rng rng(GetParam());
  std::vector<std::uint8_t> hits(400);  // plain: a missing barrier is a data race
  for (int i = 0; i < 4000; ++i) {
    if (i % 100 == 0) {
      pool->end_session();  // workers go to sleep here and there
    } else if (i % 100 == 10) {
      pool->begin_session();
    }
    const auto items = static_cast<std::uint32_t>(rng.below(rng.below(10) == 0 ? 400 : 20));
    const std::uint64_t odd_one = rng.below(400);
    const std::uint64_t turns = rng.below(50) == 0 ? 100'000 : 0;
    const auto most = static_cast<std::uint32_t>(1 + rng.below(100));

    launch(
        *pool,
        items,
        [&hits, odd_one, turns](std::uint32_t item) {
          burn(item == odd_one % 20 ? turns : 10);
          ++hits[item];
        },
        most);

    for (std::uint32_t item = 0; item < hits.size(); ++item) {
      ASSERT_EQ(hits[item], item < items ? 1 : 0)
          << "launch " << i << ", item " << item << " of " << items;
      hits[item] = 0;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Workers, WorkerPoolStress, testing::Values(1, 2, 3, 4, 8));

TEST(WorkerPool, RunsItemsAtTheSameTime) {
  const SteadyClock clock;
  const auto pool = WorkerPool::make("test", 3, clock).value();
  std::atomic<int> arrived{0};

  // Each item ends only when all three have begun.
  launch(*pool, 3, [&arrived](std::uint32_t) {
    arrived.fetch_add(1);
    while (arrived.load() < 3) {
      std::this_thread::yield();
    }
  });

  EXPECT_EQ(arrived.load(), 3);
}

TEST(WorkerPool, RunsASingleItemOnTheDrivingThread) {
  const SteadyClock clock;
  const auto pool = WorkerPool::make("test", 4, clock).value();
  for (int i = 0; i < 100; ++i) {
    std::thread::id ran_on;
    launch(*pool, 1, [&ran_on](std::uint32_t) { ran_on = std::this_thread::get_id(); });
    ASSERT_EQ(ran_on, std::this_thread::get_id());
  }
}

// Time that moves only when told to, from any thread.
class SharedClock final : public Clock {
 public:
  [[nodiscard]] Time now() const override { return Time(now_.load()); }
  void advance(Time by) { now_.fetch_add(by.count()); }

 private:
  std::atomic<Time::rep> now_{0};
};

// One launch in which the other worker holds an item, blocked until `held_for` has passed.
void launch_with_interruption(WorkerPool& pool, SharedClock& clock, Time held_for) {
  const std::thread::id driver = std::this_thread::get_id();
  std::atomic<bool> held{false};
  std::atomic<bool> over{false};
  std::thread timer([&] {
    held.wait(false);
    const SteadyClock real;  // lets the driver begin to wait
    for (const Time began = real.now(); real.now() - began < std::chrono::milliseconds(2);) {
      std::this_thread::yield();
    }
    clock.advance(held_for);
    over.store(true);
    over.notify_all();
  });
  launch(pool, 2, [&](std::uint32_t) {
    if (std::this_thread::get_id() != driver) {
      held.store(true);
      held.notify_all();
      over.wait(false);
    }
    held.wait(false);  // the driver keeps its item until the other has one
  });
  timer.join();
}

// Interrupts until the pool has noticed it once more: on a busy machine the driver may come to its
// waiting too late.
void make_late(WorkerPool& pool, SharedClock& clock, Time held_for) {
  const std::uint64_t before = pool.late_count();
  for (int attempt = 0; attempt < 100 && pool.late_count() == before; ++attempt) {
    launch_with_interruption(pool, clock, held_for);
  }
  ASSERT_EQ(pool.late_count(), before + 1);
}

// How long the other worker rests, in steps of 100 us; while it rests it gets no item.
Time rest_of(WorkerPool& pool, SharedClock& clock) {
  constexpr Time kStep{100'000};
  Time rested{0};
  while (true) {
    std::atomic<int> others{0};
    launch(
        pool,
        2,
        [&others, driver = std::this_thread::get_id()](std::uint32_t) {
          others += std::this_thread::get_id() == driver ? 0 : 1;
        },
        1);
    if (pool.resting_count() == 0) {
      return rested;
    }
    EXPECT_EQ(others.load(), 0);
    clock.advance(kStep);
    rested += kStep;
  }
}

TEST(WorkerPool, LetsAWorkerRestThatCostsMoreThanItAdds) {
  SharedClock clock;
  const auto pool = WorkerPool::make("test", 2, clock).value();
  Time expected = std::chrono::milliseconds(2);
  for (int i = 0; i < 12; ++i) {
    make_late(*pool, clock, std::chrono::milliseconds(1));
    ASSERT_EQ(pool->resting_count(), 1U);
    EXPECT_EQ(rest_of(*pool, clock), expected) << i;
    expected = std::min(2 * expected, WorkerPool::kLongestRest);
  }
  EXPECT_EQ(expected, WorkerPool::kLongestRest);

  // It does well for long: what was is forgotten.
  launch_with_interruption(*pool, clock, Time{0});  // needs the other worker again
  clock.advance(std::chrono::seconds(2));
  make_late(*pool, clock, std::chrono::milliseconds(1));
  EXPECT_EQ(pool->resting_count(), 0U);
  make_late(*pool, clock, std::chrono::milliseconds(100));
  ASSERT_EQ(pool->resting_count(), 1U);
  EXPECT_EQ(rest_of(*pool, clock), std::chrono::milliseconds(200));
}

TEST(WorkerPool, KeepsAWorkerThatIsLateNowAndThen) {
  SharedClock clock;
  const auto pool = WorkerPool::make("test", 2, clock).value();
  for (int i = 0; i < 40; ++i) {
    clock.advance(std::chrono::milliseconds(20));
    make_late(*pool, clock, std::chrono::milliseconds(3));
    ASSERT_EQ(pool->resting_count(), 0U) << i;
  }
}

TEST(WorkerPool, HoldsALongItemAgainstNobody) {
  const SteadyClock clock;
  const auto pool = WorkerPool::make("test", 2, clock).value();
  constexpr std::uint64_t kAttempts = 20;
  for (std::uint64_t attempt = 0; attempt < kAttempts; ++attempt) {
    const std::thread::id driver = std::this_thread::get_id();
    std::atomic<bool> held{false};
    launch(*pool, pool->resting_count() == 0 ? 2 : 0, [&](std::uint32_t) {
      if (std::this_thread::get_id() != driver) {
        held.store(true);
        held.notify_all();
        const Time began = clock.now();
        while (clock.now() - began < std::chrono::milliseconds(2)) {
        }
      }
      held.wait(false);
    });
  }

  // On a busy machine a worker may really have been interrupted, but not every time.
  EXPECT_LT(pool->late_count(), kAttempts / 2);
}

}  // namespace
}  // namespace troupe
