#include "deploy/demo_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe::deploy {
namespace {

namespace fs = std::filesystem;

TEST(DemoModel, IsFoundInTheSourceTreeOrBesideTheProgram) {
  const auto places = demo_model_places("/opt/troupe/bin/troupe");

  ASSERT_EQ(places.size(), 2U);
  EXPECT_EQ(places[0], fs::path(TROUPE_SOURCE_DIR "/models/demo"));
  EXPECT_EQ(places[1].lexically_normal(), fs::path("/opt/troupe/share/troupe/models/demo"));
}

TEST(DemoModel, IsTheFirstPlaceThatHasAConfig) {
  const auto found = find_model({"/nowhere", TROUPE_SOURCE_DIR "/models/demo"});

  ASSERT_TRUE(found);
  EXPECT_EQ(*found, fs::path(TROUPE_SOURCE_DIR "/models/demo"));
}

TEST(DemoModel, NamesEveryPlaceWhenThereIsNone) {
  const auto found = find_model({"/nowhere", "/bin/../nobody"});

  ASSERT_FALSE(found);
  EXPECT_EQ(found.error().kind, Kind::kInvalid);
  EXPECT_THAT(found.error().message, testing::HasSubstr("/nowhere, /nobody"));
}

TEST(ModelDirectory, MustExistAndHaveAConfig) {
  EXPECT_THAT(model_directory("/nowhere").error().message,
              testing::HasSubstr("no directory /nowhere"));
  EXPECT_THAT(model_directory(TROUPE_SOURCE_DIR "/deploy").error().message,
              testing::HasSubstr("has no config.json"));
  EXPECT_EQ(*model_directory(TROUPE_SOURCE_DIR "/models/demo"),
            fs::path(TROUPE_SOURCE_DIR "/models/demo"));
}

}  // namespace
}  // namespace troupe::deploy
