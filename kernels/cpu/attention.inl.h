// kAttentionPrepare and kAttention for one instruction set and activation type. Contracts: ops.h.
// Included by vector_ops.inl.h.
//
// An item holds the queries of a few consecutive rows times all heads that share a kv head, as
// fp32, and walks the key blocks once. Scores have 16 positions in the lanes and run over D;
// outputs have 16 of D in the lanes and run over positions; both share each load of K or V between
// kAttentionBlock queries. A query's bits do not depend on which others share its loads.
#pragma once

#include "kernels/cpu/norm.inl.h"

namespace troupe::cpu::TROUPE_ISA {

// Queries whose sums fit in registers.
#if defined(TROUPE_VEC_AVX512)
inline constexpr std::uint32_t kAttentionBlock = 12;
#elif defined(TROUPE_VEC_AVX2)
inline constexpr std::uint32_t kAttentionBlock = 6;
#else
inline constexpr std::uint32_t kAttentionBlock = 2;
#endif
inline constexpr std::uint32_t kAttentionQueries =
    64;                                              // rows of a tile * heads of a kv head, about
inline constexpr std::uint32_t kAttentionRows = 16;  // most rows of a tile

template <class Act>
struct AttentionPrepare {
  // Norm and rotation of one head, to fp32.
  TROUPE_LANE void head(const float* x,
                        const float* weight,
                        const float* rope,
                        const AttentionPrepareArgs& args,
                        float* y) {
    const V16 scale = inverse_rms(sum_of_squares(x, args.dim), args.dim, args.eps);
    for_lanes(args.dim, [&](std::uint32_t i, std::uint32_t n) {
      store_upto(y + i, mul(mul(load_upto(x + i, n), scale), load_upto(weight + i, n)), n);
    });
    for_lanes(args.half, [&](std::uint32_t i, std::uint32_t n) {
      const V16 first = load_upto(y + i, n);
      const V16 second = load_upto(y + args.half + i, n);
      const V16 cosine = load_upto(rope + i, n);
      const V16 sine = load_upto(rope + args.half + i, n);
      store_upto(y + i, fma(first, cosine, neg(mul(second, sine))), n);
      store_upto(y + args.half + i, fma(second, cosine, mul(first, sine)), n);
    });
  }

  TROUPE_LANE void to_act(const float* y, std::uint32_t width, Act* out) {
    for_lanes(width, [&](std::uint32_t i, std::uint32_t n) {
      store_upto(out + i, load_upto(y + i, n), n);
    });
  }

  static void run(const KernelEnv& env,
                  const void* raw_args,
                  std::uint32_t begin,
                  std::uint32_t end,
                  std::byte* scratch) {
    const auto& args = *static_cast<const AttentionPrepareArgs*>(raw_args);
    const StepView step = view(env);
    auto* y = reinterpret_cast<float*>(scratch);
    auto* narrow = reinterpret_cast<Act*>(scratch + std::size_t{args.dim} * sizeof(float));
    const float* q_norm = at<const float>(env, args.q_norm);
    const float* k_norm = at<const float>(env, args.k_norm);
    const std::size_t head_elements = std::size_t{kBlockTokens} * args.dim;
    for (std::uint32_t t = begin; t < end; ++t) {
      const float* rope = at<const float>(env, args.rope) + std::size_t{t} * 2 * args.half;
      for (std::uint32_t h = 0; h < args.heads; ++h) {
        const std::size_t offset = (std::size_t{t} * args.heads + h) * args.dim;
        head(at<const float>(env, args.q) + offset, q_norm, rope, args, y);
        to_act(y, args.dim, at<Act>(env, args.q_out) + offset);
      }
      const StepRow& row = step.rows[t];
      const auto position = static_cast<std::uint32_t>(row.position);
      const std::uint32_t slot = position % kBlockTokens;
      const std::size_t table_row = step.segments[row.segment].block_row;
      const std::size_t block = step.blocks[table_row * step.block_width + position / kBlockTokens];
      auto* base = reinterpret_cast<Act*>(arena(env, Arena::kKv) + args.kv_offset +
                                          block * args.block_bytes);
      for (std::uint32_t h = 0; h < args.kv_heads; ++h) {
        const std::size_t offset = (std::size_t{t} * args.kv_heads + h) * args.dim;
        head(at<const float>(env, args.k) + offset, k_norm, rope, args, y);
        to_act(y, args.dim, narrow);
        Act* keys =
            base + h * head_elements + std::size_t{slot / 16} * args.dim * 16 + slot % 16 * 2;
        for (std::uint32_t i = 0; i < args.dim; i += 2) {
          __builtin_memcpy(keys + std::size_t{i} * 16, narrow + i, 2 * sizeof(Act));
        }
        Act* values = base + (args.kv_heads + h) * head_elements + std::size_t{slot} * args.dim;
        to_act(at<const float>(env, args.v) + offset, args.dim, values);
      }
    }
  }
};

// Scores of MB queries against 16 positions: q [MB][q_stride], keys = one panel, out [MB][64].
template <class Act, int MB>
void score_block(const float* q,
                 std::size_t q_stride,
                 const Act* keys,
                 std::uint32_t dim,
                 V16 scale,
                 float* out) {
  V16 sum[MB];
  TROUPE_UNROLL
  for (int m = 0; m < MB; ++m) {
    sum[m] = zero();
  }
  for (std::uint32_t i = 0; i < dim; i += 2) {
    V16 even;
    V16 odd;
    load_pairs(keys + std::size_t{i} * 16, even, odd);
    TROUPE_UNROLL
    for (int m = 0; m < MB; ++m) {
      sum[m] = fma(set1(q[static_cast<std::size_t>(m) * q_stride + i]), even, sum[m]);
    }
    TROUPE_UNROLL
    for (int m = 0; m < MB; ++m) {
      sum[m] = fma(set1(q[static_cast<std::size_t>(m) * q_stride + i + 1]), odd, sum[m]);
    }
  }
  TROUPE_UNROLL
  for (int m = 0; m < MB; ++m) {
    store(out + m * static_cast<int>(kBlockTokens), mul(sum[m], scale));
  }
}

// o = o * correction (0 when `fresh`) + sum over `count` positions of p * v, for MB queries and 16
// (n) of D.
template <class Act, int MB, bool kTail>
void value_block(const float* p,
                 const float* correction,
                 bool fresh,
                 const Act* values,
                 std::uint32_t count,
                 std::uint32_t dim,
                 std::uint32_t n,
                 float* o,
                 std::size_t o_stride) {
  V16 sum[MB];
  TROUPE_UNROLL
  for (int m = 0; m < MB; ++m) {
    sum[m] =
        fresh ? zero() : mul(load(o + static_cast<std::size_t>(m) * o_stride), set1(correction[m]));
  }
  for (std::uint32_t j = 0; j < count; ++j) {
    V16 value;
    if constexpr (kTail) {
      value = load_n(values + std::size_t{j} * dim, n);
    } else {
      value = load(values + std::size_t{j} * dim);
    }
    TROUPE_UNROLL
    for (int m = 0; m < MB; ++m) {
      sum[m] = fma(set1(p[static_cast<std::size_t>(m) * kBlockTokens + j]), value, sum[m]);
    }
  }
  TROUPE_UNROLL
  for (int m = 0; m < MB; ++m) {
    store(o + static_cast<std::size_t>(m) * o_stride, sum[m]);
  }
}

// Calls body<MB>(first query) so that begin .. end-1 are covered in blocks of nearly equal size.
template <std::uint32_t kSize, class Body>
TROUPE_LANE void call_block(std::uint32_t size, std::uint32_t first, Body body) {
  if constexpr (kSize > 0) {
    if (size == kSize) {
      body.template operator()<static_cast<int>(kSize)>(first);
    } else {
      call_block<kSize - 1>(size, first, body);
    }
  }
}
template <class Body>
TROUPE_LANE void for_blocks(std::uint32_t begin, std::uint32_t end, Body body) {
  std::uint32_t blocks = (end - begin + kAttentionBlock - 1) / kAttentionBlock;
  for (std::uint32_t first = begin; first < end; --blocks) {
    const std::uint32_t size = (end - first + blocks - 1) / blocks;
    call_block<kAttentionBlock>(size, first, body);
    first += size;
  }
}

// The queries of one item and what is known of their outputs. Query m = row of the tile * group +
// head of the group.
struct AttentionTile {
  float* q;         // [queries][stride]
  float* scores;    // [queries][64], then their exponentials
  float* span_o;    // [queries][stride]: of the current span
  float* total_o;   // [queries][stride]: of the spans before
  float* span_max;  // [queries] each
  float* span_sum;
  float* total_max;
  float* total_sum;
  float* correction;
  std::size_t stride;  // D rounded up to 16
  std::uint32_t dim;
  std::uint32_t group;
  std::uint32_t rows;
  std::uint32_t position;  // of the first row
};

TROUPE_LANE AttentionTile tile_in(std::byte* scratch,
                                  const AttentionArgs& args,
                                  std::uint32_t group,
                                  std::uint32_t rows) {
  const std::size_t stride = (std::size_t{args.dim} + 15) / 16 * 16;
  const std::size_t queries = std::size_t{group} * rows;
  auto* memory = reinterpret_cast<float*>(scratch);
  AttentionTile tile{};
  tile.q = memory;
  tile.span_o = tile.q + queries * stride;
  tile.total_o = tile.span_o + queries * stride;
  tile.scores = tile.total_o + queries * stride;
  tile.span_max = tile.scores + queries * kBlockTokens;
  tile.span_sum = tile.span_max + queries;
  tile.total_max = tile.span_sum + queries;
  tile.total_sum = tile.total_max + queries;
  tile.correction = tile.total_sum + queries;
  tile.stride = stride;
  tile.dim = args.dim;
  tile.group = group;
  tile.rows = rows;
  return tile;
}

// One step of the online softmax for one query: `count` scores become exponentials against the
// span's maximum so far.
TROUPE_LANE void soften(const AttentionTile& tile,
                        std::uint32_t query,
                        std::uint32_t count,
                        bool fresh) {
  float* scores = tile.scores + std::size_t{query} * kBlockTokens;
  const V16 nothing = set1(-__builtin_inff());
  V16 highest = nothing;
  for (std::uint32_t j = 0; j < count; j += 16) {
    V16 score = load(scores + j);
    if (count - j < 16) {
      score = select(first_lanes(count - j), score, nothing);
      store(scores + j, score);
    }
    highest = max(highest, score);
  }
  float maximum = reduce_max(highest);
  if (!fresh) {
    const float before = tile.span_max[query];
    maximum = before > maximum ? before : maximum;
    tile.correction[query] = exp(before - maximum);
  }
  V16 sum = zero();
  for (std::uint32_t j = 0; j < count; j += 16) {
    const V16 p = exp(sub(load(scores + j), set1(maximum)));
    store(scores + j, p);
    sum = add(sum, p);
  }
  const float block_sum = reduce_add(sum);
  tile.span_sum[query] =
      fresh ? block_sum : __builtin_fmaf(tile.span_sum[query], tile.correction[query], block_sum);
  tile.span_max[query] = maximum;
}

// Adds a finished span to the total; the first one is the total.
TROUPE_LANE void merge_span(const AttentionTile& tile, std::uint32_t query, bool first) {
  float* total = tile.total_o + query * tile.stride;
  const float* span = tile.span_o + query * tile.stride;
  if (first) {
    tile.total_max[query] = tile.span_max[query];
    tile.total_sum[query] = tile.span_sum[query];
    for_lanes(static_cast<std::uint32_t>(tile.stride),
              [&](std::uint32_t i, std::uint32_t) { store(total + i, load(span + i)); });
    return;
  }
  const float before = tile.total_max[query];
  const float now = tile.span_max[query];
  const float maximum = before > now ? before : now;
  const float old_scale = exp(before - maximum);
  const float new_scale = exp(now - maximum);
  tile.total_max[query] = maximum;
  tile.total_sum[query] =
      __builtin_fmaf(tile.total_sum[query], old_scale, tile.span_sum[query] * new_scale);
  for_lanes(static_cast<std::uint32_t>(tile.stride), [&](std::uint32_t i, std::uint32_t) {
    store(total + i, fma(load(total + i), set1(old_scale), mul(load(span + i), set1(new_scale))));
  });
}

template <class Act>
struct Attention {
  static std::uint32_t group(const AttentionArgs& args) { return args.heads / args.kv_heads; }
  static std::uint32_t tile_rows(const AttentionArgs& args) {
    const std::uint32_t rows = kAttentionQueries / group(args);
    return rows == 0 ? 1 : rows < kAttentionRows ? rows : kAttentionRows;
  }

  static std::uint32_t items(const KernelEnv& env, const void* raw_args) {
    const auto& args = *static_cast<const AttentionArgs*>(raw_args);
    const StepView step = view(env);
    const std::uint32_t rows = tile_rows(args);
    std::uint32_t tiles = 0;
    for (std::uint32_t s = 0; s < step.segment_count; ++s) {
      tiles += (step.segments[s].rows + rows - 1) / rows;
    }
    return tiles * args.kv_heads;
  }

  static void load_queries(const AttentionTile& tile, const Act* q, std::size_t row_stride) {
    for (std::uint32_t query = 0; query < tile.rows * tile.group; ++query) {
      const Act* from =
          q + query / tile.group * row_stride + std::size_t{query % tile.group} * tile.dim;
      float* to = tile.q + query * tile.stride;
      for_lanes(tile.dim,
                [&](std::uint32_t i, std::uint32_t n) { store(to + i, load_upto(from + i, n)); });
    }
  }

  // Positions of block b that row r of the tile sees.
  TROUPE_LANE std::uint32_t seen(const AttentionTile& tile, std::uint32_t r, std::uint32_t b) {
    const std::uint32_t end = tile.position + r + 1;
    const std::uint32_t start = b * kBlockTokens;
    return end <= start ? 0 : end - start < kBlockTokens ? end - start : kBlockTokens;
  }

  static void add_values(const AttentionTile& tile,
                         std::uint32_t begin,
                         std::uint32_t end,
                         const Act* values,
                         std::uint32_t count,
                         bool fresh) {
    std::uint32_t i = 0;
    for (; i + 16 <= tile.dim; i += 16) {
      for_blocks(begin, end, [&]<int MB>(std::uint32_t m) {
        value_block<Act, MB, false>(tile.scores + std::size_t{m} * kBlockTokens,
                                    tile.correction + m,
                                    fresh,
                                    values + i,
                                    count,
                                    tile.dim,
                                    16,
                                    tile.span_o + m * tile.stride + i,
                                    tile.stride);
      });
    }
    if (i < tile.dim) {
      for_blocks(begin, end, [&]<int MB>(std::uint32_t m) {
        value_block<Act, MB, true>(tile.scores + std::size_t{m} * kBlockTokens,
                                   tile.correction + m,
                                   fresh,
                                   values + i,
                                   count,
                                   tile.dim,
                                   tile.dim - i,
                                   tile.span_o + m * tile.stride + i,
                                   tile.stride);
      });
    }
  }

  static void visit_block(
      const AttentionTile& tile, std::uint32_t b, const Act* keys, const Act* values, V16 scale) {
    std::uint32_t first = 0;  // rows before it see nothing of the block
    while (seen(tile, first, b) == 0) {
      ++first;
    }
    const std::uint32_t queries = tile.rows * tile.group;
    const std::uint32_t most = seen(tile, tile.rows - 1, b);
    for (std::uint32_t j = 0; j < most; j += 16) {
      const Act* panel = keys + std::size_t{j} * tile.dim;
      for_blocks(first * tile.group, queries, [&]<int MB>(std::uint32_t m) {
        score_block<Act, MB>(tile.q + m * tile.stride,
                             tile.stride,
                             panel,
                             tile.dim,
                             scale,
                             tile.scores + std::size_t{m} * kBlockTokens + j);
      });
    }
    const bool fresh = b % (kSpanTokens / kBlockTokens) == 0;
    for (std::uint32_t query = first * tile.group; query < queries; ++query) {
      soften(tile, query, seen(tile, query / tile.group, b), fresh);
    }
    // Rows that see part of the block go alone: what lies beyond their position must not even be
    // multiplied by zero.
    std::uint32_t whole = first;
    while (whole < tile.rows && seen(tile, whole, b) < kBlockTokens) {
      add_values(
          tile, whole * tile.group, (whole + 1) * tile.group, values, seen(tile, whole, b), fresh);
      ++whole;
    }
    if (whole < tile.rows) {
      add_values(tile, whole * tile.group, queries, values, kBlockTokens, fresh);
    }
    const bool span_ends = (b + 1) % (kSpanTokens / kBlockTokens) == 0;
    for (std::uint32_t query = first * tile.group; query < queries; ++query) {
      const std::uint32_t position = tile.position + query / tile.group;
      if (span_ends || position / kBlockTokens == b) {
        merge_span(tile, query, b < kSpanTokens / kBlockTokens);
      }
    }
  }

  template <class Out>
  static void write(const AttentionTile& tile,
                    const float* gate,
                    Out* out,
                    std::size_t row_stride) {
    for (std::uint32_t query = 0; query < tile.rows * tile.group; ++query) {
      const std::size_t offset =
          query / tile.group * row_stride + std::size_t{query % tile.group} * tile.dim;
      const float* total = tile.total_o + query * tile.stride;
      const V16 sum = set1(tile.total_sum[query]);
      for_lanes(tile.dim, [&](std::uint32_t i, std::uint32_t n) {
        V16 value = div(load(total + i), sum);
        if (gate != nullptr) {
          value = mul(value, sigmoid(load_upto(gate + offset + i, n)));
        }
        store_upto(out + offset + i, value, n);
      });
    }
  }

  static void run_tile(const KernelEnv& env,
                       const AttentionArgs& args,
                       const StepView& step,
                       const StepSegment& segment,
                       std::uint32_t row,
                       std::uint32_t kv_head,
                       std::byte* scratch) {
    const std::uint32_t left = segment.first_row + segment.rows - row;
    AttentionTile tile =
        tile_in(scratch, args, group(args), left < tile_rows(args) ? left : tile_rows(args));
    tile.position = static_cast<std::uint32_t>(step.rows[row].position);
    const std::size_t row_stride = std::size_t{args.heads} * args.dim;
    const std::size_t offset = row * row_stride + std::size_t{kv_head} * tile.group * args.dim;
    load_queries(tile, at<const Act>(env, args.q) + offset, row_stride);
    const V16 scale = div(set1(1.0F), sqrt(set1(static_cast<float>(args.dim))));
    const std::size_t head_elements = std::size_t{kBlockTokens} * args.dim;
    const std::uint32_t* blocks = step.blocks + std::size_t{segment.block_row} * step.block_width;
    const std::byte* layer = arena(env, Arena::kKv) + args.kv_offset;
    for (std::uint32_t b = 0; b <= (tile.position + tile.rows - 1) / kBlockTokens; ++b) {
      const auto* base = reinterpret_cast<const Act*>(layer + blocks[b] * args.block_bytes);
      visit_block(tile,
                  b,
                  base + kv_head * head_elements,
                  base + (args.kv_heads + kv_head) * head_elements,
                  scale);
    }
    const float* gate = is_empty(args.gate) ? nullptr : at<const float>(env, args.gate) + offset;
    if (args.out_f32) {
      write(tile, gate, at<float>(env, args.out) + offset, row_stride);
    } else {
      write(tile, gate, at<Act>(env, args.out) + offset, row_stride);
    }
  }

  static void run(const KernelEnv& env,
                  const void* raw_args,
                  std::uint32_t begin,
                  std::uint32_t end,
                  std::byte* scratch) {
    const auto& args = *static_cast<const AttentionArgs*>(raw_args);
    const StepView step = view(env);
    const std::uint32_t rows = tile_rows(args);
    std::uint32_t segment = 0;
    std::uint32_t first_tile = 0;  // of the segment
    for (std::uint32_t item = begin; item < end; ++item) {
      const std::uint32_t wanted = item / args.kv_heads;
      while (wanted - first_tile >= (step.segments[segment].rows + rows - 1) / rows) {
        first_tile += (step.segments[segment].rows + rows - 1) / rows;
        ++segment;
      }
      const StepSegment& of = step.segments[segment];
      run_tile(env,
               args,
               step,
               of,
               of.first_row + (wanted - first_tile) * rows,
               item % args.kv_heads,
               scratch);
    }
  }
};

}  // namespace troupe::cpu::TROUPE_ISA
