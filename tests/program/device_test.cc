// The CPU device: order of launches, every item once, its queue, its memory, its end.
#include "runtime/device/device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace troupe {
namespace {

using testing::HasSubstr;

// A kernel whose launch is a C++ function of the test.
struct FakeArgs {
  std::uint32_t items = 1;
  std::function<void(std::uint32_t item, std::byte* scratch)> run;
};

KernelSet fake_kernels() {
  KernelSet set;
  set.name = "fake";
  set.available = [] { return true; };
  const Kernel kernel{
      .items = [](const KernelEnv&,
                  const void* args) { return static_cast<const FakeArgs*>(args)->items; },
      .run =
          [](const KernelEnv&,
             const void* args,
             std::uint32_t begin,
             std::uint32_t end,
             std::byte* scratch) {
            for (std::uint32_t i = begin; i < end; ++i) {
              static_cast<const FakeArgs*>(args)->run(i, scratch);
            }
          },
  };
  for (auto& both : set.kernels) {
    both.fill(kernel);
  }
  return set;
}

// Opened once; whoever passes waits until then, blocked.
class Gate final {
 public:
  void open() {
    open_.store(true);
    open_.notify_all();
  }
  void pass() const { open_.wait(false); }

 private:
  std::atomic<bool> open_{false};
};

class CpuDeviceTest : public testing::Test {
 protected:
  std::unique_ptr<Device> make(CpuDeviceOptions options) {
    return make_cpu_device_with(options, clock_, kernels_).value();
  }

  SteadyClock clock_;
  KernelSet kernels_ = fake_kernels();
};

constexpr Time kLong = std::chrono::seconds(60);

// A work whose launches and callback live as long as it does.
struct Job {
  explicit Job(
      std::vector<FakeArgs> steps,
      std::function<void(const WorkResult&)> then = [](const WorkResult&) {})
      : launches(std::move(steps)), done(std::move(then)) {
    for (const FakeArgs& launch : launches) {
      calls.push_back({KernelId::kAdd, &launch});
    }
  }
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;
  [[nodiscard]] Work work() { return {.calls = calls, .env = {}, .done = &done}; }

  std::vector<FakeArgs> launches;
  std::vector<KernelCall> calls;
  std::function<void(const WorkResult&)> done;
};

// Each launch moves the numbers of the one before by one place: any item that runs twice, late,
// early or not at all shows, and the plain memory makes a missing barrier a data race.
class Shift final {
 public:
  explicit Shift(std::uint32_t width)
      : rows_{std::vector<std::uint64_t>(width), std::vector<std::uint64_t>(width)} {}
  FakeArgs next() {
    const std::size_t from = launch_++ % 2;
    const auto width = static_cast<std::uint32_t>(rows_[0].size());
    return {width, [this, from, width](std::uint32_t i, std::byte*) {
              rows_[1 - from][i] = rows_[from][(i + 1) % width] + i + 1;
            }};
  }
  [[nodiscard]] const std::vector<std::uint64_t>& result() const { return rows_[launch_ % 2]; }
  [[nodiscard]] std::vector<std::uint64_t> expected() const {
    const std::size_t width = rows_[0].size();
    std::vector<std::uint64_t> now(width);
    for (std::size_t launch = 0; launch < launch_; ++launch) {
      std::vector<std::uint64_t> then(width);
      for (std::size_t i = 0; i < width; ++i) {
        then[i] = now[(i + 1) % width] + i + 1;
      }
      now = then;
    }
    return now;
  }

 private:
  std::array<std::vector<std::uint64_t>, 2> rows_;
  std::size_t launch_ = 0;
};

TEST_F(CpuDeviceTest, RunsEachLaunchAfterTheWholeOfTheOneBefore) {
  for (const std::uint32_t threads : {1U, 2U, 3U, 8U}) {
    for (const std::uint32_t width : {1U, 2U, 7U, 100U}) {
      const auto device = make({.threads = threads});
      Shift shift(width);
      std::vector<FakeArgs> launches;
      for (int i = 0; i < 150; ++i) {
        launches.push_back(shift.next());
      }
      Job job(std::move(launches));

      ASSERT_TRUE(device->submit(job.work()));
      ASSERT_TRUE(device->drain(kLong));

      EXPECT_EQ(shift.result(), shift.expected()) << threads << " threads, " << width << " items";
    }
  }
}

TEST_F(CpuDeviceTest, RunsSubmissionsInTheirOrder) {
  const auto device = make({.threads = 2, .queue = 16});
  std::vector<int> order;  // written by the device's thread alone
  std::vector<std::unique_ptr<Job>> jobs;
  for (int i = 0; i < 16; ++i) {
    jobs.push_back(
        std::make_unique<Job>(std::vector<FakeArgs>{{5, [](std::uint32_t, std::byte*) {}}},
                              [&order, i](const WorkResult& result) {
                                EXPECT_TRUE(result.status);
                                order.push_back(i);
                              }));
    ASSERT_TRUE(device->submit(jobs.back()->work()));
  }

  ASSERT_TRUE(device->drain(kLong));

  std::vector<int> expected(16);
  for (int i = 0; i < 16; ++i) {
    expected[static_cast<std::size_t>(i)] = i;
  }
  EXPECT_EQ(order, expected);
}

TEST_F(CpuDeviceTest, RefusesWorkBeyondItsQueueAndTakesItLater) {
  const auto device = make({.threads = 2, .queue = 2});
  Gate started;
  Gate gate;
  Job blocked({{1, [&](std::uint32_t, std::byte*) {
                  started.open();
                  gate.pass();
                }}});
  Job quick({{1, [](std::uint32_t, std::byte*) {}}});
  ASSERT_TRUE(device->submit(blocked.work()));
  started.pass();
  ASSERT_TRUE(device->submit(quick.work()));
  ASSERT_TRUE(device->submit(quick.work()));

  const Status refused = device->submit(quick.work());

  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind, Kind::kOverloaded);
  EXPECT_THAT(refused.error().message, HasSubstr("cpu:0: 2 submissions are queued, of at most 2"));
  gate.open();
  ASSERT_TRUE(device->drain(kLong));
  EXPECT_TRUE(device->submit(quick.work()));
  EXPECT_TRUE(device->drain(kLong));
  EXPECT_EQ(device->stats().submissions, 4U);
}

TEST_F(CpuDeviceTest, TakesWorkFromSeveralThreads) {
  const auto device = make({.threads = 2, .queue = 64});
  std::uint64_t sum = 0;  // plain: only the device's thread and, after it, this one touch it
  Job job({{1, [&sum](std::uint32_t, std::byte*) { ++sum; }}});
  std::vector<std::thread> submitters;
  for (int t = 0; t < 4; ++t) {
    submitters.emplace_back([&device, &job] {
      for (int i = 0; i < 500;) {
        i += device->submit(job.work()) ? 1 : 0;
      }
    });
  }
  for (std::thread& submitter : submitters) {
    submitter.join();
  }

  ASSERT_TRUE(device->drain(kLong));

  EXPECT_EQ(sum, 2000U);
}

TEST_F(CpuDeviceTest, LetsACallbackSubmitTheNextStep) {
  const auto device = make({.threads = 2, .queue = 1});
  int steps = 0;
  Gate finished;
  Job job({{3, [](std::uint32_t, std::byte*) {}}});
  job.done = [&](const WorkResult&) {
    if (++steps == 100) {
      finished.open();
    } else {
      EXPECT_TRUE(device->submit(job.work()));
    }
  };
  ASSERT_TRUE(device->submit(job.work()));

  finished.pass();

  ASSERT_TRUE(device->drain(kLong));
  EXPECT_EQ(steps, 100);
}

TEST_F(CpuDeviceTest, SaysWhenADrainTakesTooLong) {
  const auto device = make({.threads = 2});
  Gate gate;
  Job job({{1, [&gate](std::uint32_t, std::byte*) { gate.pass(); }}});
  ASSERT_TRUE(device->submit(job.work()));

  const Status late = device->drain(std::chrono::milliseconds(2));

  gate.open();
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().kind, Kind::kOverloaded);
  EXPECT_THAT(late.error().message, HasSubstr("1 submissions were not complete after 2 ms"));
  EXPECT_TRUE(device->drain(kLong));
}

TEST_F(CpuDeviceTest, EndsEverySubmissionOnceWhenItIsDestroyed) {
  int disconnected = 0;
  for (int repetition = 0; repetition < 50; ++repetition) {
    constexpr std::size_t kJobs = 6;
    std::array<int, kJobs> calls{};
    std::array<bool, kJobs> served{};
    std::atomic<int> ran{0};
    std::vector<std::unique_ptr<Job>> jobs;
    auto device = make({.threads = 2});
    for (std::size_t i = 0; i < kJobs; ++i) {
      const FakeArgs launch{4, [&ran](std::uint32_t, std::byte*) { ran.fetch_add(1); }};
      jobs.push_back(std::make_unique<Job>(
          std::vector<FakeArgs>(200, launch), [&calls, &served, i](const WorkResult& r) {
            ++calls[i];
            served[i] = r.status.has_value();
            if (!r.status) {
              EXPECT_EQ(r.status.error().kind, Kind::kDisconnected);
            }
          }));
      ASSERT_TRUE(device->submit(jobs.back()->work()));
    }

    device.reset();

    const int whole = static_cast<int>(std::count(served.begin(), served.end(), true));
    EXPECT_THAT(calls, testing::Each(1));
    EXPECT_GE(ran.load(), whole * 800);
    EXPECT_TRUE(std::is_sorted(served.begin(), served.end(), std::greater<>()));
    disconnected += static_cast<int>(kJobs) - whole;
  }
  EXPECT_GT(disconnected, 0);
}

TEST_F(CpuDeviceTest, TellsAnObserverAfterEachLaunch) {
  const auto device = make({.threads = 3});
  std::vector<int> items(20);
  std::vector<FakeArgs> launches;
  for (std::uint32_t i = 0; i < 4; ++i) {
    launches.push_back(
        {5, [&items, i](std::uint32_t item, std::byte*) { items[i * 5 + item] = 1; }});
  }
  Job job(std::move(launches));
  std::vector<std::pair<std::size_t, long>> seen;
  const LaunchObserver observer =
      [&](std::size_t launch, const KernelEnv&, const LaunchTime& time) {
        EXPECT_LE(time.began, time.ended);
        seen.emplace_back(launch, std::count(items.begin(), items.end(), 1));
      };
  Work work = job.work();
  work.observer = &observer;

  ASSERT_TRUE(device->submit(work));
  ASSERT_TRUE(device->drain(kLong));

  EXPECT_EQ(seen, (std::vector<std::pair<std::size_t, long>>{{0, 5}, {1, 10}, {2, 15}, {3, 20}}));
}

TEST_F(CpuDeviceTest, GivesEachWorkerAlignedScratchOfItsOwn) {
  const auto device = make({.threads = 2});
  std::array<std::byte*, 2> scratch{};
  std::atomic<int> arrived{0};
  Job job({{2, [&](std::uint32_t item, std::byte* memory) {
              scratch[item] = memory;
              std::memset(memory, static_cast<int>(item), kScratchBytes);
              arrived.fetch_add(1);
              while (arrived.load() < 2) {  // so that two workers are needed
                std::this_thread::yield();
              }
            }}});

  ASSERT_TRUE(device->submit(job.work()));
  ASSERT_TRUE(device->drain(kLong));

  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(scratch[0]) % 64, 0U);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(scratch[1]) % 64, 0U);
  EXPECT_GE(static_cast<std::size_t>(std::abs(scratch[0] - scratch[1])), kScratchBytes);
}

TEST_F(CpuDeviceTest, RunsInlineOnTheThreadOfTheCaller) {
  const auto device = make({.threads = 4, .run_inline = true});
  std::vector<std::uint32_t> items;
  int done = 0;
  Job job({{5, [&items](std::uint32_t i, std::byte*) { items.push_back(i); }}});
  job.done = [&](const WorkResult& result) {
    EXPECT_TRUE(result.status);
    if (++done == 1) {
      EXPECT_TRUE(device->submit(job.work()));  // from within its own callback
    }
  };

  ASSERT_TRUE(device->submit(job.work()));

  EXPECT_EQ(done, 2);
  EXPECT_EQ(items, (std::vector<std::uint32_t>{0, 1, 2, 3, 4, 0, 1, 2, 3, 4}));
  EXPECT_EQ(device->info().threads, 1U);
  EXPECT_TRUE(device->drain(Time{0}));
}

TEST_F(CpuDeviceTest, MeasuresAWorkWithItsClock) {
  ManualClock clock;
  const auto device = make_cpu_device_with({.run_inline = true}, clock, kernels_).value();
  Time duration{0};
  Job job({{1, [&clock](std::uint32_t, std::byte*) { clock.advance(Time{700}); }}},
          [&duration](const WorkResult& result) { duration = result.duration; });

  ASSERT_TRUE(device->submit(job.work()));

  EXPECT_EQ(duration, Time{700});
}

TEST_F(CpuDeviceTest, SpreadsALoopOverItsWorkersWhileItServes) {
  const auto device = make({.threads = 3});
  std::vector<int> hits(1000);

  device->parallel_for(hits.size(), [&hits](std::size_t i) { ++hits[i]; });
  device->parallel_for(0, [&hits](std::size_t i) { ++hits[i]; });

  EXPECT_THAT(hits, testing::Each(1));
}

TEST_F(CpuDeviceTest, AllocatesZeroedAlignedMemory) {
  const auto device = make({.threads = 1, .memory_bytes = 64U << 20});
  for (const std::size_t bytes :
       {std::size_t{0}, std::size_t{1}, std::size_t{4096}, std::size_t{5} << 20}) {
    const auto buffer = device->allocate(bytes, "test").value();

    EXPECT_EQ(buffer->size(), bytes);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer->data()) % 64, 0U);
    EXPECT_EQ(std::count(buffer->data(), buffer->data() + bytes, std::byte{0}),
              static_cast<long>(bytes));
    std::memset(buffer->data(), 0x5a, bytes);
  }
}

TEST_F(CpuDeviceTest, RefusesMemoryItDoesNotHaveWithTheArithmetic) {
  auto device = make({.name = "cpu:3", .threads = 1, .memory_bytes = 16U << 20});
  auto first = device->allocate(8U << 20, "weights").value();

  const auto refused = device->allocate((8U << 20) + 1, "workspace");

  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind, Kind::kOverloaded);
  EXPECT_THAT(refused.error().message,
              HasSubstr("workspace: needs 8.0 MiB, 8.0 MiB of 16.0 MiB are left on cpu:3; "));
  first.reset();
  const auto second = device->allocate(16U << 20, "workspace").value();
  device.reset();
  std::memset(second->data(), 1, second->size());  // a buffer may outlive its device
}

TEST_F(CpuDeviceTest, NeverPromisesMoreMemoryThanTheSystemHas) {
  const auto device = make({.threads = 1, .memory_bytes = std::uint64_t{1} << 60});

  EXPECT_LE(device->info().memory_bytes, device->info().available_bytes);
  EXPECT_FALSE(device->allocate(std::size_t{1} << 50, "weights"));
}

TEST_F(CpuDeviceTest, RefusesOptionsThatMakeNoSense) {
  kernels_.fp32_activations = false;

  const auto f32 =
      make_cpu_device_with({.threads = 1, .activation = Activation::kF32}, clock_, kernels_);
  const auto threads = make_cpu_device_with({.threads = 5000}, clock_, kernels_);
  const auto queue = make_cpu_device_with({.threads = 1, .queue = 0}, clock_, kernels_);

  ASSERT_FALSE(f32);
  EXPECT_EQ(f32.error().kind, Kind::kUnsupported);
  EXPECT_THAT(f32.error().message, HasSubstr("kernel set fake has no fp32 activations"));
  ASSERT_FALSE(threads);
  EXPECT_EQ(threads.error().kind, Kind::kInvalid);
  ASSERT_FALSE(queue);
  EXPECT_EQ(queue.error().kind, Kind::kInvalid);
}

TEST_F(CpuDeviceTest, UsesAsManyThreadsAsTheProcessMay) {
  const auto device = make({});

  EXPECT_GE(device->info().threads, 1U);
  EXPECT_LE(device->info().threads, std::thread::hardware_concurrency());
  EXPECT_EQ(device->info().kernel_set, "fake");
}

}  // namespace
}  // namespace troupe
