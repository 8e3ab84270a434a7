// How connections share the files that a limit leaves.
#include "deploy/serve_limits.h"

#include <gtest/gtest.h>

namespace troupe::deploy {
namespace {

TEST(ConnectionShare, IsAllThatWasAskedForWhenTheFilesSuffice) {
  const auto share = share_files(1024 + 256, 1024);

  ASSERT_TRUE(share.has_value());
  EXPECT_EQ(share->connections, 1024U);
  EXPECT_EQ(share->refused, 256U);
}

TEST(ConnectionShare, LeavesFilesToRefusalsWhenTheyDoNot) {
  for (const std::uint32_t files : {4U, 5U, 100U, 1000U, 1279U}) {
    const auto share = share_files(files, 1024);

    ASSERT_TRUE(share.has_value());
    EXPECT_EQ(share->connections + share->refused, files);
    EXPECT_GE(share->refused, files < 1024 ? files / 4 : 250);
    EXPECT_GT(share->connections, share->refused);
  }
}

TEST(ConnectionShare, NeedsAtLeastFourFiles) {
  const auto share = share_files(3, 1);

  ASSERT_FALSE(share.has_value());
  EXPECT_EQ(share.error().kind, Kind::kInvalid);
}

}  // namespace
}  // namespace troupe::deploy
