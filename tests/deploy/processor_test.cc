#include "deploy/processor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe::deploy {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr const char* kText =
    "processor\t: 0\nmodel name\t: Some CPU 3000\nmodel\t\t: 1\nflags\t\t: fpu avx2 fma f16c "
    "avx512f\n\n"
    "processor\t: 1\nmodel name\t: Another\nflags\t\t: amx_tile\n";

TEST(Processor, IsReadFromTheFirstOfAll) {
  const Processor processor = parse_processor(kText);

  EXPECT_EQ(processor.name, "Some CPU 3000");
  EXPECT_THAT(processor.flags, ElementsAre("fpu", "avx2", "fma", "f16c", "avx512f"));
}

TEST(Processor, OfUnknownFormHasNothing) {
  const Processor processor = parse_processor("BogoMIPS : 50");

  EXPECT_EQ(processor.name, "");
  EXPECT_THAT(processor.flags, IsEmpty());
}

TEST(KernelSets, NameTheFlagsThatTheProcessorLacks) {
  const Processor processor = parse_processor(kText);

  EXPECT_THAT(missing_flags("scalar", processor), IsEmpty());
  EXPECT_THAT(missing_flags("avx2", processor), IsEmpty());
  EXPECT_THAT(missing_flags("avx512", processor), ElementsAre("avx512bw", "avx512vl", "avx512dq"));
}

}  // namespace
}  // namespace troupe::deploy
