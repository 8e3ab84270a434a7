// Row-wise kernels: embedding, rotary table, add, norms, gates. Values of MODEL.md carry the
// section.
#include "tests/kernels/rig.h"

#include <cmath>
#include <vector>

namespace troupe::testing {
namespace {

class RowKernels : public OnEverySet {};
TROUPE_ON_EVERY_SET(RowKernels);

// Digits of the model page, which need fp32.
class NormPage : public OnEverySet {};
TROUPE_ON_FP32_SETS(NormPage);

std::vector<float> operator+(std::vector<float> a, const std::vector<float>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

TEST_P(NormPage, NormEqualsTheModelPage) {  // 3.2
  Rig rig(Activation::kF32);
  rig.add_segment(1);
  const NormArgs args{.x = rig.put<float>({1, -2, 3, .5F}),
                      .delta = {},
                      .weight = rig.put<float>({1.1F, .7F, 1, 2}),
                      .out = rig.act_room(4),
                      .width = 4};

  rig.run(set(), KernelId::kNorm, &args);

  expect_near(rig.get_act(args.out, 4), {0.582794, -0.741738, 1.589439, 0.529813}, act(), 1e-6);
}

struct NormCase {
  std::uint32_t rows, width;
  bool delta, sampled;
};

// The normed rows, then the sums, both fp32.
std::vector<float> run_norm(const KernelSet& set,
                            Activation act,
                            Order order,
                            const NormCase& shape) {
  Rig rig(act);
  rig.add_segment(shape.rows);
  rig.sampled = {{1, {}}, {3, {}}};
  const std::size_t count = std::size_t{shape.rows} * shape.width;
  NormArgs args{.x = rig.put(noise(1, count, 3)),
                .delta = {},
                .weight = rig.put(noise(3, shape.width)),
                .out = rig.act_room(count),
                .width = shape.width};
  if (shape.delta) {
    args.delta = rig.put(noise(2, count, 2));
  }
  args.rows = shape.sampled ? RowSet::kSampled : RowSet::kAll;
  args.out_f32 = rig.room(count * 4);
  rig.run(set, KernelId::kNorm, &args, order);
  const std::size_t written = (shape.sampled ? 2 : shape.rows) * std::size_t{shape.width};
  const std::vector<float> exact = rig.get<float>(args.out_f32, written);
  const std::vector<float> out = rig.get_act(args.out, written);
  for (std::size_t i = 0; i < written; ++i) {
    EXPECT_EQ(out[i], act == Activation::kF32 ? exact[i] : bf16_to_f32(f32_to_bf16(exact[i])));
  }
  return exact + rig.get<float>(args.x, count);
}

std::vector<double> norm_reference(const NormCase& shape) {
  std::vector<float> x = noise(1, std::size_t{shape.rows} * shape.width, 3);
  const std::vector<float> delta = noise(2, x.size(), 2);
  const std::vector<float> weight = noise(3, shape.width);
  std::vector<double> out;
  for (std::uint32_t row = 0; row < shape.rows; ++row) {
    if (shape.sampled && row != 1 && row != 3) {
      continue;
    }
    double squares = 0;
    for (std::uint32_t i = 0; i < shape.width; ++i) {
      float& value = x[std::size_t{row} * shape.width + i];
      value += shape.delta ? delta[std::size_t{row} * shape.width + i] : 0;
      squares += static_cast<double>(value) * static_cast<double>(value);
    }
    for (std::uint32_t i = 0; i < shape.width; ++i) {
      out.push_back(static_cast<double>(x[std::size_t{row} * shape.width + i]) /
                    std::sqrt(squares / shape.width + 1e-6) * static_cast<double>(weight[i]));
    }
  }
  out.insert(out.end(), x.begin(), x.end());
  return out;
}

TEST_P(RowKernels, NormIsRightForRaggedWidths) {
  for (const NormCase& shape : {NormCase{4, 1, false, false},
                                {5, 47, true, false},
                                {5, 100, true, true},
                                {4, 33, false, true},
                                {4, 2048, true, false}}) {
    const std::vector<float> got = run_norm(set(), act(), Order::kAtOnce, shape);
    const std::vector<double> want = norm_reference(shape);
    expect_near(got, want, Activation::kF32);
    expect_one_truth([&shape](const KernelSet& which, Order order) {
      return run_norm(which, act(), order, shape);
    });
  }
}

TEST_P(RowKernels, NormOfARowIgnoresTheOthers) {
  const std::vector<float> all = run_norm(set(), act(), Order::kAtOnce, {9, 200, true, false});
  const std::vector<float> few = run_norm(set(), act(), Order::kAtOnce, {4, 200, true, false});

  EXPECT_EQ(bits_of({all.begin(), all.begin() + 800}), bits_of({few.begin(), few.begin() + 800}));
}

std::vector<float> run_elementwise(
    const KernelSet& set, Activation act, Order order, KernelId id, std::uint32_t width) {
  Rig rig(act);
  rig.add_segment(3);
  const std::vector<float> a = noise(7, 3 * std::size_t{width}, 20);
  const std::vector<float> b = noise(8, 3 * std::size_t{width}, 20);
  const Ref out = rig.act_room(3 * std::size_t{width});
  const AddArgs add{rig.put(a), rig.put(b), rig.room(3 * std::size_t{width} * 4), width};
  const SiluMulArgs silu_mul{rig.put(a), rig.put(b), out, width};
  const GateMulArgs gate_mul{rig.put(a), rig.put(b), out, width};
  const void* args = id == KernelId::kAdd       ? static_cast<const void*>(&add)
                     : id == KernelId::kSiluMul ? static_cast<const void*>(&silu_mul)
                                                : &gate_mul;
  rig.run(set, id, args, order);
  return id == KernelId::kAdd ? rig.get<float>(add.out, 3 * std::size_t{width})
                              : rig.get_act(out, 3 * std::size_t{width});
}

TEST_P(RowKernels, ElementwiseKernelsAreRight) {
  for (const std::uint32_t width : {1U, 16U, 45U}) {
    const std::vector<float> a = noise(7, 3 * std::size_t{width}, 20);
    const std::vector<float> b = noise(8, 3 * std::size_t{width}, 20);
    std::vector<double> sum;
    std::vector<double> silu_mul;
    std::vector<double> gate_mul;
    for (std::size_t i = 0; i < a.size(); ++i) {
      const double x = static_cast<double>(a[i]);
      const double y = static_cast<double>(b[i]);
      sum.push_back(x + y);
      silu_mul.push_back(silu(x) * y);
      gate_mul.push_back(x * sigmoid(y));
    }
    expect_near(run_elementwise(set(), act(), Order::kAtOnce, KernelId::kAdd, width),
                sum,
                Activation::kF32);
    expect_near(
        run_elementwise(set(), act(), Order::kAtOnce, KernelId::kSiluMul, width), silu_mul, act());
    expect_near(
        run_elementwise(set(), act(), Order::kAtOnce, KernelId::kGateMul, width), gate_mul, act());
    for (const KernelId id : {KernelId::kAdd, KernelId::kSiluMul, KernelId::kGateMul}) {
      expect_one_truth([id, width](const KernelSet& which, Order order) {
        return run_elementwise(which, act(), order, id, width);
      });
    }
  }
}

std::vector<float> run_gdn_norm(const KernelSet& set,
                                Activation act,
                                Order order,
                                bool sigmoid_gate) {
  Rig rig(act);
  rig.add_segment(2);
  const GdnNormArgs args{.o = rig.put(noise(1, 2 * 3 * 20)),
                         .z = rig.put(noise(2, 2 * 3 * 20, 4)),
                         .weight = rig.put(noise(3, 20)),
                         .out = rig.act_room(2 * 3 * 20),
                         .heads = 3,
                         .dim = 20,
                         .sigmoid_gate = sigmoid_gate};
  rig.run(set, KernelId::kGdnNorm, &args, order);
  return rig.get_act(args.out, 2 * 3 * 20);
}

TEST_P(RowKernels, GdnNormNormsFirstAndGatesAfter) {
  const std::vector<float> o = noise(1, 120);
  const std::vector<float> z = noise(2, 120, 4);
  const std::vector<float> weight = noise(3, 20);
  for (const bool sigmoid_gate : {false, true}) {
    std::vector<double> want;
    for (std::size_t head = 0; head < 6; ++head) {
      double squares = 0;
      for (std::size_t i = 0; i < 20; ++i) {
        squares += static_cast<double>(o[head * 20 + i]) * static_cast<double>(o[head * 20 + i]);
      }
      for (std::size_t i = 0; i < 20; ++i) {
        const double gate = static_cast<double>(z[head * 20 + i]);
        want.push_back(static_cast<double>(o[head * 20 + i]) / std::sqrt(squares / 20 + 1e-6) *
                       static_cast<double>(weight[i]) *
                       (sigmoid_gate ? sigmoid(gate) : silu(gate)));
      }
    }
    expect_near(run_gdn_norm(set(), act(), Order::kAtOnce, sigmoid_gate), want, act());
    expect_one_truth([sigmoid_gate](const KernelSet& which, Order order) {
      return run_gdn_norm(which, act(), order, sigmoid_gate);
    });
  }
}

TEST_P(RowKernels, RopeTableHoldsCosinesThenSines) {
  Rig rig(act());
  rig.add_segment(2, 1000);
  rig.add_segment(1, 3000000);
  const std::vector<float> frequency = {1.0F, 0.5F, 0.001F};
  const RopeTableArgs args{rig.put(frequency), rig.room(3 * 6 * sizeof(float)), 3, 1.25F};

  rig.run(set(), KernelId::kRopeTable, &args, Order::kBackwards);

  std::vector<double> want;
  for (const double position : {1000.0, 1001.0, 3000000.0}) {
    for (const float f : frequency) {
      want.push_back(1.25 * std::cos(static_cast<double>(static_cast<float>(position) * f)));
    }
    for (const float f : frequency) {
      want.push_back(1.25 * std::sin(static_cast<double>(static_cast<float>(position) * f)));
    }
  }
  expect_near(rig.get<float>(args.out, 18), want, Activation::kF32, 2e-7);
}

TEST_P(RowKernels, EmbedReadsTheRowOfEachToken) {
  Rig rig(act());
  rig.add_segment(3);
  rig.rows[0].token = 2;
  rig.rows[1].token = 0;
  rig.rows[2].token = ~1;  // what the second sampled row of the previous ticket chose
  rig.previous.resize(2);
  rig.previous[1].token = 1;
  const std::vector<float> table = noise(4, 3 * 5);
  EmbedArgs args{.table = rig.put(table),
                 .table_type = DType::kF32,
                 .panel = {},
                 .out = rig.room(15 * 4),
                 .hidden = 5};

  rig.run(set(), KernelId::kEmbed, &args);

  const std::vector<float> want = std::vector<float>(table.begin() + 10, table.end()) +
                                  std::vector<float>(table.begin(), table.begin() + 10);
  EXPECT_EQ(rig.get<float>(args.out, 15), want);

  std::vector<bf16> narrow(15);
  for (std::size_t i = 0; i < 15; ++i) {
    narrow[i] = f32_to_bf16(table[i]);
  }
  args.table = rig.put(narrow);
  args.table_type = DType::kBF16;
  rig.run(set(), KernelId::kEmbed, &args);
  EXPECT_EQ(rig.get<float>(args.out, 15), want);
}

TEST_P(RowKernels, EmbedGivesZerosForAnAnswerlessRow) {
  Rig rig(act());
  rig.add_segment(1);
  rig.rows[0].token = ~0;
  rig.previous.resize(1);
  const EmbedArgs args{.table = rig.put(noise(4, 5)),
                       .table_type = DType::kF32,
                       .panel = {},
                       .out = rig.room(5 * 4),
                       .hidden = 5};

  rig.run(set(), KernelId::kEmbed, &args);

  EXPECT_EQ(rig.get<float>(args.out, 5), std::vector<float>(5, 0.0F));
}

TEST_P(RowKernels, EmbedGathersFromThePanelsOfATiedHead) {
  constexpr std::uint32_t kVocab = 37;
  constexpr std::uint32_t kHidden = 70;
  const std::vector<float> table = noise(5, std::size_t{kVocab} * kHidden);
  std::vector<bf16> narrow(table.size());
  for (std::size_t i = 0; i < table.size(); ++i) {
    narrow[i] = f32_to_bf16(table[i]);
  }
  Rig rig(act());
  rig.add_segment(3);
  rig.rows[0].token = 36;
  rig.rows[1].token = 0;
  rig.rows[2].token = 17;
  const Ref panels =
      rig.room(packed_bytes(WeightFormat::kPanelBF16, kVocab, kHidden), Arena::kWeights);
  const PackSource source{.data = reinterpret_cast<const std::byte*>(narrow.data()),
                          .dtype = DType::kBF16,
                          .rows = kVocab,
                          .columns = kHidden};
  pack_panels(source, WeightFormat::kPanelBF16, rig.at<std::byte>(panels), nullptr);
  const EmbedArgs args{.table = {},
                       .table_type = DType::kBF16,
                       .panel = {panels, {}, WeightFormat::kPanelBF16},
                       .out = rig.room(3 * kHidden * 4),
                       .hidden = kHidden};

  rig.run(set(), KernelId::kEmbed, &args);

  std::vector<float> want;
  for (const int token : {36, 0, 17}) {
    want.insert(want.end(), table.begin() + token * 70, table.begin() + token * 70 + 70);
  }
  EXPECT_EQ(rig.get<float>(args.out, 3 * kHidden), want);
}

}  // namespace
}  // namespace troupe::testing
