// Affinity, quotas and memory limits, read from made-up /proc and /sys trees.
#include "runtime/device/system_limits.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace troupe {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

class SystemLimitsTest : public testing::Test {
 protected:
  SystemLimitsTest() {
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    root_ =
        std::filesystem::path(testing::TempDir()) / (std::string("system_limits_") + test->name());
    std::filesystem::remove_all(root_);
    write("proc/meminfo",
          "MemTotal:       16777216 kB\nMemFree:           1 kB\nMemAvailable:    8388608 kB\n");
  }
  ~SystemLimitsTest() override { std::filesystem::remove_all(root_); }
  void write(const std::string& path, const std::string& text) const {
    std::filesystem::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }
  [[nodiscard]] SystemLimits read() const { return read_system_limits(root_.string()); }

  std::filesystem::path root_;
};

TEST_F(SystemLimitsTest, TakesWhatTheSystemHasAvailable) {
  EXPECT_EQ(read().available_bytes, 8192 * kMiB);
  EXPECT_EQ(read().processors, read_system_limits(root_.string() + "/none").processors);
}

TEST_F(SystemLimitsTest, HasNoMemoryWithoutMeminfo) {
  EXPECT_EQ(read_system_limits(root_.string() + "/none").available_bytes, 0U);
}

TEST_F(SystemLimitsTest, SubtractsTheUsageOfAUnifiedGroupButNotItsDroppablePages) {
  write("proc/self/cgroup", "0::/jobs/one\n");
  write("sys/fs/cgroup/jobs/one/memory.max", std::to_string(1000 * kMiB) + "\n");
  write("sys/fs/cgroup/jobs/one/memory.current", std::to_string(600 * kMiB) + "\n");
  write("sys/fs/cgroup/jobs/one/memory.stat",
        "anon 7\ninactive_file " + std::to_string(100 * kMiB) + "\n");

  EXPECT_EQ(read().available_bytes, 500 * kMiB);
}

TEST_F(SystemLimitsTest, HeedsTheParentsOfAGroup) {
  write("proc/self/cgroup", "0::/jobs/one\n");
  write("sys/fs/cgroup/jobs/one/memory.max", "max\n");
  write("sys/fs/cgroup/jobs/one/memory.current", "5\n");
  write("sys/fs/cgroup/jobs/memory.max", std::to_string(300 * kMiB) + "\n");
  write("sys/fs/cgroup/jobs/memory.current", std::to_string(100 * kMiB) + "\n");

  EXPECT_EQ(read().available_bytes, 200 * kMiB);
}

TEST_F(SystemLimitsTest, ReadsGroupsOfTheFirstVersion) {
  write("proc/self/cgroup", "5:memory:/box/seven\n4:cpu,cpuacct:/box/seven\n0::/\n");
  write("sys/fs/cgroup/memory/box/seven/memory.limit_in_bytes", std::to_string(700 * kMiB) + "\n");
  write("sys/fs/cgroup/memory/box/seven/memory.usage_in_bytes", std::to_string(900 * kMiB) + "\n");
  write("sys/fs/cgroup/memory/box/seven/memory.stat",
        "total_inactive_file " + std::to_string(300 * kMiB) + "\n");
  write("sys/fs/cgroup/cpu,cpuacct/box/seven/cpu.cfs_quota_us", "150000\n");
  write("sys/fs/cgroup/cpu,cpuacct/box/seven/cpu.cfs_period_us", "100000\n");

  EXPECT_EQ(read().available_bytes, 100 * kMiB);
  EXPECT_EQ(read().processors, 1U);
}

TEST_F(SystemLimitsTest, SeesTheMountOfAContainerWhosePathLiesOutside) {
  write("proc/self/cgroup", "0::/../../host/pod\n");
  write("sys/fs/cgroup/memory.max", std::to_string(64 * kMiB) + "\n");
  write("sys/fs/cgroup/memory.current", "0\n");

  EXPECT_EQ(read().available_bytes, 64 * kMiB);
}

TEST_F(SystemLimitsTest, KeepsOneProcessorUnderAQuotaOfLess) {
  write("proc/self/cgroup", "0::/tiny\n");
  write("sys/fs/cgroup/tiny/cpu.max", "20000 100000\n");

  EXPECT_EQ(read().processors, 1U);
}

TEST_F(SystemLimitsTest, IgnoresAGroupWithoutQuota) {
  const std::uint32_t free = read().processors;
  write("proc/self/cgroup", "0::/wide\n3:cpu:/old\n");
  write("sys/fs/cgroup/wide/cpu.max", "max 100000\n");
  write("sys/fs/cgroup/cpu/old/cpu.cfs_quota_us", "-1\n");
  write("sys/fs/cgroup/cpu/old/cpu.cfs_period_us", "100000\n");

  EXPECT_EQ(read().processors, free);
}

}  // namespace
}  // namespace troupe
