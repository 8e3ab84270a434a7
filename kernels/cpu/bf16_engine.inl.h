// The matrix engine of pair instructions (VDPBF16PS): bf16 inputs times bf16 panels, two inputs an
// instruction, fp32 sums. Written over a policy with the few instructions, so that all but those
// runs in tests on any processor.
//
// BE-1: a sum takes its pairs ascending, whatever the tile's shape.
#pragma once

#include "kernels/cpu/gemm_tile.inl.h"

namespace troupe::cpu::TROUPE_ISA {

// Policy: types Sum, Weights, Inputs; zero(), load(const float*), store(float*, Sum), weights(const
// bf16* line of 16 pairs), pair(const bf16*) (the same two inputs for all outputs), dot(Sum,
// Weights, Inputs) -> Sum.
template <class Policy>
struct PairEngine {
  using X = bf16;
  static constexpr std::uint32_t kRows = 6;
  static constexpr std::uint32_t kF8Rows = 0;
  static constexpr std::uint32_t kPad = 32;

  static void put_row(bf16* x,
                      std::uint32_t stride,
                      std::uint32_t row,
                      const bf16* from,
                      std::uint32_t count,
                      std::uint32_t padded) {
    bf16* to = x + std::size_t{row} * stride;
    __builtin_memcpy(to, from, count * sizeof(bf16));
    __builtin_memset(to + count, 0, (padded - count) * sizeof(bf16));
  }

  static const bf16* at_input(const bf16* x, std::uint32_t input) { return x + input; }

  void run(const Block<bf16, bf16>& block) {
    switch (block.rows) {
      case 1:
        return panels<1>(block);
      case 2:
        return panels<2>(block);
      case 3:
        return panels<3>(block);
      case 4:
        return panels<4>(block);
      case 5:
        return panels<5>(block);
      default:
        return panels<6>(block);
    }
  }

 private:
  template <int kTileRows>
  static void panels(const Block<bf16, bf16>& block) {
    std::uint32_t panel = 0;
    for (; panel + 4 <= block.panels; panel += 4) {
      tile<kTileRows, 4>(block, panel);
    }
    for (; panel < block.panels; ++panel) {
      tile<kTileRows, 1>(block, panel);
    }
  }

  template <int kTileRows, int kPanels>
  [[gnu::noinline]] static void tile(const Block<bf16, bf16>& block, std::uint32_t panel) {
    const bf16* x = block.x;
    const bf16* w = block.weights + panel * block.panel_stride;
    float* out = block.sums + panel * kLanes;
    typename Policy::Sum sum[kTileRows][kPanels];
#pragma GCC unroll 8
    for (int r = 0; r < kTileRows; ++r) {
#pragma GCC unroll 4
      for (int p = 0; p < kPanels; ++p) {
        const float* from = out + static_cast<std::size_t>(r) * block.sum_stride + p * 16;
        sum[r][p] = block.fresh ? Policy::zero() : Policy::load(from);
      }
    }
    for (std::uint32_t pair = 0; pair < block.pairs; ++pair, x += 2, w += kPairLine) {
      typename Policy::Weights line[kPanels];
#pragma GCC unroll 4
      for (int p = 0; p < kPanels; ++p) {
        const bf16* from = w + static_cast<std::size_t>(p) * block.panel_stride;
        if constexpr (kTileRows <= 4) {
          __builtin_prefetch(reinterpret_cast<const char*>(from) + kPrefetchBytes);
        }
        line[p] = Policy::weights(from);
      }
#pragma GCC unroll 8
      for (int r = 0; r < kTileRows; ++r) {
        const typename Policy::Inputs inputs =
            Policy::pair(x + static_cast<std::size_t>(r) * block.x_stride);
#pragma GCC unroll 4
        for (int p = 0; p < kPanels; ++p) {
          sum[r][p] = Policy::dot(sum[r][p], line[p], inputs);
        }
      }
    }
#pragma GCC unroll 8
    for (int r = 0; r < kTileRows; ++r) {
#pragma GCC unroll 4
      for (int p = 0; p < kPanels; ++p) {
        Policy::store(out + static_cast<std::size_t>(r) * block.sum_stride + p * 16, sum[r][p]);
      }
    }
  }
};

}  // namespace troupe::cpu::TROUPE_ISA
