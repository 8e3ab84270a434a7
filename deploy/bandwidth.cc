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
constexpr std::size_t kLineBytes = 64;

using Vector [[gnu::vector_size(16)]] = std::uint64_t;

// Four independent sums in registers, two cache lines a round: limited by the loads, not by the
// arithmetic.
std::uint64_t sum_of(const std::byte* data, std::size_t bytes) {
  Vector a{};
  Vector b{};
  Vector c{};
  Vector d{};
  for (const std::byte* end = data + bytes; data != end; data += 2 * kLineBytes) {
    std::array<Vector, 8> line;
    std::memcpy(line.data(), data, sizeof line);
    a ^= line[0] ^ line[4];
    b ^= line[1] ^ line[5];
    c ^= line[2] ^ line[6];
    d ^= line[3] ^ line[7];
  }
  const Vector all = (a ^ b) ^ (c ^ d);
  return all[0] ^ all[1];
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
    const double seconds = in_seconds(clock.now() - begin);
    best = std::max(best, seconds > 0 ? static_cast<double>(kBufferBytes) / seconds : 0);
  }
  return best;
}

}  // namespace troupe::deploy
