// File: a file descriptor that closes itself. Moved, never copied; one thread at a time.
#pragma once

#include <unistd.h>
#include <utility>

namespace troupe {

class File final {
 public:
  explicit File(int fd = -1) : fd_(fd) {}
  File(File&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  File& operator=(File&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~File() {
    if (fd_ >= 0) {
      ::close(fd_);
    }
  }
  [[nodiscard]] int fd() const { return fd_; }  // negative: none

 private:
  int fd_;
};

}  // namespace troupe
