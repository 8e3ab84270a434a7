#include "runtime/base/flight_recorder.h"

#include "runtime/base/check_hook.h"
#include "runtime/base/error.h"
#include "runtime/base/histogram.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <thread>
#include <vector>

namespace troupe {
namespace {

TEST(FlightRecorder, KeepsTheNewestEventsOldestFirst) {
  FlightRecorder recorder;
  for (std::uint64_t i = 0; i < FlightRecorder::kEvents + 10; ++i) {
    recorder.record({.at = Time{static_cast<std::int64_t>(i)}, .id = i});
  }

  const auto events = recorder.events();

  ASSERT_EQ(events.size(), FlightRecorder::kEvents);
  EXPECT_EQ(events.front().id, 10U);
  EXPECT_EQ(events.back().id, FlightRecorder::kEvents + 9);
  EXPECT_EQ(recorder.dropped(), 10U);
}

TEST(FlightRecorder, WritesOneJsonObjectALine) {
  FlightRecorder recorder;
  recorder.record({.at = std::chrono::milliseconds(1500),
                   .kind = FlightKind::kStepPlanned,
                   .id = 7,
                   .a = 3,
                   .b = 60});
  recorder.record({.at = std::chrono::seconds(2), .kind = FlightKind::kLost});

  EXPECT_EQ(recorder.json_lines(),
            "{\"at_s\":1.500000,\"event\":\"step_planned\",\"id\":7,\"decode_rows\":3,"
            "\"prompt_rows\":60}\n"
            "{\"at_s\":2.000000,\"event\":\"lost\",\"id\":0}\n");
}

TEST(FlightRecorder, TakesEventsFromManyThreads) {
  FlightRecorder recorder;
  std::vector<std::thread> threads;
  for (std::uint64_t t = 0; t < 4; ++t) {
    threads.emplace_back([&recorder, t] {
      for (std::uint64_t i = 0; i < 500; ++i) {
        recorder.record({.id = t * 500 + i});
        static_cast<void>(recorder.dropped());
      }
    });
  }
  for (auto& thread : threads) {
    thread.join();
  }

  std::vector<std::uint64_t> ids;
  for (const auto& event : recorder.events()) {
    ids.push_back(event.id);
  }
  std::sort(ids.begin(), ids.end());
  std::vector<std::uint64_t> all(2000);
  std::iota(all.begin(), all.end(), 0U);
  EXPECT_EQ(ids, all);
}

void fail_with_a_recorder(bool alive) {
  FlightRecorder recorder;
  for (std::uint64_t i = 1; i <= 3; ++i) {
    recorder.record({.kind = FlightKind::kAdmitted, .id = i});
  }
  auto hook = std::make_unique<CheckHook>([&recorder] { recorder.print_newest(2); });
  if (!alive) {
    hook.reset();
  }
  TROUPE_CHECK(recorder.events().empty(), "planted");
}

TEST(CheckHookDeathTest, PrintsTheNewestEventsWhenACheckFails) {
  EXPECT_DEATH(fail_with_a_recorder(true), "planted\n.*\"id\":2.*\n.*\"id\":3");
}

TEST(CheckHookDeathTest, IsNotCalledOnceItIsGone) {
  EXPECT_DEATH(fail_with_a_recorder(false), "planted\n$");
}

TEST(CheckHookDeathTest, EndsTheProcessEvenIfTheHookFailsItself) {
  EXPECT_DEATH(
      {
        const CheckHook hook([] { TROUPE_CHECK(false, "second"); });
        TROUPE_CHECK(false, "first");
      },
      "first\n.*second\n$");
}

TEST(Histogram, CountsEachValueInTheBucketThatEndsAtOrAboveIt) {
  RowsHistogram rows(kRowsBounds);

  rows.add(0);
  rows.add(2);
  rows.add(3, 5);
  rows.add(5000);

  EXPECT_EQ(rows.counts()[0], 1U) << "up to 1";
  EXPECT_EQ(rows.counts()[1], 1U) << "up to 2";
  EXPECT_EQ(rows.counts()[2], 5U) << "up to 4";
  EXPECT_EQ(rows.counts().back(), 1U) << "above all";
  EXPECT_EQ(rows.count(), 8U);
  EXPECT_EQ(rows.sum(), 0 + 2 + 15 + 5000);
}

}  // namespace
}  // namespace troupe
