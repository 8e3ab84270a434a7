// Attention over paged keys: preparation of queries and keys, and the softmax in spans.
#include "tests/kernels/rig.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace troupe::testing {
namespace {

class AttentionKernels : public OnEverySet {};
TROUPE_ON_EVERY_SET(AttentionKernels);

// Digits of the model page, which need fp32.
class AttentionPage : public OnEverySet {};
TROUPE_ON_FP32_SETS(AttentionPage);

struct Heads {
  std::uint32_t heads = 4, kv_heads = 2, dim = 32;

  [[nodiscard]] std::size_t q_width() const { return std::size_t{heads} * dim; }
  [[nodiscard]] std::size_t kv_width() const { return std::size_t{kv_heads} * dim; }
  [[nodiscard]] std::size_t block_bytes(Activation act) const {
    return 2 * kv_width() * kBlockTokens * size_of(act);
  }
};

// The block that holds block b of sequence s: shuffled, all different.
constexpr std::uint32_t kTableWidth = 12;
std::uint32_t block_of(std::uint32_t sequence, std::uint32_t b) {
  return (sequence * kTableWidth + b) * 7 % (4 * kTableWidth);
}

// A KV arena with two layers' worth of blocks (the second is used), filled with NaN. 4 *
// kTableWidth is no multiple of 7.
class Cache final {
 public:
  Cache(Rig& rig, const Heads& heads)
      : rig_(rig), heads_(heads), block_bytes_(heads.block_bytes(rig.act())) {
    base_ = rig.room(2 * blocks() * block_bytes_, Arena::kKv);
    for (std::uint32_t sequence = 0; sequence < 4; ++sequence) {
      for (std::uint32_t b = 0; b < kTableWidth; ++b) {
        rig.blocks.push_back(block_of(sequence, b));
      }
    }
    rig.block_width = kTableWidth;
  }

  [[nodiscard]] std::uint64_t offset() const { return base_.offset + blocks() * block_bytes_; }
  [[nodiscard]] std::uint64_t block_bytes() const { return block_bytes_; }

  [[nodiscard]] std::size_t key_index(std::uint32_t head,
                                      std::uint32_t slot,
                                      std::uint32_t i) const {
    return std::size_t{head} * kBlockTokens * heads_.dim +
           std::size_t{slot / 16} * 16 * heads_.dim + i / 2 * 32 + slot % 16 * 2 + i % 2;
  }
  [[nodiscard]] std::size_t value_index(std::uint32_t head,
                                        std::uint32_t slot,
                                        std::uint32_t i) const {
    return (std::size_t{heads_.kv_heads + head} * kBlockTokens + slot) * heads_.dim + i;
  }
  [[nodiscard]] Ref block(std::uint32_t sequence, std::uint32_t position) const {
    return {Arena::kKv, offset() + block_of(sequence, position / kBlockTokens) * block_bytes_};
  }
  // k, v: [kv_heads][dim] of one position.
  void fill(std::uint32_t sequence, std::uint32_t position, const float* k, const float* v) {
    for (std::uint32_t head = 0; head < heads_.kv_heads; ++head) {
      for (std::uint32_t i = 0; i < heads_.dim; ++i) {
        rig_.set_act(block(sequence, position),
                     key_index(head, position % kBlockTokens, i),
                     k[head * heads_.dim + i]);
        rig_.set_act(block(sequence, position),
                     value_index(head, position % kBlockTokens, i),
                     v[head * heads_.dim + i]);
      }
    }
  }

 private:
  static std::size_t blocks() { return std::size_t{4} * kTableWidth; }

  Rig& rig_;
  Heads heads_;
  std::size_t block_bytes_;
  Ref base_;
};

// Keys, values and queries of a sequence at a position, always the same ones.
std::vector<float> key_at(const Heads& heads, std::uint32_t sequence, std::uint32_t position) {
  return noise(1000 + sequence * 5000 + position, heads.kv_width(), 2);
}
std::vector<float> value_at(const Heads& heads, std::uint32_t sequence, std::uint32_t position) {
  return noise(100000 + sequence * 5000 + position, heads.kv_width());
}
std::vector<float> query_at(const Heads& heads, std::uint32_t sequence, std::uint32_t position) {
  return noise(200000 + sequence * 5000 + position, heads.q_width(), 2);
}
std::vector<float> gate_at(const Heads& heads, std::uint32_t sequence, std::uint32_t position) {
  return noise(300000 + sequence * 5000 + position, heads.q_width(), 4);
}

struct Segment {
  std::uint32_t sequence, position, rows;
};

enum class Ending { kGate, kPlainF32, kPlainAct };

std::vector<float> attend(const KernelSet& set,
                          Activation act,
                          const Heads& heads,
                          const std::vector<Segment>& segments,
                          Ending ending = Ending::kGate,
                          Order order = Order::kAtOnce) {
  Rig rig(act);
  Cache cache(rig, heads);
  std::vector<float> q;
  std::vector<float> gate;
  for (const Segment& segment : segments) {
    rig.add_segment(segment.rows,
                    static_cast<std::int32_t>(segment.position),
                    kZeroPage,
                    kNoPage,
                    segment.sequence);
    for (std::uint32_t p = 0; p < segment.position + segment.rows; ++p) {
      cache.fill(segment.sequence,
                 p,
                 key_at(heads, segment.sequence, p).data(),
                 value_at(heads, segment.sequence, p).data());
      if (p >= segment.position) {
        const std::vector<float> query = query_at(heads, segment.sequence, p);
        const std::vector<float> opening = gate_at(heads, segment.sequence, p);
        q.insert(q.end(), query.begin(), query.end());
        gate.insert(gate.end(), opening.begin(), opening.end());
      }
    }
  }
  const bool f32 = ending == Ending::kPlainF32;
  AttentionArgs args{.q = rig.put_act(q),
                     .gate = {},
                     .out = rig.room(q.size() * 4),
                     .out_f32 = f32,
                     .heads = heads.heads,
                     .kv_heads = heads.kv_heads,
                     .dim = heads.dim,
                     .kv_offset = cache.offset(),
                     .block_bytes = cache.block_bytes()};
  if (ending == Ending::kGate) {
    args.gate = rig.put(gate);
  }
  rig.run(set, KernelId::kAttention, &args, order);
  return f32 ? rig.get<float>(args.out, q.size()) : rig.get_act(args.out, q.size());
}

std::vector<double> attention_reference(const Heads& heads, const Segment& segment, bool gated) {
  std::vector<double> out;
  for (std::uint32_t p = segment.position; p < segment.position + segment.rows; ++p) {
    const std::vector<float> q = query_at(heads, segment.sequence, p);
    const std::vector<float> gate = gate_at(heads, segment.sequence, p);
    std::vector<double> sums(heads.q_width());
    std::vector<double> totals(heads.heads);
    for (std::uint32_t s = 0; s <= p; ++s) {
      const std::vector<float> k = key_at(heads, segment.sequence, s);
      const std::vector<float> v = value_at(heads, segment.sequence, s);
      for (std::uint32_t h = 0; h < heads.heads; ++h) {
        const std::size_t kv = std::size_t{h / (heads.heads / heads.kv_heads)} * heads.dim;
        double score = 0;
        for (std::size_t i = 0; i < heads.dim; ++i) {
          score += static_cast<double>(q[h * heads.dim + i]) * static_cast<double>(k[kv + i]);
        }
        const double weight = std::exp(score / std::sqrt(heads.dim));
        totals[h] += weight;
        for (std::size_t i = 0; i < heads.dim; ++i) {
          sums[h * heads.dim + i] += weight * static_cast<double>(v[kv + i]);
        }
      }
    }
    for (std::size_t i = 0; i < sums.size(); ++i) {
      out.push_back(sums[i] / totals[i / heads.dim] *
                    (gated ? sigmoid(static_cast<double>(gate[i])) : 1));
    }
  }
  return out;
}

TEST_P(AttentionKernels, EqualsThePlainSoftmaxAcrossBlocksAndSpans) {
  const Heads heads;
  for (const std::uint32_t position :
       {0U, 1U, 15U, 16U, 62U, 63U, 64U, 127U, 128U, 255U, 256U, 300U, 511U, 512U, 600U}) {
    const Segment segment{1, position, 1};
    expect_near(
        attend(set(), act(), heads, {segment}), attention_reference(heads, segment, true), act());
  }
}

TEST_P(AttentionKernels, EqualsThePlainSoftmaxForChunksOfRows) {
  const Heads heads;
  for (const Segment& segment :
       {Segment{0, 0, 70}, Segment{2, 50, 30}, Segment{3, 240, 40}, Segment{1, 255, 3}}) {
    expect_near(
        attend(set(), act(), heads, {segment}), attention_reference(heads, segment, true), act());
  }
}

TEST_P(AttentionKernels, IsRightForOtherShapesAndEndings) {
  for (const Heads& heads : {Heads{3, 3, 10}, Heads{16, 2, 48}, Heads{7, 1, 2}, Heads{70, 1, 24}}) {
    const Segment segment{1, 61, 6};
    expect_near(attend(set(), act(), heads, {segment}, Ending::kPlainF32),
                attention_reference(heads, segment, false),
                Activation::kF32);
    expect_near(attend(set(), act(), heads, {segment}, Ending::kPlainAct),
                attention_reference(heads, segment, false),
                act());
    expect_near(attend(set(), act(), heads, {segment}, Ending::kGate),
                attention_reference(heads, segment, true),
                act());
  }
}

TEST_P(AttentionKernels, GivesTheSameBitsOnEverySetInAnyOrder) {
  for (const Heads& heads : {Heads{4, 2, 32}, Heads{16, 2, 40}}) {
    expect_one_truth([&heads](const KernelSet& which, Order order) {
      return attend(
          which, act(), heads, {{0, 250, 40}, {1, 3, 1}, {2, 310, 2}}, Ending::kGate, order);
    });
  }
}

TEST_P(AttentionKernels, GivesARowTheSameBitsAloneAndInAnyCompany) {
  const Heads heads{16, 2, 32};
  const std::vector<float> together = attend(set(), act(), heads, {{3, 100, 2}, {1, 240, 40}});
  std::vector<float> alone = attend(set(), act(), heads, {{3, 100, 2}});
  for (std::uint32_t p = 240; p < 280;) {
    const std::uint32_t rows = p % 3 == 0 ? 3 : 1;
    const std::vector<float> some = attend(set(), act(), heads, {{1, p, std::min(rows, 280 - p)}});
    alone.insert(alone.end(), some.begin(), some.end());
    p += rows;
  }

  EXPECT_EQ(bits_of(together), bits_of(alone));
}

TEST_P(AttentionKernels, IgnoresWhatLiesBeyondARowsPosition) {
  const Heads heads;
  // Rows 60 .. 62 of a block whose last slot was never written: it holds NaN.
  const Segment segment{0, 60, 3};
  expect_near(
      attend(set(), act(), heads, {segment}), attention_reference(heads, segment, true), act());
}

struct Prepared {
  std::vector<float> q, k, v;
};

Prepared prepare(const KernelSet& set,
                 Activation act,
                 const Heads& heads,
                 std::uint32_t half,
                 std::uint32_t position,
                 std::uint32_t rows,
                 Order order = Order::kAtOnce) {
  Rig rig(act);
  Cache cache(rig, heads);
  rig.add_segment(rows, static_cast<std::int32_t>(position), kZeroPage, kNoPage, 2);
  AttentionPrepareArgs args{.q = rig.put(noise(1, rows * heads.q_width(), 3)),
                            .k = rig.put(noise(2, rows * heads.kv_width(), 3)),
                            .v = rig.put(noise(3, rows * heads.kv_width(), 3)),
                            .q_norm = rig.put(noise(4, heads.dim)),
                            .k_norm = rig.put(noise(5, heads.dim)),
                            .rope = rig.put(noise(6, std::size_t{rows} * 2 * half)),
                            .q_out = rig.act_room(rows * heads.q_width()),
                            .heads = heads.heads,
                            .kv_heads = heads.kv_heads,
                            .dim = heads.dim,
                            .half = half,
                            .kv_offset = cache.offset(),
                            .block_bytes = cache.block_bytes()};
  rig.run(set, KernelId::kAttentionPrepare, &args, order);
  Prepared result{rig.get_act(args.q_out, rows * heads.q_width()), {}, {}};
  for (std::uint32_t t = 0; t < rows; ++t) {
    const Ref block = cache.block(2, position + t);
    const std::vector<float> all = rig.get_act(block, cache.block_bytes() / size_of(act));
    for (std::uint32_t i = 0; i < heads.kv_width(); ++i) {
      result.k.push_back(
          all[cache.key_index(i / heads.dim, (position + t) % kBlockTokens, i % heads.dim)]);
      result.v.push_back(
          all[cache.value_index(i / heads.dim, (position + t) % kBlockTokens, i % heads.dim)]);
    }
  }
  return result;
}

std::vector<double> prepared_reference(const std::vector<float>& x,
                                       const std::vector<float>& weight,
                                       const std::vector<float>& rope,
                                       std::size_t heads,
                                       std::uint32_t dim,
                                       std::uint32_t half) {
  std::vector<double> out;
  for (std::size_t head = 0; head < x.size() / dim; ++head) {
    double squares = 0;
    for (std::size_t i = 0; i < dim; ++i) {
      squares += static_cast<double>(x[head * dim + i]) * static_cast<double>(x[head * dim + i]);
    }
    std::vector<double> y(dim);
    for (std::size_t i = 0; i < dim; ++i) {
      y[i] = static_cast<double>(x[head * dim + i]) / std::sqrt(squares / dim + 1e-6) *
             static_cast<double>(weight[i]);
    }
    const float* turn = rope.data() + head / heads * 2 * half;
    for (std::size_t i = 0; i < half; ++i) {
      const double first = y[i];
      const double cosine = static_cast<double>(turn[i]);
      const double sine = static_cast<double>(turn[half + i]);
      y[i] = first * cosine - y[half + i] * sine;
      y[half + i] = y[half + i] * cosine + first * sine;
    }
    out.insert(out.end(), y.begin(), y.end());
  }
  return out;
}

TEST_P(AttentionKernels, PrepareNormsRotatesAndStores) {
  for (const auto& [heads, half] :
       {std::pair{Heads{4, 2, 32}, 4U}, {Heads{3, 1, 70}, 17U}, {Heads{2, 2, 64}, 32U}}) {
    const std::vector<float> rope = noise(6, std::size_t{5} * 2 * half);
    const Prepared got = prepare(set(), act(), heads, half, 62, 5);

    expect_near(got.q,
                prepared_reference(noise(1, 5 * heads.q_width(), 3),
                                   noise(4, heads.dim),
                                   rope,
                                   heads.heads,
                                   heads.dim,
                                   half),
                act());
    expect_near(got.k,
                prepared_reference(noise(2, 5 * heads.kv_width(), 3),
                                   noise(5, heads.dim),
                                   rope,
                                   heads.kv_heads,
                                   heads.dim,
                                   half),
                act());
    EXPECT_EQ(got.v, noise(3, 5 * heads.kv_width(), 3));
    expect_one_truth([&heads = heads, &half = half](const KernelSet& which, Order order) {
      const Prepared all = prepare(which, act(), heads, half, 62, 5, order);
      std::vector<float> joined = all.q;
      joined.insert(joined.end(), all.k.begin(), all.k.end());
      joined.insert(joined.end(), all.v.begin(), all.v.end());
      return joined;
    });
  }
}

TEST_P(AttentionPage, RotationEqualsTheModelPage) {  // 3.5.1
  Rig rig(act());
  const Heads heads{1, 1, 64};
  Cache cache(rig, heads);
  rig.add_segment(1, 1000);
  rig.blocks.assign(20, 0);
  rig.block_width = 20;
  std::vector<float> frequency;
  std::vector<float> x;
  double squares = 0;
  for (int i = 0; i < 64; ++i) {
    if (i < 32) {
      frequency.push_back(static_cast<float>(std::pow(1e7, -2.0 * i / 64)));
    }
    x.push_back(static_cast<float>(i + 1) / 64);
    squares += static_cast<double>(x.back()) * static_cast<double>(x.back());
  }
  const RopeTableArgs table{rig.put(frequency), rig.room(64 * 4), 32, 1};
  // A weight that undoes the norm.
  const Ref weight =
      rig.put(std::vector<float>(64, static_cast<float>(std::sqrt(squares / 64 + 1e-6))));
  const AttentionPrepareArgs args{.q = rig.put(x),
                                  .k = rig.put(x),
                                  .v = rig.put(x),
                                  .q_norm = weight,
                                  .k_norm = weight,
                                  .rope = table.out,
                                  .q_out = rig.act_room(64),
                                  .heads = 1,
                                  .kv_heads = 1,
                                  .dim = 64,
                                  .half = 32,
                                  .kv_offset = cache.offset(),
                                  .block_bytes = cache.block_bytes()};

  rig.run(set(), KernelId::kRopeTable, &table);
  rig.run(set(), KernelId::kAttentionPrepare, &args);

  const std::vector<float> y = rig.get_act(args.q_out, 64);
  expect_near({y[0], y[1], y[16], y[31], y[32], y[33], y[48], y[63]},
              {-0.417573, -0.462103, 0.014357, 0.499835, 0.302897, 0.263939, 0.810267, 1.000083},
              act(),
              2e-6);
}

}  // namespace
}  // namespace troupe::testing
