#define TROUPE_ISA emulation
#define TROUPE_VEC_SCALAR

#include "tests/kernels/bf16_emulation.h"

#include "kernels/cpu/amx_engine.inl.h"
#include "kernels/cpu/bf16_engine.inl.h"
#include "kernels/cpu/gemm.inl.h"
#include "runtime/base/error.h"

#include <array>
#include <cmath>
#include <cstring>

namespace troupe::cpu::emulation {
namespace {

// Both instructions ignore MXCSR: round to nearest even, subnormal operands count as zero,
// subnormal results become zero.
float flushed(float value) {
  return std::fpclassify(value) == FP_SUBNORMAL ? std::copysign(0.0F, value) : value;
}

float flushing_fma(float a, float b, float c) {
  return flushed(std::fma(flushed(a), flushed(b), flushed(c)));
}

// VDPBF16PS: per lane two fused steps, the odd input first.
struct Pairs {
  struct Sum {
    std::array<float, 16> lane;
  };
  using Weights = std::array<bf16, 32>;
  using Inputs = std::array<bf16, 2>;

  static Sum zero() { return {}; }
  static Sum load(const float* from) {
    Sum sum;
    std::memcpy(sum.lane.data(), from, sizeof sum.lane);
    return sum;
  }
  static void store(float* to, const Sum& sum) {
    std::memcpy(to, sum.lane.data(), sizeof sum.lane);
  }
  static Weights weights(const bf16* line) {
    Weights result;
    std::memcpy(result.data(), line, sizeof result);
    return result;
  }
  static Inputs pair(const bf16* x) { return {x[0], x[1]}; }
  static Sum dot(Sum sum, const Weights& w, const Inputs& x) {
    for (std::size_t i = 0; i < 16; ++i) {
      sum.lane[i] = flushing_fma(bf16_to_f32(w[2 * i + 1]), bf16_to_f32(x[1]), sum.lane[i]);
      sum.lane[i] = flushing_fma(bf16_to_f32(w[2 * i]), bf16_to_f32(x[0]), sum.lane[i]);
    }
    return sum;
  }
};

// TDPBF16PS: per output two chains from zero over the even and the odd inputs of the tile, then
// (even + odd) onto the sum.
class Tiles {
 public:
  void configure(const TileShape& shape) {
    shape_ = shape;
    tiles_ = {};  // loading a configuration clears the tiles
    configured_ = true;
  }
  void release() { configured_ = false; }

  template <int kTile>
  void zero() {
    check<kTile>();
    tiles_[kTile] = {};
  }
  template <int kTile>
  void load(const void* from, std::size_t stride_bytes) {
    check<kTile>();
    tiles_[kTile] = {};
    for (std::size_t row = 0; row < shape_.rows[kTile]; ++row) {
      std::memcpy(tiles_[kTile][row].data(),
                  static_cast<const std::byte*>(from) + row * stride_bytes,
                  shape_.row_bytes[kTile]);
    }
  }
  template <int kTile>
  void store(void* to, std::size_t stride_bytes) {
    check<kTile>();
    for (std::size_t row = 0; row < shape_.rows[kTile]; ++row) {
      std::memcpy(static_cast<std::byte*>(to) + row * stride_bytes,
                  tiles_[kTile][row].data(),
                  shape_.row_bytes[kTile]);
    }
  }
  template <int kSum, int kX, int kW>
  void dot() {
    check<kSum>();
    check<kX>();
    check<kW>();
    TROUPE_CHECK(shape_.rows[kSum] == shape_.rows[kX],
                 "a tile product needs as many rows of sums as of inputs");
    TROUPE_CHECK(shape_.rows[kW] * 4 == shape_.row_bytes[kX],
                 "a tile product needs a row of weights per pair of inputs");
    for (std::size_t row = 0; row < shape_.rows[kSum]; ++row) {
      for (std::size_t output = 0; output < 16; ++output) {
        float even = 0;
        float odd = 0;
        for (std::size_t pair = 0; pair < 16; ++pair) {
          even = flushing_fma(half(kX, row, 2 * pair), half(kW, pair, 2 * output), even);
          odd = flushing_fma(half(kX, row, 2 * pair + 1), half(kW, pair, 2 * output + 1), odd);
        }
        float sum = 0;
        std::byte* at = tiles_[kSum][row].data() + output * sizeof sum;
        std::memcpy(&sum, at, sizeof sum);
        sum = flushed(flushed(sum) + flushed(even + odd));
        std::memcpy(at, &sum, sizeof sum);
      }
    }
  }

 private:
  template <int kTile>
  void check() const {
    TROUPE_CHECK(configured_, "tiles are used after a configuration and before the release");
    TROUPE_CHECK(shape_.rows[kTile] >= 1 && shape_.rows[kTile] <= 16, "a tile has 1 to 16 rows");
  }
  [[nodiscard]] float half(std::size_t tile, std::size_t row, std::size_t column) const {
    bf16 value = 0;
    std::memcpy(&value, tiles_[tile][row].data() + column * sizeof value, sizeof value);
    return bf16_to_f32(value);
  }

  using Tile = std::array<std::array<std::byte, 64>, 16>;
  TileShape shape_;
  std::array<Tile, 8> tiles_{};
  bool configured_ = false;
};

template <class Engine>
constexpr KernelSet make_set(const char* name) {
  KernelSet set;
  set.name = name;
  set.available = [] { return true; };
  set.fp32_activations = false;
  fill_gemm_kernels<bf16, Engine>(set, Activation::kBF16);
  return set;
}

constexpr KernelSet kPairs = make_set<PairEngine<Pairs>>("emulated-pairs");
constexpr KernelSet kTiles = make_set<TileEngine<Tiles>>("emulated-tiles");

}  // namespace
}  // namespace troupe::cpu::emulation

namespace troupe::testing {

const KernelSet& emulated_pair_set() {
  return cpu::emulation::kPairs;
}
const KernelSet& emulated_tile_set() {
  return cpu::emulation::kTiles;
}

}  // namespace troupe::testing
