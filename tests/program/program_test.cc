// What a plan says is what runs, and only the step table varies (promise P5, ARCHITECTURE.md
// section 4).
#include "runtime/program/program.h"

#include "runtime/base/sha256.h"
#include "tests/support/model_under_test.h"

#include <gtest/gtest.h>

#include <cstring>

namespace troupe::test {
namespace {

std::string model(const std::string& name) {
  return data_directory() + "/" + name;
}

// A device that runs nothing: it writes down what is submitted and reports it done.
class RecordingDevice final : public Device {
 public:
  RecordingDevice() {
    info_.name = "recording";
    info_.available_bytes = 4ULL << 30;
  }
  [[nodiscard]] const DeviceInfo& info() const override { return info_; }
  [[nodiscard]] const KernelSet& kernels() const override { return *find_cpu_kernel_set("scalar"); }
  [[nodiscard]] DeviceStats stats() const override { return {}; }
  [[nodiscard]] Result<std::unique_ptr<Buffer>> allocate(std::size_t bytes,
                                                         const std::string& purpose) override {
    return inner_->allocate(bytes, purpose);
  }
  [[nodiscard]] Result<std::unique_ptr<Buffer>> map_file(int fd,
                                                         std::uint64_t offset,
                                                         std::size_t bytes,
                                                         const std::string& purpose) override {
    return inner_->map_file(fd, offset, bytes, purpose);
  }
  Status submit(const Work& work) override {
    submissions.push_back({{work.calls.begin(), work.calls.end()}, work.env, *work.env.step});
    rows.emplace_back(work.env.step->rows.begin(), work.env.step->rows.end());
    (*work.done)({});
    return {};
  }
  void parallel_for(std::size_t count, const std::function<void(std::size_t)>& f) override {
    for (std::size_t i = 0; i < count; ++i) {
      f(i);
    }
  }
  Status drain(Time /*deadline*/) override { return {}; }

  struct Submission {
    std::vector<KernelCall> calls;
    KernelEnv env;
    StepTable table;
  };
  std::vector<Submission> submissions;
  std::vector<std::vector<StepRow>> rows;

 private:
  SteadyClock clock_;
  std::unique_ptr<Device> inner_ =
      make_cpu_device({.kernel_set = "scalar", .run_inline = true}, clock_).value();
  DeviceInfo info_;
};

struct Recorded {
  RecordingDevice device;
  ModelConfig config = read_model_config(model("next-tiny")).value();
  std::unique_ptr<Checkpoint> checkpoint = Checkpoint::open(model("next-tiny"), config).value();
  std::unique_ptr<Stage> stage =
      make_stage(device,
                 config,
                 *checkpoint,
                 {.max_rows = 64, .max_segments = 8, .max_sampled = 8, .pages = 9, .blocks = 20})
          .value();
};

void run_step(Executable& executable, std::uint32_t page, std::uint32_t block, std::uint32_t rows) {
  const std::vector<std::int32_t> tokens(rows, 7);
  std::vector<PageRef> writes(rows, PageRef{kNoPage, 0});
  writes.back() = {page, 1};
  const std::vector<SegmentInput> segments = {{.rows = rows, .read_page = {0, 0}}};
  const std::vector<BlockRef> blocks = {{block, 1}};
  const std::vector<SampledInput> sampled = {{.row = rows - 1}};
  ASSERT_TRUE(executable
                  .run_raw({.tokens = tokens,
                            .write_pages = writes,
                            .segments = segments,
                            .blocks = blocks,
                            .block_width = 1,
                            .sampled = sampled})
                  .has_value());
}

TEST(Program, OnlyTheStepTableVariesBetweenTwoRuns) {
  Recorded r;
  for (const std::uint32_t rows : {1U, 20U}) {
    r.device.submissions.clear();
    r.device.rows.clear();
    run_step(r.stage->executable(), 1, 2, rows);
    const auto first_arguments = r.device.submissions[0].calls;
    run_step(r.stage->executable(), 5, 11, rows);

    const auto& a = r.device.submissions[0];
    const auto& b = r.device.submissions[1];
    ASSERT_EQ(a.calls.size(), b.calls.size());
    for (std::size_t i = 0; i < a.calls.size(); ++i) {
      EXPECT_EQ(a.calls[i].id, b.calls[i].id);
      EXPECT_EQ(a.calls[i].args, b.calls[i].args) << "launch " << i << " got other arguments";
    }
    EXPECT_EQ(a.env.base, b.env.base);
    EXPECT_EQ(r.device.rows[0].back().write_page, 1U);
    EXPECT_EQ(r.device.rows[1].back().write_page, 5U);
  }
}

TEST(Program, LaunchesAreThePlansGroupsInOrder) {
  const ModelConfig config = read_model_config(model("q35-moe")).value();
  const Circuit circuit =
      build_circuit(config, {0, static_cast<std::uint32_t>(config.layers.size())}).value();
  const KernelCatalog catalog = make_catalog(*find_cpu_kernel_set("scalar"), Activation::kBF16);
  const auto bf16_type = [](std::string_view) { return DType::kBF16; };
  for (const std::uint32_t rows : {1U, 48U}) {
    const FusionPlan plan =
        make_fusion_plan(circuit, catalog, {.rows = rows, .sampled = rows}).value();
    const WeightLayout weights = make_weight_layout(circuit, plan, bf16_type).value();
    const auto program =
        Program::compile(
            circuit, plan, weights, make_state_layout(circuit, Activation::kBF16), 8, 100)
            .value();

    ASSERT_EQ(program->launches().size(), plan.groups.size());
    for (std::size_t i = 0; i < plan.groups.size(); ++i) {
      EXPECT_EQ(program->launches()[i].kernel, plan.groups[i].kernel);
      EXPECT_EQ(program->calls()[i].args, program->arguments(program->launches()[i]).data());
    }
    EXPECT_EQ(program->counts(), plan.counts);
  }
}

TEST(Program, DigestAndTextAreTheSameForEveryCompilation) {
  Recorded a;
  Recorded b;
  EXPECT_EQ(a.stage->info().plan_digest, b.stage->info().plan_digest);
  EXPECT_EQ(a.stage->info().arithmetic_digest, b.stage->info().arithmetic_digest);
  EXPECT_EQ(a.stage->info().plan_digest.size(), 64U);
}

TEST(Program, LaunchCountOnTheDeviceEqualsThePlans) {
  Recorded r;
  run_step(r.stage->executable(), 1, 2, 1);
  const Circuit circuit = build_circuit(r.config, {0, 4}).value();
  const FusionPlan plan =
      make_fusion_plan(
          circuit, make_catalog(r.device.kernels(), Activation::kBF16), {.rows = 1, .sampled = 1})
          .value();
  EXPECT_EQ(r.device.submissions[0].calls.size(), plan.counts.kernels);
}

// Each rule alone, and all of them: the same logits, bit for bit, as without any.
TEST(Fusion, EveryRuleKeepsTheBits) {
  for (const std::string name : {"next-tiny", "next-mixed", "q35-moe-fp8", "q35-dense"}) {
    for (const Activation activation : {Activation::kF32, Activation::kBF16}) {
      std::vector<std::string> digests;
      for (unsigned disabled = 0; disabled <= kRuleCount; ++disabled) {
        ModelOptions options{.activation = activation,
                             .kernel_set = available_sets(activation).back()};
        options.stage.disabled_rules = disabled == kRuleCount ? ~0UL
                                       : disabled == 0        ? 0UL
                                                              : 1UL << disabled;
        auto tested = ModelUnderTest::open(model(name), options);
        Sequence sequence;
        Sha256 hash;
        std::vector<std::int32_t> next = {5, 9, 14, 3, 2, 77, 8, 41, 6};
        for (int i = 0; i < 4; ++i) {
          const StepResult result =
              tested->step({.sequence = &sequence, .tokens = next, .sample_all = true});
          for (const auto& row : result.logits) {
            hash.update(std::as_bytes(std::span(row)));
          }
          next = {result.results.back().token};
        }
        digests.push_back(hash.hex());
      }
      for (std::size_t i = 1; i < digests.size(); ++i) {
        EXPECT_EQ(digests[i], digests[0]) << name << " without rule " << i;
      }
    }
  }
}

}  // namespace
}  // namespace troupe::test
