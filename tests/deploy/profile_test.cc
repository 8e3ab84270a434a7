// Profiles of real runs: what the launches of a step read and multiply is what the model has.
#include "deploy/profile.h"

#include "tests/deploy/demo_stage.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>

namespace troupe::deploy {
namespace {

struct Profiled {
  Profile profile;
  std::uint64_t weight_bytes = 0;  // that a decode step is expected to read
};

// One run of `shape` on the demo model.
Profiled profile_of(BenchShape shape) {
  Profiled profiled;
  const SteadyClock clock;
  auto loaded = load_demo(shape, "", {}, clock);
  EXPECT_TRUE(loaded) << loaded.error().message;
  profiled.weight_bytes = loaded->decode_weight_bytes;
  loaded->stage->observe_launches(
      [&profiled](const Stage::LaunchView& launch) { profiled.profile.add(launch); });
  EXPECT_TRUE(BenchRun(*loaded->stage, shape, clock).run());
  return profiled;
}

// Of all launches in programs of `mode` whose kernel is `kernel`.
Profile::Kind sum(const Profile& profile, Mode mode, std::string_view kernel) {
  Profile::Kind sum;
  for (const auto& [key, kind] : profile.kinds()) {
    if (key.first == mode && key.second.starts_with(std::string(kernel) + " ")) {
      sum.launches += kind.launches;
      sum.time += kind.time;
      sum.work.bytes += kind.work.bytes;
      sum.work.multiplications += kind.work.multiplications;
    }
  }
  return sum;
}

TEST(Profile, ADecodeStepReadsTheModelOnce) {
  constexpr std::uint32_t kSteps = 3;
  const Profiled run = profile_of({.prompt_tokens = 0, .output_tokens = kSteps, .batch = 1});

  const auto linear = sum(run.profile, Mode::kDecode, "linear");
  const auto up = sum(run.profile, Mode::kDecode, "expert_swiglu");
  const auto down = sum(run.profile, Mode::kDecode, "expert_down");
  const auto read = static_cast<double>(linear.work.bytes + up.work.bytes + down.work.bytes);

  // Panels are padded; norms and the like are in the expectation only.
  EXPECT_NEAR(read / kSteps / static_cast<double>(run.weight_bytes), 1, 0.02);
  // One row: each weight of two bytes is multiplied once.
  EXPECT_NEAR(2.0 * static_cast<double>(linear.work.multiplications) /
                  static_cast<double>(linear.work.bytes),
              1,
              0.02);
  // 8 layers; 2 of 16 experts, of 3 matrices of 64 x 192.
  EXPECT_EQ(up.launches, 8 * kSteps);
  EXPECT_EQ(up.work.multiplications + down.work.multiplications, 8ULL * kSteps * 2 * 3 * 64 * 192);
  EXPECT_EQ(up.work.bytes + down.work.bytes, 2 * 8ULL * kSteps * 2 * 3 * 64 * 192);
  EXPECT_GT(linear.time.count(), 0);
}

TEST(Profile, RowsAreCountedAndWeightsOnce) {
  const Profiled one = profile_of({.prompt_tokens = 16, .output_tokens = 0, .batch = 1});
  const Profiled two = profile_of({.prompt_tokens = 32, .output_tokens = 0, .batch = 1});

  const auto rows_16 = sum(one.profile, Mode::kRows, "linear");
  const auto rows_32 = sum(two.profile, Mode::kRows, "linear");

  EXPECT_EQ(rows_16.launches, rows_32.launches);
  EXPECT_EQ(rows_16.work.bytes, rows_32.work.bytes);
  // The head has one row in both.
  const std::uint64_t head = 4096ULL * 192;
  EXPECT_EQ(2 * (rows_16.work.multiplications - head), rows_32.work.multiplications - head);
  EXPECT_EQ(sum(one.profile, Mode::kDecode, "linear").launches, 0U);
}

TEST(Profile, AttentionReadsWhatItHasSeen) {
  const Profiled near = profile_of({.prompt_tokens = 16, .output_tokens = 1, .batch = 1});
  const Profiled far = profile_of({.prompt_tokens = 256, .output_tokens = 1, .batch = 1});

  const auto few = sum(near.profile, Mode::kDecode, "attention").work;
  const auto many = sum(far.profile, Mode::kDecode, "attention").work;

  EXPECT_GT(few.multiplications, 0U);
  EXPECT_EQ(many.multiplications * 17, few.multiplications * 257);
  EXPECT_GT(many.bytes, 4 * few.bytes);
  // The delta net's states are as large as before.
  EXPECT_EQ(sum(near.profile, Mode::kDecode, "gdn_scan").work.bytes,
            sum(far.profile, Mode::kDecode, "gdn_scan").work.bytes);
}

TEST(Profile, TextNamesTheSlowestFirstAndTheTraceHasEveryLaunchInOrder) {
  const Profiled run = profile_of({.prompt_tokens = 16, .output_tokens = 2, .batch = 2});
  std::uint64_t launches = 0;
  for (const auto& [key, kind] : run.profile.kinds()) {
    launches += kind.launches;
  }

  const std::string text = run.profile.text(1e9);
  const auto trace = nlohmann::json::parse(run.profile.trace());

  EXPECT_THAT(text, testing::ContainsRegex("\nrows programs +launches +ms +share +GB/s"));
  EXPECT_THAT(text, testing::ContainsRegex("\ndecode programs +launches"));
  EXPECT_THAT(text, testing::ContainsRegex("\nlinear layers\\.\\*\\.[a-z_.]+ +[0-9]+ "));
  const auto kinds = run.profile.kinds();
  EXPECT_TRUE(std::is_sorted(kinds.begin(), kinds.end(), [](const auto& a, const auto& b) {
    return std::pair(a.first.first, -a.second.time) < std::pair(b.first.first, -b.second.time);
  }));
  ASSERT_EQ(trace["traceEvents"].size(), launches);
  double ended = 0;
  for (const auto& event : trace["traceEvents"]) {
    EXPECT_EQ(event["ph"], "X");
    EXPECT_GE(event["ts"].get<double>(), ended - 0.01);  // microseconds
    EXPECT_GE(event["dur"].get<double>(), 0);
    ended = event["ts"].get<double>() + event["dur"].get<double>();
  }
}

}  // namespace
}  // namespace troupe::deploy
