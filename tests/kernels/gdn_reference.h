// GatedDeltaNet in plain double (MODEL.md 3.6), one row at a time.
#pragma once

#include "tests/kernels/rig.h"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace troupe::testing {

// A layer; its state in a page: S, then the window.
struct Shape {
  std::uint32_t key_heads = 2, value_heads = 4, key_dim = 20, value_dim = 24, taps = 4;

  [[nodiscard]] std::size_t key_width() const { return std::size_t{key_heads} * key_dim; }
  [[nodiscard]] std::size_t value_width() const { return std::size_t{value_heads} * value_dim; }
  [[nodiscard]] std::size_t channels() const { return 2 * key_width() + value_width(); }
  [[nodiscard]] std::size_t state_count() const { return value_width() * key_dim; }
  [[nodiscard]] std::size_t window_count() const { return (taps - 1) * channels(); }
  [[nodiscard]] std::size_t window_offset() const { return (state_count() * 4 + 63) / 64 * 64; }
  [[nodiscard]] std::size_t page_bytes() const {
    return (window_offset() + window_count() * 4 + 63) / 64 * 64;
  }
};

// The plain recurrence in double, for one segment.
struct Reference {
  std::vector<double> q, k, v, decay, beta, out, state;
  std::vector<double> window;  // inputs, oldest first

  Reference(const Shape& s, std::vector<float> start_state, std::vector<float> start_window)
      : state(start_state.begin(), start_state.end()),
        window(start_window.begin(), start_window.end()),
        s_(s) {}

  void row(const float* qkv, const float* ba, const std::vector<float>& coefficients) {
    convolve(qkv);
    const std::vector<float> bias = noise(6, s_.value_heads);
    for (std::uint32_t h = 0; h < s_.value_heads; ++h) {
      beta.push_back(sigmoid(static_cast<double>(ba[h])));
      const double step = std::log1p(
          std::exp(static_cast<double>(ba[s_.value_heads + h]) + static_cast<double>(bias[h])));
      decay.push_back(std::exp(static_cast<double>(coefficients[h]) * step));
      scan_head(h);
    }
  }

 private:
  void convolve(const float* qkv) {
    const std::vector<float> taps = noise(5, s_.taps * s_.channels());
    window.insert(window.end(), qkv, qkv + s_.channels());
    std::vector<double> c(s_.channels());
    for (std::size_t i = 0; i < c.size(); ++i) {
      for (std::size_t tap = 0; tap < s_.taps; ++tap) {
        c[i] += static_cast<double>(taps[tap * c.size() + i]) * window[tap * c.size() + i];
      }
      c[i] = silu(c[i]);
    }
    window.erase(window.begin(), window.begin() + static_cast<std::ptrdiff_t>(s_.channels()));
    for (std::size_t head = 0; head < 2 * std::size_t{s_.key_heads}; ++head) {
      double squares = 1e-6;
      for (std::size_t i = 0; i < s_.key_dim; ++i) {
        squares += c[head * s_.key_dim + i] * c[head * s_.key_dim + i];
      }
      const bool query = head < s_.key_heads;
      for (std::size_t i = 0; i < s_.key_dim; ++i) {
        (query ? q : k)
            .push_back(c[head * s_.key_dim + i] / std::sqrt(squares) /
                       (query ? std::sqrt(s_.key_dim) : 1));
      }
    }
    v.insert(v.end(), c.begin() + static_cast<std::ptrdiff_t>(2 * s_.key_width()), c.end());
  }

  void scan_head(std::uint32_t h) {
    const std::size_t key =
        k.size() - s_.key_width() + h / (s_.value_heads / s_.key_heads) * s_.key_dim;
    const std::size_t value = v.size() - s_.value_width() + std::size_t{h} * s_.value_dim;
    double* cells = state.data() + std::size_t{h} * s_.key_dim * s_.value_dim;
    for (std::size_t j = 0; j < s_.value_dim; ++j) {
      double m = 0;
      for (std::size_t i = 0; i < s_.key_dim; ++i) {
        cells[i * s_.value_dim + j] *= decay.back();
        m += cells[i * s_.value_dim + j] * k[key + i];
      }
      const double d = beta.back() * (v[value + j] - m);
      double o = 0;
      for (std::size_t i = 0; i < s_.key_dim; ++i) {
        cells[i * s_.value_dim + j] += k[key + i] * d;
        o += cells[i * s_.value_dim + j] * q[key + i];
      }
      out.push_back(o);
    }
  }

  Shape s_;
};

}  // namespace troupe::testing
