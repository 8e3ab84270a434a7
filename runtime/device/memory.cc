#include "runtime/device/memory.h"

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <sys/mman.h>
#include <utility>

namespace troupe {

namespace {

constexpr std::size_t kLargePage = std::size_t{2} << 20;
constexpr std::size_t kPage = 4096;

class CpuBuffer final : public Buffer {
 public:
  CpuBuffer(std::shared_ptr<MemoryBudget> ledger, std::unique_ptr<Mapping> mapping)
      : ledger_(std::move(ledger)), mapping_(std::move(mapping)) {}
  ~CpuBuffer() override { ledger_->give_back(mapping_->size()); }
  CpuBuffer(const CpuBuffer&) = delete;
  CpuBuffer& operator=(const CpuBuffer&) = delete;

  [[nodiscard]] std::byte* data() override { return mapping_->data(); }
  [[nodiscard]] std::size_t size() const override { return mapping_->size(); }

 private:
  std::shared_ptr<MemoryBudget> ledger_;
  std::unique_ptr<Mapping> mapping_;
};

// Takes the bytes from the ledger, maps, and gives them back when that fails.
template <class Map>
Result<std::unique_ptr<Buffer>> charged(const std::shared_ptr<MemoryBudget>& ledger,
                                        std::size_t bytes,
                                        const std::string& purpose,
                                        const Map& map) {
  TROUPE_TRY(ledger->take(bytes, purpose));
  auto mapping = map();
  if (!mapping) {
    ledger->give_back(bytes);
    return error(mapping.error().kind, purpose + ": " + mapping.error().message);
  }
  return std::make_unique<CpuBuffer>(ledger, std::move(*mapping));
}

}  // namespace

std::string readable_bytes(std::uint64_t bytes) {
  constexpr std::array<const char*, 4> kUnits{"KiB", "MiB", "GiB", "TiB"};
  if (bytes < 1024) {
    return std::to_string(bytes) + " bytes";
  }
  double value = static_cast<double>(bytes) / 1024;
  std::size_t unit = 0;
  while (value >= 1023.95 && unit + 1 < kUnits.size()) {
    value /= 1024;
    ++unit;
  }
  std::array<char, 32> text{};
  (void)std::snprintf(text.data(), text.size(), "%.1f %s", value, kUnits[unit]);
  return text.data();
}

Result<std::unique_ptr<Mapping>> Mapping::make(std::size_t bytes) {
  if (bytes > SIZE_MAX / 2) {
    return error(Kind::kOverloaded, "the system can't map " + readable_bytes(bytes));
  }
  const bool large = bytes >= kLargePage;
  const std::size_t whole = (bytes / kPage + 1) * kPage;
  const std::size_t mapped = whole + (large ? kLargePage : 0);
  void* base = mmap(
      nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED) {
    return error(
        Kind::kOverloaded,
        "the system refused to map " + readable_bytes(mapped) + ": " + std::strerror(errno));
  }
  auto address = reinterpret_cast<std::uintptr_t>(base);
  if (large) {
    address = (address + kLargePage - 1) & ~(kLargePage - 1);
    (void)madvise(
        reinterpret_cast<void*>(address), whole, MADV_HUGEPAGE);  // only speed depends on it
  }
  return std::unique_ptr<Mapping>(
      new Mapping(base, mapped, reinterpret_cast<std::byte*>(address), bytes));
}

Result<std::unique_ptr<Mapping>> Mapping::of_file(int fd, std::uint64_t offset, std::size_t bytes) {
  void* base = mmap(nullptr,
                    bytes,
                    PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_NORESERVE,
                    fd,
                    static_cast<off_t>(offset));
  if (base == MAP_FAILED) {
    return error(Kind::kOverloaded,
                 "the system refused to map " + readable_bytes(bytes) +
                     " of a file: " + std::strerror(errno));
  }
  return std::unique_ptr<Mapping>(new Mapping(base, bytes, static_cast<std::byte*>(base), bytes));
}

Mapping::~Mapping() {
  (void)munmap(base_, mapped_);
}

Status MemoryBudget::take(std::uint64_t bytes, const std::string& purpose) {
  const std::lock_guard lock(mutex_);
  if (bytes > total_ - used_) {
    return error(Kind::kOverloaded,
                 purpose + ": needs " + readable_bytes(bytes) + ", " +
                     readable_bytes(total_ - used_) + " of " + readable_bytes(total_) +
                     " are left on " + device_ +
                     "; give the device more memory, shorten contexts, run fewer sequences, or use "
                     "more devices");
  }
  used_ += bytes;
  return {};
}

void MemoryBudget::give_back(std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  TROUPE_CHECK(bytes <= used_, "no more is given back than was taken");
  used_ -= bytes;
}

Result<std::unique_ptr<Buffer>> make_buffer(const std::shared_ptr<MemoryBudget>& ledger,
                                            std::size_t bytes,
                                            const std::string& purpose) {
  return charged(ledger, bytes, purpose, [&] { return Mapping::make(bytes); });
}

Result<std::unique_ptr<Buffer>> make_file_buffer(const std::shared_ptr<MemoryBudget>& ledger,
                                                 int fd,
                                                 std::uint64_t offset,
                                                 std::size_t bytes,
                                                 const std::string& purpose) {
  return charged(ledger, bytes, purpose, [&] { return Mapping::of_file(fd, offset, bytes); });
}

}  // namespace troupe
