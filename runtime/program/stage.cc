#include "runtime/program/stage.h"

#include "runtime/base/sha256.h"
#include "runtime/program/device_executable.h"
#include "runtime/program/plans.h"

#include <algorithm>
#include <mutex>
#include <optional>
#include <utility>

namespace troupe {
namespace {

class CompiledModel final : public Stage {
 public:
  explicit CompiledModel(StagePlans plans) : plans_(std::move(plans)) {}

  ~CompiledModel() override { executable_.reset(); }

  Status compile(Device& device, const StageOptions& options) {
    stage_.device = &device;
    stage_.config = plans_.circuit.config;
    stage_.activation = options.activation;
    stage_.info = plans_.info;
    stage_.weights = plans_.weights;
    stage_.states = plans_.states;
    const MemoryLedger& ledger = stage_.info.ledger;
    const std::uint32_t valid = options.valid_tokens == 0
                                    ? stage_.config.vocab_size
                                    : std::min(options.valid_tokens, stage_.config.vocab_size);
    for (const FusionPlan& plan : plans_.decode) {
      TROUPE_TRY(add(stage_.decode, plan, valid));
    }
    for (const FusionPlan& plan : plans_.rows) {
      TROUPE_TRY(add(stage_.rows, plan, valid));
    }
    TROUPE_ASSIGN(stage_.weight_memory, device.allocate(ledger.weight_bytes, "weights"));
    TROUPE_ASSIGN(stage_.page_memory,
                  device.allocate(ledger.page_bytes * ledger.pages, "state pages"));
    TROUPE_ASSIGN(stage_.kv_memory,
                  device.allocate(ledger.block_bytes * ledger.blocks, "KV blocks"));
    stage_.parameters = std::make_unique<ParameterStore>(
        stage_.weights, stage_.weight_memory->data(), stage_.config);
    Sha256 hash;
    for (const auto* list : {&stage_.decode, &stage_.rows}) {
      for (const auto& program : *list) {
        hash.update(program->plan_digest());
      }
    }
    stage_.info.plan_digest = hash.hex();
    TROUPE_ASSIGN(executable_, DeviceExecutable::make(stage_));
    return {};
  }

  Status load(const Checkpoint& checkpoint, const LoadProgress& progress) {
    std::vector<const TensorView*> wanted;
    std::uint64_t total = 0;
    for (const auto& [name, place] : stage_.weights.index) {
      const TensorView* tensor = checkpoint.find(name);
      if (tensor == nullptr) {
        return error(Kind::kInvalid, "the checkpoint has no tensor for parameter " + name);
      }
      wanted.push_back(tensor);
      total += bytes_of(*tensor);
    }
    // Largest first, so that the last worker does not start on the head alone.
    std::stable_sort(wanted.begin(), wanted.end(), [](const TensorView* a, const TensorView* b) {
      return bytes_of(*a) > bytes_of(*b);
    });
    std::mutex mutex;
    std::uint64_t done = 0;
    std::optional<Error> failure;
    stage_.device->parallel_for(wanted.size(), [&](std::size_t i) {
      const Status status = stage_.parameters->store(*wanted[i]);
      checkpoint.release(*wanted[i]);
      const std::scoped_lock lock(mutex);
      done += bytes_of(*wanted[i]);
      if (!status && !failure) {
        failure = status.error();
      }
      if (progress) {
        progress(done, total);
      }
    });
    if (failure) {
      return tl::unexpected(*std::move(failure));
    }
    return executable_->finalize_params();
  }

  [[nodiscard]] Executable& executable() override { return *executable_; }
  [[nodiscard]] const StageInfo& info() const override { return stage_.info; }

  void observe(EdgeObserver observer) override {
    executable_->observe([this, observer = std::move(observer)](
                             const Program& program, std::size_t launch, const KernelEnv& env) {
      const auto& plans = program.shape().mode == Mode::kDecode ? plans_.decode : plans_.rows;
      const FusionPlan& plan = *std::find_if(plans.begin(), plans.end(), [&](const FusionPlan& p) {
        return p.shape.rows == program.shape().rows;
      });
      for (const EdgeIndex e : plan.groups[launch].writes) {
        const Edge& edge = plans_.circuit.edges[e];
        observer({.name = edge.name,
                  .place = {Arena::kWorkspace, program.workspace().places[e].offset},
                  .width = edge.width * std::max(edge.per_row, 1U),
                  .f32 = edge.element == Element::kF32,
                  .integer = edge.element == Element::kU32},
                 env);
      }
    });
  }

 private:
  static std::uint64_t bytes_of(const TensorView& t) {
    return std::uint64_t{t.rows} * t.columns * size_of(t.dtype);
  }

  Status add(std::vector<std::unique_ptr<const Program>>& list,
             const FusionPlan& plan,
             std::uint32_t valid) {
    TROUPE_ASSIGN(
        auto program,
        Program::compile(
            plans_.circuit, plan, stage_.weights, stage_.states, stage_.info.ledger.blocks, valid));
    list.push_back(std::move(program));
    return {};
  }

  StagePlans plans_;
  CompiledStage stage_;
  std::unique_ptr<DeviceExecutable> executable_;
};

Result<std::unique_ptr<CompiledModel>> compile(Device& device,
                                               const ModelConfig& config,
                                               const ParameterType& type,
                                               const std::string& model_hash,
                                               const StageOptions& options) {
  TROUPE_ASSIGN(StagePlans plans,
                make_stage_plans(config,
                                 {0, static_cast<std::uint32_t>(config.layers.size())},
                                 make_catalog(device.kernels(), options.activation),
                                 type,
                                 model_hash,
                                 options,
                                 device.info().available_bytes));
  auto model = std::make_unique<CompiledModel>(std::move(plans));
  TROUPE_TRY(model->compile(device, options));
  return model;
}

}  // namespace

Result<std::unique_ptr<Stage>> make_stage(Device& device,
                                          const ModelConfig& config,
                                          const Checkpoint& checkpoint,
                                          const StageOptions& options,
                                          const LoadProgress& progress) {
  const ParameterType type = [&checkpoint](std::string_view name) {
    const TensorView* tensor = checkpoint.find(name);
    return tensor == nullptr ? DType::kBF16 : tensor->dtype;
  };
  ModelConfig stored = config;
  stored.tie_word_embeddings =
      checkpoint.find("head") == nullptr;  // a stored head is used, whatever the config says
  TROUPE_ASSIGN(auto model, compile(device, stored, type, checkpoint.header_digest(), options));
  TROUPE_TRY(model->load(checkpoint, progress));
  return std::unique_ptr<Stage>(std::move(model));
}

Result<std::unique_ptr<Stage>> make_empty_stage(Device& device,
                                                const ModelConfig& config,
                                                const StageOptions& options) {
  const ParameterType type = [](std::string_view) { return DType::kF32; };
  TROUPE_ASSIGN(auto model, compile(device, config, type, "no checkpoint", options));
  return std::unique_ptr<Stage>(std::move(model));
}

}  // namespace troupe
