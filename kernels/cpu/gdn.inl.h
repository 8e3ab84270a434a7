// kGdnConv and kGdnScan for one instruction set. Contracts: ops.h. Included by
// vector_ops.inl.h.
//
// The scan keeps dk x (16 NV) floats of S, already decayed for the row to come, in a contiguous
// tile of scratch. Per row one pass over the tile finishes the row (update, S^T q) and begins the
// next one (decay, S^T k), so each element is loaded and stored once; two chains of fma per column
// hide their own latency. Only rows whose state is kept touch a page.
#pragma once

#include "kernels/cpu/norm.inl.h"

namespace troupe::cpu::TROUPE_ISA {

// Columns of a tile / 16: with several rows as many as keep their sums in registers, with one row,
// which is a matter of memory, more.
#if defined(TROUPE_VEC_AVX512)
inline constexpr int kScanVectors = 4;
inline constexpr int kScanOneRow = 4;
#elif defined(TROUPE_VEC_AVX2)
inline constexpr int kScanVectors = 2;
inline constexpr int kScanOneRow = 4;
#else
inline constexpr int kScanVectors = 1;
inline constexpr int kScanOneRow = 1;
#endif
inline constexpr std::uint32_t kScanItem = 64;  // columns of an item

// Input `local - back` of a segment for channel 0: a row of qkv, or of the window when it lies
// before the segment.
struct Inputs {
  const float* first;   // qkv of the segment's first row
  const float* window;  // of the read page, [taps-1][channels]
  std::size_t channels;
  std::uint32_t taps;

  [[gnu::always_inline]] const float* row(std::uint32_t local, std::uint32_t back) const {
    return local >= back ? first + (local - back) * channels
                         : window + (taps - 1 + local - back) * channels;
  }
};

template <class Args>
TROUPE_LANE Inputs inputs_of(const KernelEnv& env,
                             const Args& args,
                             const StepSegment& segment,
                             std::size_t channels) {
  const std::byte* page = arena(env, Arena::kPages) + segment.read_page * args.page_bytes;
  return {at<const float>(env, args.qkv) + segment.first_row * channels,
          reinterpret_cast<const float*>(page + args.window_offset),
          channels,
          args.taps};
}

struct GdnConv {
  static std::uint32_t items(const KernelEnv& env, const void* args) {
    return row_items(env, args) * static_cast<const GdnConvArgs*>(args)->key_heads;
  }

  // silu of the convolution of `count` channels.
  TROUPE_LANE void convolve(const Inputs& in,
                            const float* taps,
                            std::uint32_t local,
                            std::size_t channel,
                            std::uint32_t count,
                            float* out) {
    for_lanes(count, [&](std::uint32_t i, std::uint32_t n) {
      V16 sum = zero();
      for (std::uint32_t tap = 0; tap < in.taps; ++tap) {
        const V16 x = load_upto(in.row(local, in.taps - 1 - tap) + channel + i, n);
        sum = fma(load_upto(taps + tap * in.channels + channel + i, n), x, sum);
      }
      store_upto(out + i, silu(sum), n);
    });
  }

  // x / sqrt(sum x^2 + 1e-6) * scale
  TROUPE_LANE void normalise(float* x, std::uint32_t width, V16 scale) {
    const V16 norm = sqrt(add(set1(sum_of_squares(x, width)), set1(1e-6F)));
    for_lanes(width, [&](std::uint32_t i, std::uint32_t n) {
      store_upto(x + i, mul(div(load_upto(x + i, n), norm), scale), n);
    });
  }

  TROUPE_LANE void gates(const KernelEnv& env,
                         const GdnConvArgs& args,
                         std::size_t row,
                         std::uint32_t head,
                         std::uint32_t count) {
    const float* b = at<const float>(env, args.ba) + row * 2 * args.value_heads + head;
    const float* a = b + args.value_heads;
    const float* coefficient = at<const float>(env, args.a_coefficient) + head;
    const float* bias = at<const float>(env, args.dt_bias) + head;
    float* decay = at<float>(env, args.decay) + row * args.value_heads + head;
    float* beta = at<float>(env, args.beta) + row * args.value_heads + head;
    for_lanes(count, [&](std::uint32_t i, std::uint32_t n) {
      const V16 step = softplus(add(load_upto(a + i, n), load_upto(bias + i, n)));
      store_upto(decay + i, exp(mul(load_upto(coefficient + i, n), step)), n);
      store_upto(beta + i, sigmoid(load_upto(b + i, n)), n);
    });
  }

  static void run(const KernelEnv& env,
                  const void* raw_args,
                  std::uint32_t begin,
                  std::uint32_t end,
                  std::byte*) {
    const auto& args = *static_cast<const GdnConvArgs*>(raw_args);
    const StepView step = view(env);
    const std::uint32_t group = args.value_heads / args.key_heads;
    const std::size_t key_width = std::size_t{args.key_heads} * args.key_dim;
    const std::size_t value_width = std::size_t{args.value_heads} * args.value_dim;
    const float* taps = at<const float>(env, args.conv);
    const V16 query_scale = div(set1(1.0F), sqrt(set1(static_cast<float>(args.key_dim))));
    for (std::uint32_t item = begin; item < end; ++item) {
      const std::size_t row = item / args.key_heads;
      const std::uint32_t head = item % args.key_heads;
      const StepSegment& segment = step.segments[step.rows[row].segment];
      const auto in = inputs_of(env, args, segment, 2 * key_width + value_width);
      const auto local = static_cast<std::uint32_t>(row - segment.first_row);
      const std::size_t key = std::size_t{head} * args.key_dim;
      const std::size_t value = std::size_t{head} * group * args.value_dim;
      float* q = at<float>(env, args.q) + row * key_width + key;
      float* k = at<float>(env, args.k) + row * key_width + key;
      float* v = at<float>(env, args.v) + row * value_width + value;
      convolve(in, taps, local, key, args.key_dim, q);
      convolve(in, taps, local, key_width + key, args.key_dim, k);
      convolve(in, taps, local, 2 * key_width + value, group * args.value_dim, v);
      normalise(q, args.key_dim, query_scale);
      normalise(k, args.key_dim, set1(1.0F));
      gates(env, args, row, head * group, group);
    }
  }
};

// One value head of one segment, columns from some column on.
struct ScanStrip {
  const float* q;  // first row of the segment; rows are key_stride apart
  const float* k;
  const float* v;      // value_stride apart
  const float* decay;  // head_stride apart
  const float* beta;
  float* out;
  std::size_t key_stride, value_stride, head_stride;
  const float* state;  // of the read page; rows of S are value_dim apart
  std::byte* pages;
  std::size_t page_bytes, state_offset;  // offset of the strip's first element in a page
  const StepRow* rows;
  std::uint32_t row_count, key_dim, value_dim;
};

// Columns of the last, partial vector; full vectors ignore it.
template <bool kTail>
TROUPE_LANE V16 load_columns(const float* from, std::uint32_t n) {
  if constexpr (kTail) {
    return load_n(from, n);
  } else {
    return load(from);
  }
}
template <bool kTail>
TROUPE_LANE void store_columns(float* to, V16 value, std::uint32_t n) {
  if constexpr (kTail) {
    store_n(to, value, n);
  } else {
    store(to, value);
  }
}

// tile = S * decay, m = tile^T k.
template <int NV, bool kTail>
TROUPE_LANE void scan_begin(const ScanStrip& s, std::uint32_t n, float* tile, V16 (&m)[NV]) {
  const V16 decay = set1(s.decay[0]);
  TROUPE_UNROLL
  for (int j = 0; j < NV; ++j) {
    m[j] = zero();
  }
  for (std::uint32_t i = 0; i < s.key_dim; ++i) {
    const V16 key = set1(s.k[i]);
    TROUPE_UNROLL
    for (int j = 0; j < NV; ++j) {
      const V16 value =
          mul(load_columns<kTail>(s.state + std::size_t{i} * s.value_dim + j * 16, n), decay);
      store(tile + (i * NV + static_cast<std::uint32_t>(j)) * 16, value);
      m[j] = fma(value, key, m[j]);
    }
  }
}

// Finishes row t (S += k (x) d; o = S^T q; S to `page` if there is one) and, unless it is the last,
// begins row t+1.
template <int NV, bool kTail, bool kKeep, bool kLast>
TROUPE_LANE void scan_row(const ScanStrip& s,
                          std::uint32_t t,
                          std::uint32_t n,
                          float* tile,
                          float* page,
                          const V16 (&d)[NV],
                          V16 (&o)[NV],
                          V16 (&m)[NV]) {
  const float* k = s.k + t * s.key_stride;
  const float* q = s.q + t * s.key_stride;
  const float* next = kLast ? k : k + s.key_stride;
  const V16 decay = set1(kLast ? 1.0F : s.decay[(t + 1) * s.head_stride]);
  TROUPE_UNROLL
  for (int j = 0; j < NV; ++j) {
    o[j] = zero();
    m[j] = zero();
  }
  for (std::uint32_t i = 0; i < s.key_dim; ++i) {
    const V16 key = set1(k[i]);
    const V16 query = set1(q[i]);
    TROUPE_UNROLL
    for (int j = 0; j < NV; ++j) {
      float* cell = tile + (i * NV + static_cast<std::uint32_t>(j)) * 16;
      const V16 value = fma(key, d[j], load(cell));
      o[j] = fma(value, query, o[j]);
      if constexpr (kKeep) {
        store_columns<kTail>(page + std::size_t{i} * s.value_dim + j * 16, value, n);
      }
      if constexpr (!kLast) {
        const V16 decayed = mul(value, decay);
        store(cell, decayed);
        m[j] = fma(decayed, set1(next[i]), m[j]);
      }
    }
  }
}

template <int NV, bool kTail>
void scan_strip(const ScanStrip& s, std::uint32_t n, float* tile) {
  V16 m[NV];
  scan_begin<NV, kTail>(s, n, tile, m);
  for (std::uint32_t t = 0; t < s.row_count; ++t) {
    const float* v = s.v + t * s.value_stride;
    const V16 beta = set1(s.beta[t * s.head_stride]);
    V16 d[NV];
    V16 o[NV];
    TROUPE_UNROLL
    for (int j = 0; j < NV; ++j) {
      d[j] = mul(beta, sub(load_columns<kTail>(v + j * 16, n), m[j]));
    }
    const bool last = t + 1 == s.row_count;
    const std::uint32_t kept = s.rows[t].write_page;
    float* page = nullptr;
    if (kept != kNoPage) {
      page = reinterpret_cast<float*>(s.pages + kept * s.page_bytes + s.state_offset);
    }
    if (page != nullptr && last) {
      scan_row<NV, kTail, true, true>(s, t, n, tile, page, d, o, m);
    } else if (page != nullptr) {
      scan_row<NV, kTail, true, false>(s, t, n, tile, page, d, o, m);
    } else if (last) {
      scan_row<NV, kTail, false, true>(s, t, n, tile, page, d, o, m);
    } else {
      scan_row<NV, kTail, false, false>(s, t, n, tile, page, d, o, m);
    }
    float* out = s.out + t * s.value_stride;
    TROUPE_UNROLL
    for (int j = 0; j < NV; ++j) {
      store_columns<kTail>(out + j * 16, o[j], n);
    }
  }
}

struct GdnScan {
  static std::uint32_t groups(const GdnScanArgs& args) {
    return (args.value_dim + kScanItem - 1) / kScanItem;
  }

  static std::uint32_t items(const KernelEnv& env, const void* raw_args) {
    const auto& args = *static_cast<const GdnScanArgs*>(raw_args);
    return view(env).segment_count * args.value_heads * groups(args);
  }

  static ScanStrip strip_at(const KernelEnv& env,
                            const GdnScanArgs& args,
                            const StepView& step,
                            const StepSegment& segment,
                            std::uint32_t head,
                            std::uint32_t column) {
    const std::size_t key_stride = std::size_t{args.key_heads} * args.key_dim;
    const std::size_t value_stride = std::size_t{args.value_heads} * args.value_dim;
    const std::size_t row = segment.first_row;
    const std::uint32_t key_head = head / (args.value_heads / args.key_heads);
    const std::size_t keys = row * key_stride + std::size_t{key_head} * args.key_dim;
    const std::size_t values = row * value_stride + std::size_t{head} * args.value_dim + column;
    const std::size_t gate = row * args.value_heads + head;
    const std::size_t state =
        args.state_offset +
        sizeof(float) * (std::size_t{head} * args.key_dim * args.value_dim + column);
    std::byte* pages = arena(env, Arena::kPages);
    return {at<const float>(env, args.q) + keys,
            at<const float>(env, args.k) + keys,
            at<const float>(env, args.v) + values,
            at<const float>(env, args.decay) + gate,
            at<const float>(env, args.beta) + gate,
            at<float>(env, args.out) + values,
            key_stride,
            value_stride,
            args.value_heads,
            reinterpret_cast<const float*>(pages + segment.read_page * args.page_bytes + state),
            pages,
            args.page_bytes,
            state,
            step.rows + row,
            segment.rows,
            args.key_dim,
            args.value_dim};
  }

  // Columns first .. last-1 of one head, in strips as wide as fit.
  static void scan_columns(const KernelEnv& env,
                           const GdnScanArgs& args,
                           const StepView& step,
                           const StepSegment& segment,
                           std::uint32_t head,
                           std::uint32_t first,
                           std::uint32_t last,
                           float* tile) {
    std::uint32_t column = first;
    while (column < last) {
      const ScanStrip strip = strip_at(env, args, step, segment, head, column);
      const std::uint32_t left = last - column;
      if (segment.rows == 1 && left >= kScanOneRow * 16) {
        scan_strip<kScanOneRow, false>(strip, 0, tile);
        column += kScanOneRow * 16;
      } else if (left >= kScanVectors * 16) {
        scan_strip<kScanVectors, false>(strip, 0, tile);
        column += kScanVectors * 16;
      } else if (left >= 16) {
        scan_strip<1, false>(strip, 0, tile);
        column += 16;
      } else {
        scan_strip<1, true>(strip, left, tile);
        column = last;
      }
    }
  }

  // The last taps-1 inputs of `count` channels into the page of every kept row. Ascending, as the
  // page may be the one read.
  static void keep_window(const KernelEnv& env,
                          const GdnScanArgs& args,
                          const StepView& step,
                          const StepSegment& segment,
                          std::size_t channel,
                          std::uint32_t count) {
    const std::size_t channels = 2 * std::size_t{args.key_heads} * args.key_dim +
                                 std::size_t{args.value_heads} * args.value_dim;
    const auto in = inputs_of(env, args, segment, channels);
    for (std::uint32_t local = 0; local < segment.rows; ++local) {
      const std::uint32_t page = step.rows[segment.first_row + local].write_page;
      if (page == kNoPage) {
        continue;
      }
      auto* window = reinterpret_cast<float*>(arena(env, Arena::kPages) + page * args.page_bytes +
                                              args.window_offset);
      for (std::uint32_t i = 0; i + 1 < args.taps; ++i) {
        __builtin_memmove(window + i * channels + channel,
                          in.row(local, args.taps - 2 - i) + channel,
                          count * sizeof(float));
      }
    }
  }

  static void run(const KernelEnv& env,
                  const void* raw_args,
                  std::uint32_t begin,
                  std::uint32_t end,
                  std::byte* scratch) {
    const auto& args = *static_cast<const GdnScanArgs*>(raw_args);
    const StepView step = view(env);
    const std::uint32_t group = args.value_heads / args.key_heads;
    const std::uint32_t key_width = args.key_heads * args.key_dim;
    for (std::uint32_t item = begin; item < end; ++item) {
      const std::uint32_t part = item % groups(args);
      const std::uint32_t head = item / groups(args) % args.value_heads;
      const StepSegment& segment = step.segments[item / groups(args) / args.value_heads];
      const std::uint32_t first = part * kScanItem;
      const std::uint32_t last =
          first + kScanItem < args.value_dim ? first + kScanItem : args.value_dim;
      scan_columns(env, args, step, segment, head, first, last, reinterpret_cast<float*>(scratch));
      if (part != 0) {
        continue;
      }
      keep_window(env,
                  args,
                  step,
                  segment,
                  2 * std::size_t{key_width} + std::size_t{head} * args.value_dim,
                  args.value_dim);
      if (head % group == 0) {
        const std::size_t key = std::size_t{head / group} * args.key_dim;
        keep_window(env, args, step, segment, key, args.key_dim);
        keep_window(env, args, step, segment, key_width + key, args.key_dim);
      }
    }
  }
};

}  // namespace troupe::cpu::TROUPE_ISA
