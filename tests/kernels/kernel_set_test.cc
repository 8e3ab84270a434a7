#include "kernels/cpu/kernel_set.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace troupe {
namespace {

// Every look costs a millisecond: all sets seem equally fast.
class TickingClock final : public Clock {
 public:
  [[nodiscard]] Time now() const override { return now_ += std::chrono::milliseconds(1); }

 private:
  mutable Time now_{0};
};

TEST(KernelSets, StartWithTheScalarSetThatRunsAnywhere) {
  ASSERT_FALSE(cpu_kernel_sets().empty());
  EXPECT_EQ(cpu_kernel_sets().front()->name, "scalar");
  EXPECT_TRUE(cpu_kernel_sets().front()->available());
}

TEST(KernelSets, AreFoundByName) {
  for (const KernelSet* set : cpu_kernel_sets()) {
    EXPECT_EQ(find_cpu_kernel_set(set->name), set);
  }
  EXPECT_EQ(find_cpu_kernel_set("abacus"), nullptr);
}

TEST(KernelSets, HaveEveryKernelForTheirActivations) {
  for (const KernelSet* set : cpu_kernel_sets()) {
    for (std::size_t id = 0; id < kKernelCount; ++id) {
      for (const Activation act : {Activation::kBF16, Activation::kF32}) {
        const bool wanted = act == Activation::kBF16 || set->fp32_activations;
        const Kernel& kernel = set->kernel(static_cast<KernelId>(id), act);
        EXPECT_EQ(kernel.items != nullptr, wanted)
            << set->name << " " << name(static_cast<KernelId>(id));
        EXPECT_EQ(kernel.run != nullptr, wanted)
            << set->name << " " << name(static_cast<KernelId>(id));
      }
    }
  }
}

TEST(KernelSets, NameEachKernelOnce) {
  std::set<std::string_view> names;
  for (std::size_t id = 0; id < kKernelCount; ++id) {
    names.insert(name(static_cast<KernelId>(id)));
  }
  EXPECT_EQ(names.size(), kKernelCount);
  EXPECT_EQ(names.count(""), 0U);
  EXPECT_EQ(name(KernelId::kSample), "sample");
  EXPECT_EQ(name(KernelId::kExpertDown), "expert_down");
}

TEST(KernelSets, ChooseOneThatRunsHereAndSayWhy) {
  const TickingClock clock;
  for (const Activation act : {Activation::kBF16, Activation::kF32}) {
    const KernelChoice choice = choose_kernel_set(act, clock);
    ASSERT_NE(choice.set, nullptr);
    EXPECT_TRUE(choice.set->available());
    EXPECT_TRUE(act == Activation::kBF16 || choice.set->fp32_activations);
    EXPECT_NE(choice.why.find(std::string(choice.set->name)), std::string::npos) << choice.why;
  }
}

}  // namespace
}  // namespace troupe
