// kLinear, kExpertSwiglu and kExpertDown of every kernel set: close to exact sums, and the promises
// of kernels/ops.h (OP-1, OP-3, OP-4). Sets that this processor lacks are skipped by name; the code
// of the bf16 sets also runs emulated.
#include "kernels/cpu/kernel_set.h"
#include "tests/kernels/gemm_support.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

namespace troupe::testing {
namespace {

struct Shape {
  std::uint32_t rows, inputs, outputs;
};

// One weight on random rows, and what came out.
struct LinearCase {
  Shape shape;
  DType weight_type = DType::kBF16;
  Activation act = Activation::kBF16;
  Epilogue epilogue = Epilogue::kNone;
  bool out_f32 = false;
  std::uint64_t seed = 1;
  bool x_f32 = false;  // else of the activation type

  [[nodiscard]] Activation x_type() const { return x_f32 ? Activation::kF32 : act; }
};

class Linear final {
 public:
  explicit Linear(const LinearCase& setup) : setup_(setup), memory_(std::size_t{12} << 20) {
    Rng rng(setup.seed);
    x = random_matrix(setup.shape.rows, setup.shape.inputs, dtype_of(setup.x_type()), rng);
    gate = random_matrix(setup.shape.outputs, setup.shape.inputs, setup.weight_type, rng);
    up = random_matrix(setup.shape.outputs, setup.shape.inputs, setup.weight_type, rng);
    x_stride_ = setup.shape.inputs + 3;
    // Beyond K stands NaN, which must not be read into a sum.
    std::vector<std::byte> rows(std::size_t{setup.shape.rows} * x_stride_ * size_of(setup.x_type()),
                                std::byte{0xff});
    const std::size_t row_bytes = setup.shape.inputs * size_of(setup.x_type());
    for (std::size_t row = 0; row < setup.shape.rows; ++row) {
      std::memcpy(rows.data() + row * x_stride_ * size_of(setup.x_type()),
                  x.bytes.data() + row * row_bytes,
                  row_bytes);
    }
    args_.x = memory_.put(rows);
    args_.inputs = setup.shape.inputs;
    args_.x_stride = x_stride_;
    args_.x_f32 = setup.x_f32;
    args_.part_count = 1;
    LinearPart& part = args_.parts[0];
    part.weight = setup.epilogue == Epilogue::kSwiglu ? pack_pair(gate, up, memory_)
                                                      : pack_weight(gate, memory_);
    part.outputs = setup.shape.outputs;
    part.out_stride = setup.shape.outputs + 5;
    part.out_f32 = setup.out_f32;
    part.epilogue = setup.epilogue;
  }

  // The bytes of the output, gaps between rows included; rows [first, first + rows) of x.
  std::vector<std::byte> run(const KernelSet& set,
                             std::uint32_t first,
                             std::uint32_t rows,
                             bool backwards = false) {
    const std::size_t bytes = rows * args_.parts[0].out_stride * element();
    args_.parts[0].out = memory_.allocate(bytes);
    LinearArgs args = args_;
    args.x.offset += std::size_t{first} * x_stride_ * size_of(setup_.x_type());
    const std::vector<StepRow> step_rows(rows);
    StepTable step;
    step.rows = step_rows;
    const KernelEnv env = memory_.env(step);
    (backwards ? run_backwards : run_kernel)(
        set, KernelId::kLinear, setup_.act, env, &args, memory_.scratch());
    return memory_.get<std::byte>(args_.parts[0].out, bytes);
  }
  std::vector<std::byte> run(const KernelSet& set) { return run(set, 0, setup_.shape.rows); }

  [[nodiscard]] std::size_t element() const { return setup_.out_f32 ? 4 : size_of(setup_.act); }
  [[nodiscard]] std::size_t row_bytes() const { return args_.parts[0].out_stride * element(); }
  [[nodiscard]] std::size_t used_row_bytes() const { return setup_.shape.outputs * element(); }

  [[nodiscard]] Exact exact(std::uint32_t row, std::uint32_t output) const {
    Exact result = exact_dot(x, row, gate, output);
    if (setup_.epilogue == Epilogue::kSwiglu) {
      result = exact_swiglu(result, exact_dot(x, row, up, output));
    }
    return exact_rounded(result, setup_.out_f32 ? Activation::kF32 : setup_.act);
  }

  // How many outputs are off by more than their bound, and how many bytes of the gaps were written.
  [[nodiscard]] int errors(const std::vector<std::byte>& out) const {
    int count = 0;
    for (std::uint32_t row = 0; row < setup_.shape.rows; ++row) {
      const std::byte* line = out.data() + row * row_bytes();
      for (std::uint32_t output = 0; output < setup_.shape.outputs; ++output) {
        const double value = load_as_f32(line, element() == 2 ? DType::kBF16 : DType::kF32, output);
        const Exact wanted = exact(row, output);
        count += std::abs(value - wanted.value) <= wanted.bound ? 0 : 1;
      }
      count += static_cast<int>(std::count_if(line + used_row_bytes(),
                                              line + row_bytes(),
                                              [](std::byte b) { return b != std::byte{0xa5}; }));
    }
    return count;
  }

  Matrix x, gate, up;

 private:
  LinearCase setup_;
  Memory memory_;
  std::uint32_t x_stride_ = 0;
  LinearArgs args_;
};

class MatrixProduct : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    set_ = &matrix_set(GetParam());
    if (!set_->available()) {
      GTEST_SKIP() << "this processor has no " << GetParam();
    }
  }
  [[nodiscard]] std::vector<Activation> activations() const {
    return set_->fp32_activations ? std::vector{Activation::kBF16, Activation::kF32}
                                  : std::vector{Activation::kBF16};
  }
  const KernelSet* set_ = nullptr;
};

INSTANTIATE_TEST_SUITE_P(
    Sets,
    MatrixProduct,
    ::testing::Values(
        "scalar", "avx2", "avx512", "avx512-bf16", "amx-bf16", "emulated-pairs", "emulated-tiles"));

constexpr DType kWeightTypes[] = {DType::kBF16, DType::kF8E4M3, DType::kF32, DType::kF16};

TEST_P(MatrixProduct, IsCloseToExactSums) {
  for (const Activation act : activations()) {
    for (const DType type : kWeightTypes) {
      for (const Shape shape : {Shape{1, 1, 1},
                                Shape{1, 64, 64},
                                Shape{2, 33, 17},
                                Shape{3, 300, 50},
                                Shape{7, 129, 130},
                                Shape{17, 95, 31},
                                Shape{33, 600, 70}}) {
        SCOPED_TRACE(::testing::Message()
                     << name(type) << " " << shape.rows << " x " << shape.inputs << " x "
                     << shape.outputs << (act == Activation::kBF16 ? " bf16" : " fp32"));
        Linear linear({.shape = shape, .weight_type = type, .act = act});
        EXPECT_EQ(linear.errors(linear.run(*set_)), 0);
      }
    }
  }
}

TEST_P(MatrixProduct, AppliesSwigluToPairsOfPanels) {
  for (const Activation act : activations()) {
    for (const DType type : kWeightTypes) {
      SCOPED_TRACE(name(type));
      Linear linear(
          {.shape = {5, 130, 75}, .weight_type = type, .act = act, .epilogue = Epilogue::kSwiglu});
      EXPECT_EQ(linear.errors(linear.run(*set_)), 0);
    }
  }
}

TEST_P(MatrixProduct, WritesFp32WhenAsked) {
  for (const Activation act : activations()) {
    Linear linear({.shape = {4, 70, 40}, .act = act, .out_f32 = true});
    EXPECT_EQ(linear.errors(linear.run(*set_)), 0);
  }
}

TEST_P(MatrixProduct, OfAnFp32InputIsTheSameInEverySetAndWithAnyActivations) {
  for (const DType type : {DType::kBF16, DType::kF8E4M3, DType::kF32}) {
    for (const std::uint32_t rows : {1U, 5U, 40U}) {
      SCOPED_TRACE(::testing::Message() << name(type) << ", " << rows << " rows");
      const LinearCase fp32{
          .shape = {rows, 161, 66}, .weight_type = type, .act = Activation::kF32, .out_f32 = true};
      LinearCase mixed = fp32;
      mixed.act = Activation::kBF16;
      mixed.x_f32 = true;
      Linear linear(mixed);

      const auto out = linear.run(*set_);

      EXPECT_EQ(linear.errors(out), 0);
      EXPECT_EQ(out, Linear(fp32).run(matrix_set("scalar")));
    }
  }
}

// OP-1. The expected bits are those of each row alone.
TEST_P(MatrixProduct, GivesARowTheSameBitsAloneAndInAnyBatch) {
  for (const DType type : {DType::kBF16, DType::kF8E4M3, DType::kF32}) {
    Linear linear({.shape = {130, 161, 66}, .weight_type = type, .out_f32 = true});
    std::vector<std::vector<std::byte>> alone;
    for (std::uint32_t row = 0; row < 130; ++row) {
      alone.push_back(linear.run(*set_, row, 1));
    }
    std::vector<std::uint32_t> batches = {32, 33, 64, 130};
    for (std::uint32_t rows = 2; rows <= 17; ++rows) {
      batches.push_back(rows);
    }
    for (const std::uint32_t rows : batches) {
      const auto batch = linear.run(*set_, 130 - rows, rows);
      int differ = 0;
      for (std::uint32_t row = 0; row < rows; ++row) {
        differ += std::memcmp(batch.data() + row * linear.row_bytes(),
                              alone[130 - rows + row].data(),
                              linear.row_bytes()) != 0;
      }
      EXPECT_EQ(differ, 0) << name(type) << ", " << rows << " rows";
    }
  }
}

// GE-1: more inputs than a long span (one chunk of rows) and than many short ones (several chunks),
// more rows than an item's.
TEST_P(MatrixProduct, GivesTheSameBitsHoweverInputsAndRowsAreCut) {
  for (const DType type : {DType::kBF16, DType::kF8E4M3, DType::kF32}) {
    SCOPED_TRACE(name(type));
    Linear deep({.shape = {34, 4500, 17}, .weight_type = type, .out_f32 = true});
    const auto batch = deep.run(*set_);
    const auto last = deep.run(*set_, 33, 1);
    EXPECT_EQ(std::memcmp(batch.data() + 33 * deep.row_bytes(), last.data(), deep.row_bytes()), 0);
    EXPECT_EQ(deep.errors(batch), 0);

    Linear tall({.shape = {400, 40, 33}, .weight_type = type});
    EXPECT_EQ(tall.errors(tall.run(*set_)), 0);
  }
}

// OP-4.
TEST_P(MatrixProduct, RunsItsItemsInAnyOrder) {
  for (const DType type : kWeightTypes) {
    Linear linear({.shape = {200, 70, 150}, .weight_type = type, .epilogue = Epilogue::kSwiglu});
    EXPECT_EQ(linear.run(*set_, 0, 200, true), linear.run(*set_)) << name(type);
  }
}

// OP-3.
TEST_P(MatrixProduct, OfAnFp32SetEqualsTheScalarSetBitForBit) {
  if (!set_->fp32_activations) {
    GTEST_SKIP() << "the bf16 sets have sums of their own";
  }
  for (const Activation act : activations()) {
    for (const DType type : kWeightTypes) {
      for (const Shape shape : {Shape{1, 333, 130}, Shape{4, 31, 64}, Shape{23, 257, 81}}) {
        Linear linear({.shape = shape,
                       .weight_type = type,
                       .act = act,
                       .epilogue = Epilogue::kSwiglu,
                       .out_f32 = true});
        EXPECT_EQ(linear.run(*set_), linear.run(matrix_set("scalar")))
            << name(type) << " " << shape.rows << " rows";
      }
    }
  }
}

TEST_P(MatrixProduct, ServesSeveralPartsAndOnlyTheSampledRows) {
  Rng rng(7);
  Memory memory(std::size_t{4} << 20);
  const Matrix x = random_matrix(6, 50, DType::kBF16, rng);
  const std::array<std::uint32_t, 4> outputs = {70, 1, 16, 130};
  const std::array<DType, 4> types = {DType::kBF16, DType::kF32, DType::kF8E4M3, DType::kBF16};
  LinearArgs args;
  args.x = memory.put(x.bytes);
  args.inputs = 50;
  args.x_stride = 50;
  args.rows = RowSet::kSampled;
  args.part_count = 4;
  std::vector<Matrix> weights;
  for (std::size_t p = 0; p < 4; ++p) {
    weights.push_back(random_matrix(outputs[p], 50, types[p], rng));
    args.parts[p].weight = pack_weight(weights[p], memory);
    args.parts[p].outputs = outputs[p];
    args.parts[p].out_stride = outputs[p];
    args.parts[p].out_f32 = true;
    args.parts[p].out = memory.allocate(6 * outputs[p] * sizeof(float));
  }
  const std::vector<StepRow> rows(6);
  const std::vector<SampledRow> sampled(2);  // compact: rows 0 and 1 of x
  StepTable step;
  step.rows = rows;
  step.sampled = sampled;

  run_kernel(
      *set_, KernelId::kLinear, Activation::kBF16, memory.env(step), &args, memory.scratch());

  for (std::size_t p = 0; p < 4; ++p) {
    const auto out = memory.get<float>(args.parts[p].out, 6 * outputs[p]);
    int errors = 0;
    for (std::uint32_t row = 0; row < 2; ++row) {
      for (std::uint32_t output = 0; output < outputs[p]; ++output) {
        const Exact wanted = exact_dot(x, row, weights[p], output);
        errors +=
            std::abs(double{out[row * outputs[p] + output]} - wanted.value) <= wanted.bound ? 0 : 1;
      }
    }
    EXPECT_EQ(errors, 0) << "part " << p;
    const auto* bytes = reinterpret_cast<const std::byte*>(out.data() + 2 * outputs[p]);
    EXPECT_TRUE(std::all_of(bytes, bytes + 4 * outputs[p] * sizeof(float), [](std::byte b) {
      return b == std::byte{0xa5};
    }));
  }
}

TEST_P(MatrixProduct, HasNoItemsWithoutRows) {
  LinearArgs args;
  args.part_count = 1;
  args.parts[0].outputs = 100;
  const StepTable step;
  KernelEnv env;
  env.step = &step;
  EXPECT_EQ(set_->kernel(KernelId::kLinear, Activation::kBF16).items(env, &args), 0U);
}

// Inputs that are zero but for one pick single weights out, with no rounding: codes of `count`
// magnitudes from `first` on, both signs.
void expect_codes(const KernelSet& set,
                  std::uint32_t first,
                  std::uint32_t count,
                  std::uint32_t rows) {
  constexpr std::uint32_t kInputs = 32;
  Rng rng(1);
  Memory memory(std::size_t{1} << 20);
  Matrix x = random_matrix(kInputs, kInputs, DType::kBF16, rng);
  Matrix weight = random_matrix(32, kInputs, DType::kF8E4M3, rng);
  std::fill(weight.scales.begin(), weight.scales.end(), 1.0F);
  auto* inputs = reinterpret_cast<bf16*>(x.bytes.data());
  for (std::uint32_t i = 0; i < kInputs * kInputs; ++i) {
    inputs[i] = f32_to_bf16(i % (kInputs + 1) == 0 ? 1.0F : 0.0F);
    weight.bytes[i] = static_cast<std::byte>(first + i / 2 % count + (i % 2) * 128);
  }
  LinearArgs args;
  args.x = memory.put(x.bytes);
  args.inputs = kInputs;
  args.x_stride = kInputs;
  args.part_count = 1;
  args.parts[0] = {.weight = pack_weight(weight, memory),
                   .out = memory.allocate(rows * 32 * sizeof(float)),
                   .outputs = 32,
                   .out_stride = 32,
                   .out_f32 = true};
  const std::vector<StepRow> step_rows(rows);
  StepTable step;
  step.rows = step_rows;
  for (std::uint32_t row = 0; row < kInputs; row += rows) {
    LinearArgs some = args;
    some.x.offset += row * kInputs * sizeof(bf16);
    const KernelEnv env = memory.env(step);
    run_kernel(set, KernelId::kLinear, Activation::kBF16, env, &some, memory.scratch());
    const auto out = memory.get<float>(args.parts[0].out, rows * 32);
    for (std::uint32_t i = 0; i < out.size(); ++i) {
      const std::size_t element = std::size_t{i % 32} * kInputs + row + i / 32;
      EXPECT_EQ(out[i], load_as_f32(weight.bytes.data(), DType::kF8E4M3, element));
    }
  }
}

TEST_P(MatrixProduct, WidensEveryF8CodeExactly) {
  for (const std::uint32_t rows : {1U, 8U}) {
    expect_codes(*set_, 0, 127, rows);  // all but NaN
    expect_codes(*set_, 8, 119, rows);  // normal ones only
  }
}

TEST_P(MatrixProduct, CarriesNanOfAWeightToItsOutputOnly) {
  for (const DType type : {DType::kBF16, DType::kF8E4M3, DType::kF32}) {
    Rng rng(3);
    Memory memory(std::size_t{1} << 20);
    const Matrix x = random_matrix(3, 64, DType::kBF16, rng);
    Matrix weight = random_matrix(40, 64, type, rng);
    std::memset(weight.bytes.data() + (std::size_t{5} * 64 + 9) * size_of(type),
                0xff,
                size_of(type));  // NaN in each type
    LinearArgs args;
    args.x = memory.put(x.bytes);
    args.inputs = 64;
    args.x_stride = 64;
    args.part_count = 1;
    args.parts[0] = {.weight = pack_weight(weight, memory),
                     .out = memory.allocate(3 * 40 * 4),
                     .outputs = 40,
                     .out_stride = 40,
                     .out_f32 = true};
    const std::vector<StepRow> rows(3);
    StepTable step;
    step.rows = rows;
    run_kernel(
        *set_, KernelId::kLinear, Activation::kBF16, memory.env(step), &args, memory.scratch());

    const auto out = memory.get<float>(args.parts[0].out, 3 * 40);
    for (std::size_t i = 0; i < out.size(); ++i) {
      EXPECT_EQ(std::isnan(out[i]), i % 40 == 5) << name(type) << " output " << i % 40;
    }
  }
}

}  // namespace
}  // namespace troupe::testing
