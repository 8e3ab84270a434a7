// The rules of layering.h on this repository.
#include "tests/repo/layering.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

namespace troupe::repo {
namespace {

const std::string kRoot = TROUPE_SOURCE_DIR;

std::string violations(std::vector<Finding> (*check)(const Source&),
                       const std::vector<Source>& sources) {
  std::string text;
  for (const auto& source : sources) {
    text += describe(check(source));
  }
  return text;
}

TEST(Repository, IsReadWhole) {
  EXPECT_GT(read_sources(kRoot).size(), 20U);
  EXPECT_GT(read_builds(kRoot).size(), 10U);
  EXPECT_GE(read_pages(kRoot).size(), 2U);
}

TEST(Repository, KeepsItsLayers) {
  EXPECT_EQ(violations(check_layers, read_sources(kRoot)), "");
}

TEST(Repository, KeepsLibrariesBehindTheirFences) {
  EXPECT_EQ(violations(check_libraries, read_sources(kRoot)), "");
}

TEST(Repository, UsesNothingThatIsBanned) {
  EXPECT_EQ(violations(check_bans, read_sources(kRoot)), "");
}

TEST(Repository, KeepsFilesShort) {
  EXPECT_EQ(violations(check_size, read_sources(kRoot)), "");
}

TEST(Repository, NumbersItsTodos) {
  EXPECT_EQ(violations(check_todos, read_sources(kRoot)), "");
}

TEST(Repository, HasNoDeadFiles) {
  EXPECT_EQ(describe(check_dead_files(read_sources(kRoot), read_builds(kRoot))), "");
}

TEST(Repository, GivesEachPageOneTitle) {
  EXPECT_EQ(violations(check_headings, read_pages(kRoot)), "");
}

TEST(Repository, ShowsOnlyCommandsThatExist) {
  std::ifstream dev(kRoot + "/dev");
  std::ostringstream usage;
  usage << dev.rdbuf();
  const auto exists = [](const std::string& path) {
    return std::filesystem::exists(kRoot + "/" + path);
  };

  std::string text;
  for (const auto& page : read_pages(kRoot)) {
    text += describe(check_commands(page, usage.str(), exists));
  }
  EXPECT_EQ(text, "");
}

}  // namespace
}  // namespace troupe::repo
