#include "runtime/base/sources.h"

#include <random>

namespace troupe {

Time SteadyClock::now() const {
  return std::chrono::duration_cast<Time>(std::chrono::steady_clock::now().time_since_epoch());
}

std::array<std::uint32_t, 4> philox4x32(std::uint64_t key, std::array<std::uint32_t, 4> counter) {
  auto k0 = static_cast<std::uint32_t>(key);
  auto k1 = static_cast<std::uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p0 = std::uint64_t{0xD2511F53U} * counter[0];
    const std::uint64_t p1 = std::uint64_t{0xCD9E8D57U} * counter[2];
    counter = {static_cast<std::uint32_t>(p1 >> 32) ^ counter[1] ^ k0,
               static_cast<std::uint32_t>(p1),
               static_cast<std::uint32_t>(p0 >> 32) ^ counter[3] ^ k1,
               static_cast<std::uint32_t>(p0)};
    k0 += 0x9E3779B9U;
    k1 += 0xBB67AE85U;
  }
  return counter;
}

std::uint64_t Rng::next() {
  const auto block = philox4x32(key_,
                                {static_cast<std::uint32_t>(counter_),
                                 static_cast<std::uint32_t>(counter_ >> 32),
                                 0x54524F55U,
                                 0U});
  ++counter_;
  return (static_cast<std::uint64_t>(block[1]) << 32) | block[0];
}

std::uint64_t Rng::below(std::uint64_t bound) {
  __extension__ using Wide = unsigned __int128;
  // Multiply-high: the bias is below bound / 2^64.
  return static_cast<std::uint64_t>((static_cast<Wide>(next()) * bound) >> 64);
}

double Rng::uniform() {
  return static_cast<double>(next() >> 11) * 0x1p-53;
}

std::uint64_t entropy_seed() {
  std::random_device device;
  return (static_cast<std::uint64_t>(device()) << 32) | device();
}

}  // namespace troupe
