// kExpertSwiglu and kExpertDown: each entry gets the bits that kLinear gives its row with its
// expert's weights.
#include "tests/kernels/gemm_support.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

namespace troupe::testing {
namespace {

constexpr std::uint32_t kHidden = 70;
constexpr std::uint32_t kInner = 41;
constexpr std::uint32_t kExperts = 9;
constexpr std::uint32_t kTopK = 3;

// Experts' weights a fixed distance apart, and what the permutation kernel would have written.
class Mixture final {
 public:
  Mixture(DType type, const std::vector<std::uint32_t>& ids)
      : memory_(std::size_t{8} << 20),
        rows_(static_cast<std::uint32_t>(ids.size() / kTopK)),
        ids_(ids) {
    Rng rng(11);
    pack(type, rng);
    const Matrix x = random_matrix(rows_, kHidden, DType::kBF16, rng);
    const Matrix inner = random_matrix(rows_ * kTopK, kInner, DType::kBF16, rng);
    swiglu_.x = memory_.put(x.bytes);
    down_.x = memory_.put(inner.bytes);
    swiglu_.inputs = kHidden;
    swiglu_.inner = kInner;
    down_.inner = kInner;
    down_.outputs = kHidden;
    swiglu_.out = memory_.allocate(entry_count() * kInner * sizeof(bf16));
    down_.out = memory_.allocate(entry_count() * kHidden * sizeof(bf16));
    permute();
    step_rows_.resize(rows_);
    step_.rows = step_rows_;
  }

  [[nodiscard]] std::size_t entry_count() const { return ids_.size(); }

  void run(const KernelSet& set) {
    run_backwards(set,
                  KernelId::kExpertSwiglu,
                  Activation::kBF16,
                  memory_.env(step_),
                  &swiglu_,
                  memory_.scratch());
    run_backwards(set,
                  KernelId::kExpertDown,
                  Activation::kBF16,
                  memory_.env(step_),
                  &down_,
                  memory_.scratch());
  }
  std::vector<bf16> swiglu() { return memory_.get<bf16>(swiglu_.out, entry_count() * kInner); }
  std::vector<bf16> down() { return memory_.get<bf16>(down_.out, entry_count() * kHidden); }

  // What kLinear makes of each entry's row by itself.
  std::vector<bf16> linear_swiglu(const KernelSet& set) {
    std::vector<bf16> all;
    for (std::uint32_t entry = 0; entry < entry_count(); ++entry) {
      LinearArgs args;
      args.x = swiglu_.x;
      args.x.offset += std::size_t{entry / kTopK} * kHidden * sizeof(bf16);
      args.inputs = kHidden;
      args.parts[0] = {
          .weight = expert(swiglu_.weight, swiglu_.expert_bytes, swiglu_.scale_bytes, ids_[entry]),
          .outputs = kInner,
          .out_stride = kInner,
          .epilogue = Epilogue::kSwiglu};
      append(set, args, all);
    }
    return all;
  }
  std::vector<bf16> linear_down(const KernelSet& set) {
    std::vector<bf16> all;
    for (std::uint32_t entry = 0; entry < entry_count(); ++entry) {
      LinearArgs args;
      args.x = down_.x;
      args.x.offset += std::size_t{entry} * kInner * sizeof(bf16);
      args.inputs = kInner;
      args.parts[0] = {
          .weight = expert(down_.weight, down_.expert_bytes, down_.scale_bytes, ids_[entry]),
          .outputs = kHidden,
          .out_stride = kHidden};
      append(set, args, all);
    }
    return all;
  }

 private:
  void pack(DType type, Rng& rng) {
    for (std::uint32_t e = 0; e < kExperts; ++e) {
      const Matrix gate = random_matrix(kInner, kHidden, type, rng);
      const Matrix up = random_matrix(kInner, kHidden, type, rng);
      const Weight pair = pack_pair(gate, up, memory_);
      const Weight down = pack_weight(random_matrix(kHidden, kInner, type, rng), memory_);
      if (e == 0) {
        swiglu_.weight = pair;
        down_.weight = down;
      } else if (e == 1) {
        swiglu_.expert_bytes = pair.data.offset - swiglu_.weight.data.offset;
        swiglu_.scale_bytes = pair.scales.offset - swiglu_.weight.scales.offset;
        down_.expert_bytes = down.data.offset - down_.weight.data.offset;
        down_.scale_bytes = down.scales.offset - down_.weight.scales.offset;
      }
    }
  }

  void permute() {
    std::vector<std::uint32_t> offsets = {0}, entries, active;
    for (std::uint32_t e = 0; e < kExperts; ++e) {
      for (std::uint32_t entry = 0; entry < ids_.size(); ++entry) {
        if (ids_[entry] == e) {
          entries.push_back(entry);
        }
      }
      if (entries.size() > offsets.back()) {
        active.push_back(e);
      }
      offsets.push_back(static_cast<std::uint32_t>(entries.size()));
    }
    const std::vector<std::uint32_t> count = {static_cast<std::uint32_t>(active.size())};
    active.resize(kExperts, 0xffffffffU);  // must not be looked at
    swiglu_.offsets = down_.offsets = memory_.put(offsets);
    swiglu_.entries = down_.entries = memory_.put(entries);
    swiglu_.active = down_.active = memory_.put(active);
    swiglu_.active_count = down_.active_count = memory_.put(count);
    swiglu_.experts = down_.experts = kExperts;
    swiglu_.top_k = down_.top_k = kTopK;
  }

  static Weight expert(Weight weight,
                       std::uint64_t bytes,
                       std::uint64_t scale_bytes,
                       std::uint32_t index) {
    weight.data.offset += bytes * index;
    weight.scales.offset += scale_bytes * index;
    return weight;
  }

  void append(const KernelSet& set, LinearArgs& args, std::vector<bf16>& all) {
    args.x_stride = args.inputs;
    args.part_count = 1;
    args.parts[0].out = memory_.allocate(args.parts[0].outputs * sizeof(bf16));
    const std::vector<StepRow> rows(1);
    StepTable step;
    step.rows = rows;
    run_kernel(
        set, KernelId::kLinear, Activation::kBF16, memory_.env(step), &args, memory_.scratch());
    const auto row = memory_.get<bf16>(args.parts[0].out, args.parts[0].outputs);
    all.insert(all.end(), row.begin(), row.end());
  }

  Memory memory_;
  std::uint32_t rows_;
  std::vector<std::uint32_t> ids_;
  std::vector<StepRow> step_rows_;
  StepTable step_;
  ExpertSwigluArgs swiglu_;
  ExpertDownArgs down_;
};

class ExpertProduct : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    set_ = &matrix_set(GetParam());
    if (!set_->available()) {
      GTEST_SKIP() << "this processor has no " << GetParam();
    }
  }
  void expect_linear(DType type, const std::vector<std::uint32_t>& ids) const {
    Mixture mixture(type, ids);
    mixture.run(*set_);
    EXPECT_EQ(mixture.swiglu(), mixture.linear_swiglu(*set_)) << name(type);
    EXPECT_EQ(mixture.down(), mixture.linear_down(*set_)) << name(type);
  }
  const KernelSet* set_ = nullptr;
};

INSTANTIATE_TEST_SUITE_P(
    Sets,
    ExpertProduct,
    ::testing::Values(
        "scalar", "avx2", "avx512", "avx512-bf16", "amx-bf16", "emulated-pairs", "emulated-tiles"));

TEST_P(ExpertProduct, GivesEachEntryTheBitsOfItsRowAlone) {
  std::vector<std::uint32_t> ids;
  Rng rng(5);
  for (std::uint32_t row = 0; row < 40; ++row) {  // experts 2, 5 and 8 stay empty
    const auto first = static_cast<std::uint32_t>(rng.below(6));
    constexpr std::array<std::uint32_t, 6> kUsed = {0, 1, 3, 4, 6, 7};
    for (std::uint32_t choice = 0; choice < kTopK; ++choice) {
      ids.push_back(kUsed[(first + choice) % 6]);
    }
  }
  for (const DType type : {DType::kBF16, DType::kF8E4M3, DType::kF32}) {
    expect_linear(type, ids);
  }
}

TEST_P(ExpertProduct, ServesOneRow) {
  expect_linear(DType::kBF16, {8, 0, 3});
}

// Not what a router does, but the largest group there can be.
TEST_P(ExpertProduct, ServesAllRowsOnOneExpert) {
  expect_linear(DType::kBF16, std::vector<std::uint32_t>(120 * kTopK, 4));
}

TEST_P(ExpertProduct, HasItemsForTheActiveExpertsAtMost) {
  ExpertDownArgs args;
  args.outputs = 130;  // nine panels: three groups
  args.experts = 64;
  args.top_k = 4;
  const std::vector<StepRow> rows(3);
  StepTable step;
  step.rows = rows;
  KernelEnv env;
  env.step = &step;
  EXPECT_EQ(set_->kernel(KernelId::kExpertDown, Activation::kBF16).items(env, &args), 12U * 3U);
  args.experts = 5;
  EXPECT_EQ(set_->kernel(KernelId::kExpertDown, Activation::kBF16).items(env, &args), 5U * 3U);
}

}  // namespace
}  // namespace troupe::testing
