#include "tests/support/temp_directory.h"

#include <gtest/gtest.h>

#include <atomic>
#include <fstream>
#include <system_error>
#include <unistd.h>

namespace troupe::test {

TempDirectory::TempDirectory() {
  static std::atomic<int> next{0};
  path_ = std::filesystem::path(testing::TempDir()) /
          ("troupe_" + std::to_string(::getpid()) + "_" + std::to_string(next++));
  std::filesystem::create_directories(path_);
}

TempDirectory::~TempDirectory() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

void TempDirectory::write(std::string_view name, std::string_view bytes) const {
  std::filesystem::create_directories((path_ / name).parent_path());
  std::ofstream(path_ / name, std::ios::binary)
      .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

}  // namespace troupe::test
