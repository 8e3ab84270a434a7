#include "runtime/program/stage.h"

#include "runtime/base/sha256.h"
#include "runtime/program/device_executable.h"
#include "runtime/program/panel_file.h"
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

  // Plans become programs.
  Status compile(Device& device, const StageOptions& options) {
    stage_.device = &device;
    stage_.config = plans_.circuit.config;
    stage_.activation = options.activation;
    stage_.info = plans_.info;
    stage_.weights = plans_.weights;
    stage_.states = plans_.states;
    const std::uint32_t valid = options.valid_tokens == 0
                                    ? stage_.config.vocab_size
                                    : std::min(options.valid_tokens, stage_.config.vocab_size);
    for (const FusionPlan& plan : plans_.decode) {
      TROUPE_TRY(add(stage_.decode, plan, valid));
    }
    for (const FusionPlan& plan : plans_.rows) {
      TROUPE_TRY(add(stage_.rows, plan, valid));
    }
    Sha256 hash;
    for (const auto* list : {&stage_.decode, &stage_.rows}) {
      for (const auto& program : *list) {
        hash.update(program->plan_digest());
      }
    }
    stage_.info.plan_digest = hash.hex();
    return {};
  }

  // Memory for parameters that come later.
  Status allocate_weights() {
    TROUPE_ASSIGN(stage_.weight_memory,
                  stage_.device->allocate(stage_.info.ledger.weight_bytes, "weights"));
    stage_.parameters = std::make_unique<ParameterStore>(stage_.weights,
                                                         stage_.weight_memory->data(),
                                                         stage_.config,
                                                         ParameterStore::Arena::kZeroed);
    return {};
  }

  // Maps the packed weights where they are kept, else packs them and has them written.
  Status load_weights(const Checkpoint& checkpoint, const LoadOptions& load) {
    if (load.panel_directory.empty() || stage_.weights.bytes < load.panel_bytes_min) {
      TROUPE_TRY(allocate_weights());
      return pack(checkpoint, load.progress);
    }
    const PanelKey key = make_panel_key(checkpoint, stage_.weights, stage_.config);
    const std::filesystem::path path = load.panel_directory / key.file_name;
    if (map_panels(PanelFile(path, key.hash, stage_.weights.bytes), path, load.progress)) {
      return {};
    }
    TROUPE_TRY(allocate_weights());
    TROUPE_TRY(pack(checkpoint, load.progress));
    const auto done = load.on_panels_written ? load.on_panels_written : [](const Status&) {};
    auto writer = PanelWriter::start(
        path, key.hash, {stage_.weight_memory->data(), stage_.weights.bytes}, done);
    if (!writer) {
      done(tl::unexpected(writer.error()));  // the model runs without
      return {};
    }
    stage_.panel_writer = std::move(*writer);
    return {};
  }

  // Pages, KV blocks and the executable.
  Status finish() {
    const MemoryLedger& ledger = stage_.info.ledger;
    TROUPE_ASSIGN(stage_.page_memory,
                  stage_.device->allocate(ledger.page_bytes * ledger.pages, "state pages"));
    TROUPE_ASSIGN(stage_.kv_memory,
                  stage_.device->allocate(ledger.block_bytes * ledger.blocks, "KV blocks"));
    TROUPE_ASSIGN(executable_, DeviceExecutable::make(stage_));
    return {};
  }

  [[nodiscard]] Executable& executable() override { return *executable_; }
  [[nodiscard]] const StageInfo& info() const override { return stage_.info; }

  void observe(EdgeObserver observer) override {
    executable_->observe(
        [this, observer = std::move(observer)](
            const Program& program, std::size_t launch, const KernelEnv& env, const LaunchTime&) {
          for (const EdgeIndex e : group_of(program, launch).writes) {
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

  void observe_launches(LaunchViewer viewer) override {
    if (!viewer) {
      executable_->observe({});
      return;
    }
    executable_->observe([this, viewer = std::move(viewer)](const Program& program,
                                                            std::size_t launch,
                                                            const KernelEnv& env,
                                                            const LaunchTime& time) {
      const KernelCall& call = program.calls()[launch];
      const Group& group = group_of(program, launch);
      viewer({.kernel = call.id,
              .mode = program.shape().mode,
              .node = plans_.circuit.nodes[group.nodes.front()].name,
              .work = work_of(call.id, call.args, env),
              .time = time});
    });
  }

 private:
  [[nodiscard]] const Group& group_of(const Program& program, std::size_t launch) const {
    const auto& plans = program.shape().mode == Mode::kDecode ? plans_.decode : plans_.rows;
    return std::find_if(plans.begin(),
                        plans.end(),
                        [&](const FusionPlan& p) { return p.shape.rows == program.shape().rows; })
        ->groups[launch];
  }

  // False: the weights have to be packed, info says why.
  bool map_panels(const PanelFile& file,
                  const std::filesystem::path& path,
                  const LoadProgress& progress) {
    PanelUse& use = stage_.info.panels;
    use = {.damaged = file.fault() == PanelFile::Fault::kDamaged,
           .file = path.string(),
           .reason = file.reason()};
    if (file.fault() != PanelFile::Fault::kNone) {
      return false;
    }
    auto memory =
        stage_.device->map_file(file.fd(), file.arena_offset(), stage_.weights.bytes, "weights");
    if (!memory) {
      use.reason = memory.error().message;
      return false;
    }
    std::mutex mutex;
    std::size_t done = 0;
    std::optional<std::size_t> damaged;
    stage_.device->parallel_for(file.chunks(), [&](std::size_t i) {
      const bool intact = file.is_intact(i, (*memory)->data());
      const std::scoped_lock lock(mutex);
      if (!intact) {
        damaged = damaged ? std::min(*damaged, i) : i;
      }
      ++done;
      if (progress) {
        progress(stage_.weights.bytes * done / file.chunks(), stage_.weights.bytes);
      }
    });
    if (damaged) {
      use.damaged = true;
      use.reason = "is damaged in part " + std::to_string(*damaged + 1) + " of " +
                   std::to_string(file.chunks());
      return false;
    }
    use.mapped = true;
    stage_.weight_memory = std::move(*memory);
    stage_.parameters = std::make_unique<ParameterStore>(stage_.weights,
                                                         stage_.weight_memory->data(),
                                                         stage_.config,
                                                         ParameterStore::Arena::kPacked);
    return true;
  }

  Status pack(const Checkpoint& checkpoint, const LoadProgress& progress) {
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
    return {};
  }

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
                                          const LoadOptions& load) {
  const ParameterType type = [&checkpoint](std::string_view name) {
    const TensorView* tensor = checkpoint.find(name);
    return tensor == nullptr ? DType::kBF16 : tensor->dtype;
  };
  ModelConfig stored = config;
  stored.tie_word_embeddings =
      checkpoint.find("head") == nullptr;  // a stored head is used, whatever the config says
  TROUPE_ASSIGN(auto model, compile(device, stored, type, checkpoint.header_digest(), options));
  TROUPE_TRY(model->load_weights(checkpoint, load));
  TROUPE_TRY(model->finish());
  TROUPE_TRY(model->executable().finalize_params());
  return std::unique_ptr<Stage>(std::move(model));
}

Result<std::unique_ptr<Stage>> make_empty_stage(Device& device,
                                                const ModelConfig& config,
                                                const StageOptions& options) {
  const ParameterType type = [](std::string_view) { return DType::kF32; };
  TROUPE_ASSIGN(auto model, compile(device, config, type, "no checkpoint", options));
  TROUPE_TRY(model->allocate_weights());
  TROUPE_TRY(model->finish());
  return std::unique_ptr<Stage>(std::move(model));
}

}  // namespace troupe
