// Which kernels a CPU device gets, by name or by measurement.
#include "runtime/device/device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe {
namespace {

using testing::HasSubstr;

TEST(KernelChoice, TakesASetByName) {
  const SteadyClock clock;

  const auto device = make_cpu_device({.threads = 1, .kernel_set = "scalar"}, clock).value();

  EXPECT_EQ(device->info().kernel_set, "scalar");
  EXPECT_EQ(device->info().choice_reason, "asked for by name");
  EXPECT_EQ(&device->kernels(), find_cpu_kernel_set("scalar"));
}

TEST(KernelChoice, MeasuresWithoutAName) {
  const SteadyClock clock;

  const auto device = make_cpu_device({.threads = 1}, clock).value();

  EXPECT_TRUE(device->kernels().available());
  EXPECT_THAT(device->info().choice_reason, HasSubstr(device->info().kernel_set));
}

TEST(KernelChoice, ListsTheKnownSetsWhenTheNameIsUnknown) {
  const SteadyClock clock;

  const auto device = make_cpu_device({.threads = 1, .kernel_set = "avx3"}, clock);

  ASSERT_FALSE(device);
  EXPECT_EQ(device.error().kind, Kind::kInvalid);
  EXPECT_THAT(device.error().message, HasSubstr("unknown kernel set \"avx3\""));
  for (const KernelSet* set : cpu_kernel_sets()) {
    EXPECT_THAT(device.error().message, HasSubstr(std::string(set->name)));
  }
}

TEST(KernelChoice, NamesWhatTheProcessorLacks) {
  const SteadyClock clock;
  const KernelSet* missing = nullptr;
  for (const KernelSet* set : cpu_kernel_sets()) {
    missing = set->available() ? missing : set;
  }
  if (missing == nullptr) {
    GTEST_SKIP() << "this processor has everything";
  }

  const auto device =
      make_cpu_device({.threads = 1, .kernel_set = std::string(missing->name)}, clock);

  ASSERT_FALSE(device);
  EXPECT_EQ(device.error().kind, Kind::kUnsupported);
  EXPECT_THAT(device.error().message,
              HasSubstr("kernel set " + std::string(missing->name) + ": this processor lacks"));
  EXPECT_THAT(device.error().message,
              testing::AnyOf(HasSubstr("AVX"), HasSubstr("AMX"), HasSubstr("needs")));
}

}  // namespace
}  // namespace troupe
