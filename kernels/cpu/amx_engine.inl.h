// The matrix engine of tile registers (AMX, TDPBF16PS): up to 32 rows x 2 panels at a time, 32
// inputs an instruction. Inputs are copied into dense 16 x 32 tiles first: rows a power of two
// apart would all fall into one set of the cache. Written over a policy with the six instructions,
// so that all but those runs in tests on any processor.
//
// TE-1: a sum takes its groups of 32 inputs ascending; rows of a tile do not see each other.
#pragma once

#include "kernels/cpu/gemm_tile.inl.h"

namespace troupe::cpu::TROUPE_ISA {

// The operand of LDTILECFG.
struct alignas(64) TileShape {
  std::uint8_t palette = 1;
  std::uint8_t start_row = 0;
  std::uint8_t reserved[14] = {};
  std::uint16_t row_bytes[16] = {};
  std::uint8_t rows[16] = {};
};
static_assert(sizeof(TileShape) == 64);

// Policy: configure(TileShape), release(), zero<t>(), load<t>(from, stride), store<t>(to, stride),
// dot<sum, x, w>(). Tiles: 0, 1 sums of the first 16 rows by two panels; 2, 3 of the next 16; 4, 5
// inputs; 6, 7 weights.
template <class Policy>
struct TileEngine {
  using X = bf16;
  static constexpr std::uint32_t kRows = 32;
  static constexpr std::uint32_t kF8Rows = 0;
  static constexpr std::uint32_t kPad = 0;

  TileEngine() = default;
  TileEngine(const TileEngine&) = delete;
  TileEngine& operator=(const TileEngine&) = delete;
  ~TileEngine() { policy_.release(); }

  static void put_row(bf16* x,
                      std::uint32_t stride,
                      std::uint32_t row,
                      const bf16* from,
                      std::uint32_t count,
                      std::uint32_t padded) {
    bf16* to = x + std::size_t{row / 16} * 16 * stride + row % 16 * kTileInputs;
    for (std::uint32_t input = 0; input < padded; input += kTileInputs, to += 16 * kTileInputs) {
      const std::uint32_t left = count - input;
      const std::uint32_t take = left < kTileInputs ? left : kTileInputs;
      __builtin_memcpy(to, from + input, take * sizeof(bf16));
      __builtin_memset(to + take, 0, (kTileInputs - take) * sizeof(bf16));
    }
  }

  static const bf16* at_input(const bf16* x, std::uint32_t input) {
    return x + std::size_t{input} * 16;
  }

  void run(const Block<bf16, bf16>& block) {
    configure(block.rows);
    std::uint32_t panel = 0;
    for (; panel + 2 <= block.panels; panel += 2) {
      block.rows > 16 ? tiles<true, true>(block, panel) : tiles<false, true>(block, panel);
    }
    if (panel < block.panels) {
      block.rows > 16 ? tiles<true, false>(block, panel) : tiles<false, false>(block, panel);
    }
  }

 private:
  static constexpr std::uint32_t kTileInputs = 32;
  static constexpr std::size_t kLineBytes = 64;

  void configure(std::uint32_t rows) {
    if (rows == configured_rows_) {
      return;
    }
    configured_rows_ = rows;
    const auto upper = static_cast<std::uint8_t>(rows < 16 ? rows : 16);
    const auto lower = static_cast<std::uint8_t>(rows > 16 ? rows - 16 : 1);
    TileShape shape;
    for (int tile = 0; tile < 8; ++tile) {
      shape.row_bytes[tile] = kLineBytes;
      shape.rows[tile] = tile >= 6                               ? std::uint8_t{16}
                         : (tile == 2 || tile == 3 || tile == 5) ? lower
                                                                 : upper;
    }
    policy_.configure(shape);
  }

  template <bool kLower, bool kSecond>
  [[gnu::noinline]] void tiles(const Block<bf16, bf16>& block, std::uint32_t panel) {
    const bf16* x = block.x;
    const bf16* x_lower = block.x + std::size_t{16} * block.x_stride;
    const bf16* w = block.weights + panel * block.panel_stride;
    const bf16* w_second = w + block.panel_stride;
    start<kLower, kSecond>(block, panel);
    const std::uint32_t steps =
        (block.pairs + 15) / 16;  // inputs and weights are padded with zeros
    for (std::uint32_t step = 0; step < steps; ++step) {
      const std::size_t at = std::size_t{step} * 16 * kTileInputs;
      policy_.template load<4>(x + at, kLineBytes);
      policy_.template load<6>(w + at, kLineBytes);
      policy_.template dot<0, 4, 6>();
      if constexpr (kSecond) {
        policy_.template load<7>(w_second + at, kLineBytes);
        policy_.template dot<1, 4, 7>();
      }
      if constexpr (kLower) {
        policy_.template load<5>(x_lower + at, kLineBytes);
        policy_.template dot<2, 5, 6>();
        if constexpr (kSecond) {
          policy_.template dot<3, 5, 7>();
        }
      }
    }
    finish<kLower, kSecond>(block, panel);
  }

  template <int kTile>
  void start_tile(const float* from, std::size_t stride_bytes, bool fresh) {
    if (fresh) {
      policy_.template zero<kTile>();
    } else {
      policy_.template load<kTile>(from, stride_bytes);
    }
  }

  template <bool kLower, bool kSecond>
  void start(const Block<bf16, bf16>& block, std::uint32_t panel) {
    const float* sums = block.sums + panel * kLanes;
    const float* lower = sums + std::size_t{16} * block.sum_stride;
    const std::size_t stride = block.sum_stride * sizeof(float);
    start_tile<0>(sums, stride, block.fresh);
    if constexpr (kSecond) {
      start_tile<1>(sums + kLanes, stride, block.fresh);
    }
    if constexpr (kLower) {
      start_tile<2>(lower, stride, block.fresh);
      if constexpr (kSecond) {
        start_tile<3>(lower + kLanes, stride, block.fresh);
      }
    }
  }

  template <bool kLower, bool kSecond>
  void finish(const Block<bf16, bf16>& block, std::uint32_t panel) {
    float* sums = block.sums + panel * kLanes;
    float* lower = sums + std::size_t{16} * block.sum_stride;
    const std::size_t stride = block.sum_stride * sizeof(float);
    policy_.template store<0>(sums, stride);
    if constexpr (kSecond) {
      policy_.template store<1>(sums + kLanes, stride);
    }
    if constexpr (kLower) {
      policy_.template store<2>(lower, stride);
      if constexpr (kSecond) {
        policy_.template store<3>(lower + kLanes, stride);
      }
    }
  }

  Policy policy_;
  std::uint32_t configured_rows_ = 0;
};

}  // namespace troupe::cpu::TROUPE_ISA
