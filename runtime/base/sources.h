// Clock and Rng: the two sources of nondeterminism, always passed in, never reached for. A whole
// cluster runs in one thread from one seed because of this.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>

namespace troupe {

// Monotonic time since an arbitrary origin.
using Time = std::chrono::nanoseconds;

[[nodiscard]] constexpr double in_seconds(Time time) {
  return std::chrono::duration<double>(time).count();
}

class Clock {
 public:
  virtual ~Clock() = default;
  [[nodiscard]] virtual Time now() const = 0;
};

// The machine's steady clock. Thread-safe.
class SteadyClock final : public Clock {
 public:
  [[nodiscard]] Time now() const override;
};

// Time that moves only when told to. One thread.
class ManualClock final : public Clock {
 public:
  [[nodiscard]] Time now() const override { return now_; }
  void advance(Time by) { now_ += by; }

 private:
  Time now_{0};
};

// Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011): a pure
// function of key and counter, so a draw at a position can be made again anywhere (decision D4).
[[nodiscard]] std::array<std::uint32_t, 4> philox4x32(std::uint64_t key,
                                                      std::array<std::uint32_t, 4> counter);

// A stream of draws from one seed. One thread.
class Rng final {
 public:
  explicit Rng(std::uint64_t seed) : key_(seed) {}
  [[nodiscard]] std::uint64_t next();
  [[nodiscard]] std::uint64_t below(
      std::uint64_t bound);        // uniform in [0, bound); REQUIRES: bound > 0
  [[nodiscard]] double uniform();  // uniform in [0, 1)

 private:
  std::uint64_t key_;
  std::uint64_t counter_ = 0;
};

// A seed for the first Rng of a process, from the operating system. Everything else derives from
// it.
[[nodiscard]] std::uint64_t entropy_seed();

}  // namespace troupe
