// DeviceExecutable: the Executable of a stage on any Device: picks the program that fits a step,
// fills a free context, submits. Private to runtime/program; everybody else sees Executable and its
// interfaces.
#pragma once

#include "runtime/base/sources.h"
#include "runtime/circuit/layout.h"
#include "runtime/program/executable.h"
#include "runtime/program/panel_file.h"
#include "runtime/program/parameter_store.h"
#include "runtime/program/program.h"
#include "runtime/program/stage.h"
#include "runtime/program/step_context.h"
#include "runtime/program/tensor_io.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace troupe {

// What a stage has compiled and allocated; owned by the stage, outlives its executable.
struct CompiledStage {
  Device* device = nullptr;
  ModelConfig config;
  Activation activation = Activation::kBF16;
  StageInfo info;
  WeightLayout weights;
  StateLayout states;
  std::vector<std::unique_ptr<const Program>> decode;  // by rising row count
  std::vector<std::unique_ptr<const Program>> rows;
  std::unique_ptr<Buffer> weight_memory;
  std::unique_ptr<Buffer> page_memory;
  std::unique_ptr<Buffer> kv_memory;
  std::unique_ptr<ParameterStore> parameters;
  std::unique_ptr<PanelWriter> panel_writer;  // reads weight_memory; none when nothing is written
};

class DeviceExecutable final : public Executable,
                               public AsyncPipeline,
                               public ActiveExtent,
                               public RngControl,
                               public StatePages {
 public:
  // Called after each launch of a step with the program that runs.
  using ProgramObserver = std::function<void(
      const Program& program, std::size_t launch, const KernelEnv& env, const LaunchTime& time)>;

  [[nodiscard]] static Result<std::unique_ptr<DeviceExecutable>> make(CompiledStage& stage);
  ~DeviceExecutable() override;

  void observe(ProgramObserver observer) { observer_ = std::move(observer); }

  // Executable
  Status set_param(std::string_view name, std::span<const float> values) override;
  Status set_param_typed(std::string_view name,
                         std::span<const std::byte> bytes,
                         DType dtype) override;
  Status finalize_params() override;
  [[nodiscard]] Result<StepOutputs> run_raw(const StepInputs& inputs) override;
  [[nodiscard]] Result<std::vector<OwnedTensor>> run(std::span<const NamedTensor> inputs) override;
  [[nodiscard]] Result<std::vector<OwnedTensor>> run_slots(
      std::span<const NamedTensor> by_slot) override;
  [[nodiscard]] Result<std::vector<OwnedTensor>> run_typed(
      std::span<const NamedTensor> inputs, std::span<const TensorSpec> outputs) override;

  // AsyncPipeline
  [[nodiscard]] std::uint32_t depth() const override {
    return static_cast<std::uint32_t>(contexts_.size());
  }
  void set_completion(std::function<void(const TicketDone&)> done) override {
    completion_ = std::move(done);
  }
  [[nodiscard]] Result<TicketId> commit_no_wait(const StepInputs& inputs) override;
  [[nodiscard]] Result<StepOutputs> outputs(TicketId ticket) override;
  Status release(TicketId ticket) override;
  Status sync_pending(Time deadline) override;
  [[nodiscard]] std::vector<Pipelined> run_pipelined(std::span<const StepInputs> inputs) override;

  // ActiveExtent, RngControl
  [[nodiscard]] Extent last_extent() const override { return extent_; }
  void set_rng(std::uint64_t key) override { key_ = key; }
  [[nodiscard]] std::uint64_t rng() const override { return key_; }

  // StatePages
  [[nodiscard]] std::uint32_t page_count() const override { return stage_.info.ledger.pages; }
  [[nodiscard]] std::uint64_t page_bytes() const override { return stage_.states.page_bytes; }
  [[nodiscard]] std::uint32_t block_count() const override { return stage_.info.ledger.blocks; }
  [[nodiscard]] std::uint64_t block_bytes() const override { return stage_.states.block_bytes(); }
  [[nodiscard]] Result<std::vector<LayerState>> read_page(PageRef page) override;
  Status write_page(PageRef page, std::span<const LayerState> layers) override;
  [[nodiscard]] Result<std::vector<LayerKv>> read_block(BlockRef block) override;

 protected:
  [[nodiscard]] void* find_interface(InterfaceId id) override;

 private:
  explicit DeviceExecutable(CompiledStage& stage);
  [[nodiscard]] const Program& program_for(const StepInputs& inputs) const;
  [[nodiscard]] StepContext* context_of(TicketId ticket);
  [[nodiscard]] StepOutputs view(const StepContext& context) const;
  void poison(const StepInputs& inputs);
  void finished(StepContext& context, const WorkResult& result);
  Result<std::vector<OwnedTensor>> run_named(std::span<const NamedTensor> inputs,
                                             bool wide,
                                             std::span<const TensorSpec> outputs);

  CompiledStage& stage_;
  StepChecker checker_;
  TensorIo io_;
  std::vector<std::unique_ptr<StepContext>> contexts_;
  std::function<void(const TicketDone&)> completion_;
  ProgramObserver observer_;
  LaunchObserver launch_observer_;
  const Program* observed_ = nullptr;
  Extent extent_;
  TicketId next_ticket_{1};
  TicketId held_;  // of the last run_raw, whose outputs are still borrowed
  std::uint64_t key_ = 0;
  bool ready_ = false;
};

}  // namespace troupe
