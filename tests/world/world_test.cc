#include "tests/world/world.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

namespace troupe {
namespace {

// Some seed finds the planted bug, and its failure starts with the checker's name.
bool caught(PlantedBug bug, const std::string& checker) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const auto failures = run_world({.seed = seed, .bug = bug}).failures;
    if (std::any_of(failures.begin(), failures.end(), [&checker](const std::string& failure) {
          return failure.starts_with(checker + ":");
        })) {
      return true;
    }
  }
  return false;
}

TEST(World, ReplaysASeedExactly) {
  for (const std::uint64_t seed : {1U, 7U, 40U}) {
    EXPECT_EQ(run_world({.seed = seed}).trace_hash,
              run_world({.seed = seed, .keep_trace = true}).trace_hash);
  }
  EXPECT_NE(run_world({.seed = 1}).trace_hash, run_world({.seed = 2}).trace_hash);
}

TEST(World, CatchesARequestThatEndsTwice) {
  EXPECT_TRUE(caught(PlantedBug::kEndTwice, "once"));
}

TEST(World, CatchesAWrongToken) {
  EXPECT_TRUE(caught(PlantedBug::kWrongToken, "tokens"));
}

TEST(World, CatchesAPageThatNobodyGivesBack) {
  EXPECT_TRUE(caught(PlantedBug::kLeak, "balance"));
}

TEST(World, CatchesACountThatIsNotWhatClientsWereTold) {
  EXPECT_TRUE(caught(PlantedBug::kMiscount, "counts"));
}

TEST(World, CatchesASpoiledPage) {
  EXPECT_TRUE(caught(PlantedBug::kSpoilPage, "state"));
}

TEST(World, CatchesARequestThatNeverEnds) {
  EXPECT_TRUE(caught(PlantedBug::kSilence, "ends"));
}

TEST(World, CatchesAnEventAfterTheStop) {
  EXPECT_TRUE(caught(PlantedBug::kLateEvent, "stopped"));
}

}  // namespace
}  // namespace troupe
