// The widening matrix engine: weights of bf16 or fp32 panels, widened exactly to fp32 in registers,
// times fp32 inputs, by fma. A tile is kRows x panels of sums that live in registers while the
// inputs pass; a loaded vector of weights serves all rows of the tile, a broadcast input all
// panels. With one row several panels are streamed at once, which gives the sums of one row enough
// independent chains and the memory enough streams.
//
// GT-1: a sum takes input 0, 1, 2, ... one fma each, whatever the tile's shape: the bits of an
// output depend on its row alone.
#pragma once

#include "kernels/cpu/gemm_expand.inl.h"
#include "kernels/cpu/vec.h"

namespace troupe::cpu::TROUPE_ISA {

inline constexpr std::uint32_t kPairLine = 32;  // elements of a line: 16 outputs x 2 inputs

// A line's even or odd inputs. One at a time: both together would not fit in the registers of AVX2.
template <class W>
struct Line {
  const W* from;
  TROUPE_LANE Line of(const W* line) { return {line}; }
  [[gnu::always_inline]] V16 even() const {
    V16 even, odd;
    load_pairs(from, even, odd);
    return even;
  }
  [[gnu::always_inline]] V16 odd() const {
    V16 even, odd;
    load_pairs(from, even, odd);
    return odd;
  }
};

#if !defined(TROUPE_VEC_SCALAR)
template <>
struct Line<F8> {
  F8Line pairs;
  TROUPE_LANE Line of(const F8* line) { return {expand_f8_line(line)}; }
#if defined(TROUPE_VEC_AVX512)
  [[gnu::always_inline]] __m512i both() const {
    return _mm512_inserti64x4(_mm512_castsi256_si512(pairs.first), pairs.second, 1);
  }
  [[gnu::always_inline]] V16 even() const {
    return {_mm512_castsi512_ps(_mm512_slli_epi32(both(), 16))};
  }
  [[gnu::always_inline]] V16 odd() const {
    return {_mm512_castsi512_ps(
        _mm512_and_si512(both(), _mm512_set1_epi32(static_cast<std::int32_t>(0xffff0000U))))};
  }
#else
  [[gnu::always_inline]] V16 even() const {
    return {_mm256_castsi256_ps(_mm256_slli_epi32(pairs.first, 16)),
            _mm256_castsi256_ps(_mm256_slli_epi32(pairs.second, 16))};
  }
  [[gnu::always_inline]] V16 odd() const {
    const __m256i upper = _mm256_set1_epi32(static_cast<std::int32_t>(0xffff0000U));
    return {_mm256_castsi256_ps(_mm256_and_si256(pairs.first, upper)),
            _mm256_castsi256_ps(_mm256_and_si256(pairs.second, upper))};
  }
#endif
};
#endif

// sum += input * weight, in the sum's own registers. Assembly for AVX2, where all 16 registers are
// in use: g++ 12 else keeps the sum in the input's register now and then, and spills others for it.
TROUPE_LANE void accumulate(V16& sum, V16 input, V16 weight) {
#if defined(TROUPE_VEC_AVX2)
  asm("vfmadd231ps %2, %1, %0" : "+x"(sum.lo) : "x"(input.lo), "x"(weight.lo));
  asm("vfmadd231ps %2, %1, %0" : "+x"(sum.hi) : "x"(input.hi), "x"(weight.hi));
#else
  sum = fma(input, weight, sum);
#endif
}

// What an engine multiplies: `rows` rows of expanded inputs, laid out by the engine, by `panels`
// panels.
template <class X, class W>
struct Block {
  const X* x;
  std::uint32_t x_stride;  // elements between rows
  std::uint32_t rows;
  const W* weights;          // at the first input of the block
  std::size_t panel_stride;  // elements between panels
  std::uint32_t panels;
  std::uint32_t pairs;  // pairs of inputs to take
  float* sums;          // [rows][sum_stride]
  std::uint32_t sum_stride;
  bool fresh;  // sums start from 0, else from what is stored
};

// How far ahead of its use a line of weights is asked for, in bytes; past the end of a panel this
// is the next panel's start.
inline constexpr std::size_t kPrefetchBytes = 1024;
// The same for tiles of many rows, whose lines take so long that memory would rest meanwhile.
inline constexpr std::size_t kFarPrefetchBytes = 4096;

template <int kRows, int kPanels, class W>
[[gnu::noinline]] void fma_tile(const Block<float, W>& block,
                                std::uint32_t row,
                                std::uint32_t panel) {
  const float* x = block.x + std::size_t{row} * block.x_stride;
  const std::size_t stride = block.x_stride;
  const W* w = block.weights + panel * block.panel_stride;
  float* out = block.sums + std::size_t{row} * block.sum_stride + panel * kLanes;
  V16 sum[kRows][kPanels];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int p = 0; p < kPanels; ++p) {
      sum[r][p] = block.fresh ? zero()
                              : load(out + static_cast<std::size_t>(r) * block.sum_stride + p * 16);
    }
  }
  for (std::uint32_t pair = 0; pair < block.pairs; ++pair, x += 2, w += kPairLine) {
    Line<W> line[kPanels];
    V16 weights[kPanels];
#pragma GCC unroll 4
    for (int p = 0; p < kPanels; ++p) {
      const W* from = w + static_cast<std::size_t>(p) * block.panel_stride;
      __builtin_prefetch(reinterpret_cast<const char*>(from) +
                         (kRows > 2 ? kFarPrefetchBytes : kPrefetchBytes));
      line[p] = Line<W>::of(from);
      weights[p] = line[p].even();
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const V16 input = set1(x[static_cast<std::size_t>(r) * stride]);
#pragma GCC unroll 4
      for (int p = 0; p < kPanels; ++p) {
        accumulate(sum[r][p], input, weights[p]);
      }
    }
#pragma GCC unroll 4
    for (int p = 0; p < kPanels; ++p) {
      weights[p] = line[p].odd();
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const V16 input = set1(x[static_cast<std::size_t>(r) * stride + 1]);
#pragma GCC unroll 4
      for (int p = 0; p < kPanels; ++p) {
        accumulate(sum[r][p], input, weights[p]);
      }
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int p = 0; p < kPanels; ++p) {
      store(out + static_cast<std::size_t>(r) * block.sum_stride + p * 16, sum[r][p]);
    }
  }
}

// All panels of a block for kRows rows from `row` on, kPanels at a time.
template <int kRows, int kPanels, class W>
void fma_rows(const Block<float, W>& block, std::uint32_t row) {
  std::uint32_t panel = 0;
  for (; panel + kPanels <= block.panels; panel += kPanels) {
    fma_tile<kRows, kPanels>(block, row, panel);
  }
  for (; panel < block.panels; ++panel) {
    fma_tile<kRows, 1>(block, row, panel);
  }
}

struct FmaEngine {
  using X = float;
#if defined(TROUPE_VEC_SCALAR)
  static constexpr std::uint32_t kRows = 1;  // no registers to fill: small code
  static constexpr std::uint32_t kF8Rows = 0;
#else
  static constexpr std::uint32_t kRows = 6;
  static constexpr std::uint32_t kF8Rows = 1;  // so many rows take F8 panels as they are
#endif
#if defined(TROUPE_VEC_AVX512)
  static constexpr int kWide = 4;  // panels of a tile with many rows: 24 sums in 32 registers
  static constexpr int kMiddle = 4;
#else
  static constexpr int kWide =
      1;  // 6 rows x 2 registers of sums, 2 of weights, 1 input, the mask: all of AVX2's 16
  static constexpr int kMiddle = 2;
#endif
  static constexpr std::uint32_t kPad =
      16;  // keeps rows of a power of two apart in the sets of the cache

  // Expands `count` elements of a row, then zeros up to `padded`.
  template <class Act>
  static void put_row(float* x,
                      std::uint32_t stride,
                      std::uint32_t row,
                      const Act* from,
                      std::uint32_t count,
                      std::uint32_t padded) {
    float* to = x + std::size_t{row} * stride;
    std::uint32_t i = 0;
    for (; i + kLanes <= count; i += kLanes) {
      store(to + i, load(from + i));
    }
    for (; i < padded; i += kLanes) {
      store(to + i, i < count ? load_n(from + i, count - i) : zero());
    }
  }

  static const float* at_input(const float* x, std::uint32_t input) {
    return x + input;
  }

  template <class W>
  void run(const Block<float, W>& block) {
    if constexpr (kRows == 1) {
      fma_rows<1, 1>(block, 0);
    } else if constexpr (sizeof(W) == sizeof(F8)) {
      fma_rows<1, 2>(block, 0);
    } else {
      switch (block.rows) {
        case 1:
          return fma_rows<1, 4>(block, 0);
        case 2:
          return fma_rows<2, kMiddle>(block, 0);
        case 3:
          return fma_rows<3, kWide>(block, 0);
        case 4:
          return fma_rows<4, kWide>(block, 0);
        case 5:
          return fma_rows<5, kWide>(block, 0);
        default:
          return fma_rows<6, kWide>(block, 0);
      }
    }
  }
};

}  // namespace troupe::cpu::TROUPE_ISA
