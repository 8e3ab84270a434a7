#include "deploy/bandwidth.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstring>

namespace troupe::deploy {
namespace {

constexpr std::size_t kBufferBytes = std::size_t{1} << 30U;
constexpr std::size_t kPartBytes =
    std::size_t{4} << 20U;  // small, so that a worker that comes late does not hold up a pass
constexpr int kPasses = 5;
constexpr std::size_t kWords = 8;

// Eight independent sums, so that loads do not wait for each other; the compiler makes vectors of
// them.
std::uint64_t sum_of(const std::byte* data, std::size_t bytes) {
  std::array<std::uint64_t, kWords> sums{};
  for (std::size_t at = 0; at < bytes; at += sizeof sums) {
    std::array<std::uint64_t, kWords> words;
    std::memcpy(words.data(), data + at, sizeof words);
    for (std::size_t i = 0; i < kWords; ++i) {
      sums[i] ^= words[i];
    }
  }
  std::uint64_t all = 0;
  for (const auto sum : sums) {
    all ^= sum;
  }
  return all;
}

}  // namespace

Result<double> read_bandwidth(Device& device, const Clock& clock) {
  TROUPE_ASSIGN(const auto buffer,
                device.allocate(kBufferBytes, "the measurement of memory bandwidth"));
  std::byte* data = buffer->data();
  constexpr std::size_t kParts = kBufferBytes / kPartBytes;
  // Untouched memory is one page of zeros, which a cache holds.
  device.parallel_for(kParts, [data](std::size_t part) {
    std::memset(data + part * kPartBytes, 0x5a, kPartBytes);
  });
  std::atomic<std::uint64_t> sink{0};  // else the loop would have no result and could be left out
  double best = 0;
  for (int pass = 0; pass < kPasses; ++pass) {
    const Time begin = clock.now();
    device.parallel_for(kParts, [data, &sink](std::size_t part) {
      sink += sum_of(data + part * kPartBytes, kPartBytes);
    });
    const double seconds = std::chrono::duration<double>(clock.now() - begin).count();
    best = std::max(best, seconds > 0 ? static_cast<double>(kBufferBytes) / seconds : 0);
  }
  return best;
}

}  // namespace troupe::deploy
