// Memory of CPU devices: zeroed pages straight from the system, in large pages where it has them,
// counted against what the device may use. The count is arithmetic: pages are only taken from the
// system when they are first touched.
#pragma once

#include "runtime/base/error.h"
#include "runtime/device/device.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

namespace troupe {

// A mapping that only this process sees. Neither copied nor moved.
class Mapping final {
 public:
  // Zeroed; starts at a multiple of 2 MiB when it is at least that large. kOverloaded when the
  // system refuses. bytes may be 0.
  [[nodiscard]] static Result<std::unique_ptr<Mapping>> make(std::size_t bytes);
  // The bytes of an open file from `offset`, a multiple of 4096; what is written here stays here.
  // kOverloaded when the system refuses. bytes is not 0.
  [[nodiscard]] static Result<std::unique_ptr<Mapping>> of_file(int fd,
                                                                std::uint64_t offset,
                                                                std::size_t bytes);
  ~Mapping();
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  [[nodiscard]] std::byte* data() const { return data_; }
  [[nodiscard]] std::size_t size() const { return size_; }

 private:
  Mapping(void* base, std::size_t mapped, std::byte* data, std::size_t size)
      : base_(base), mapped_(mapped), data_(data), size_(size) {}

  void* base_;
  std::size_t mapped_;
  std::byte* data_;
  std::size_t size_;
};

// What a device may use and what its buffers take of it. Any thread.
class MemoryBudget final {
 public:
  MemoryBudget(std::string device, std::uint64_t total)
      : device_(std::move(device)), total_(total) {}

  // kOverloaded with the arithmetic when less than `bytes` is left.
  [[nodiscard]] Status take(std::uint64_t bytes, const std::string& purpose);
  void give_back(std::uint64_t bytes);

 private:
  const std::string device_;
  const std::uint64_t total_;
  std::mutex mutex_;
  std::uint64_t used_ = 0;
};

// Buffers that keep the ledger alive and give their bytes back.
[[nodiscard]] Result<std::unique_ptr<Buffer>> make_buffer(
    const std::shared_ptr<MemoryBudget>& ledger, std::size_t bytes, const std::string& purpose);
[[nodiscard]] Result<std::unique_ptr<Buffer>> make_file_buffer(
    const std::shared_ptr<MemoryBudget>& ledger,
    int fd,
    std::uint64_t offset,
    std::size_t bytes,
    const std::string& purpose);

// "12.3 GiB", "512 bytes": for messages.
[[nodiscard]] std::string readable_bytes(std::uint64_t bytes);

}  // namespace troupe
