#include "deploy/exit_code.h"

#include <gtest/gtest.h>

namespace troupe::deploy {
namespace {

TEST(ExitCode, TellsWhatTheCallerShouldDo) {
  EXPECT_EQ(static_cast<int>(exit_code(Kind::kInternal)), 1);
  EXPECT_EQ(static_cast<int>(exit_code(Kind::kCancelled)), 1);
  EXPECT_EQ(static_cast<int>(exit_code(Kind::kInvalid)), 2);
  EXPECT_EQ(static_cast<int>(exit_code(Kind::kUnsupported)), 2);
  EXPECT_EQ(static_cast<int>(exit_code(Kind::kOverloaded)), 3);
  EXPECT_EQ(static_cast<int>(exit_code(Kind::kDisconnected)), 6);
}

}  // namespace
}  // namespace troupe::deploy
