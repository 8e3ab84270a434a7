// Histogram: how often values fell into fixed buckets, with count and sum. A plain value; one
// thread at a time.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace troupe {

// Seconds, from one step of a small model to a long answer: three buckets a decade.
inline constexpr std::array<double, 22> kSecondsBounds = {
    0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2,
    0.5,    1,      2,      5,     10,    20,    50,   100,  200,  500, 1000};
// Rows of a step.
inline constexpr std::array<double, 12> kRowsBounds = {
    1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048};

template <std::size_t N>
class Histogram final {
 public:
  explicit constexpr Histogram(const std::array<double, N>& bounds) : bounds_(bounds) {}

  // O(log N).
  void add(double value, std::uint64_t times = 1) {
    const auto at = std::lower_bound(bounds_.begin(), bounds_.end(), value) - bounds_.begin();
    counts_[static_cast<std::size_t>(at)] += times;
    count_ += times;
    sum_ += value * static_cast<double>(times);
  }

  [[nodiscard]] const std::array<double, N>& bounds() const { return bounds_; }  // upper, inclusive
  // Of each bucket alone; the last one is what lies above all bounds.
  [[nodiscard]] const std::array<std::uint64_t, N + 1>& counts() const { return counts_; }
  [[nodiscard]] std::uint64_t count() const { return count_; }
  [[nodiscard]] double sum() const { return sum_; }

 private:
  std::array<double, N> bounds_;
  std::array<std::uint64_t, N + 1> counts_{};
  std::uint64_t count_ = 0;
  double sum_ = 0;
};

using SecondsHistogram = Histogram<kSecondsBounds.size()>;
using RowsHistogram = Histogram<kRowsBounds.size()>;

}  // namespace troupe
