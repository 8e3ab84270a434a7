#include "deploy/engine.h"

#include "deploy/progress.h"
#include "runtime/model/checkpoint.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <string_view>

namespace troupe::deploy {
namespace {

std::uint64_t stored_bytes(const TensorView& tensor) {
  const auto elements = std::uint64_t{tensor.rows} * tensor.columns;
  return tensor.rows == 1 ? elements * sizeof(float)
                          : elements * size_of(panel_format(tensor.dtype));
}

// Where packed weights are kept, and what the log hears of it.
LoadOptions load_options(const CommonOptions& options,
                         const std::filesystem::path& model,
                         ProgressBar& bar) {
  LoadOptions load;
  load.progress = [&bar](std::uint64_t done, std::uint64_t total) { bar.show(done, total); };
  if (options.packed_weights == "off") {
    return load;
  }
  // A folder that was asked for should work; the model's own is often read-only.
  const bool asked = !options.packed_weights.empty();
  load.panel_directory = asked ? std::filesystem::path(options.packed_weights) : model;
  load.on_panels_written = [asked](const Status& status) {
    if (status) {
      spdlog::info("the packed weights are written: the next start maps them");
    } else if (status.error().kind != Kind::kCancelled) {
      spdlog::log(asked ? spdlog::level::warn : spdlog::level::info,
                  "{}; the next start packs them again (--packed-weights names another folder)",
                  status.error().message);
    }
  };
  return load;
}

void log_panels(const PanelUse& use) {
  if (use.mapped) {
    spdlog::info("packed weights mapped from {}", use.file);
  } else if (use.damaged) {
    spdlog::warn("packed weights {} {}: packed again from the checkpoint", use.file, use.reason);
  } else if (!use.file.empty()) {
    spdlog::info("weights packed from the checkpoint: {} {}", use.file, use.reason);
  }
}

}  // namespace

StageOptions stage_options(const ModelFiles& files, const CommonOptions& options) {
  StageOptions stage;
  stage.activation = options.activation;
  if (files.tokenizer != nullptr) {
    stage.valid_tokens = std::min(files.tokenizer->vocab_size(), files.config.vocab_size);
  }
  return stage;
}

Result<std::unique_ptr<Device>> make_device(const CommonOptions& options, const Clock& clock) {
  CpuDeviceOptions device;
  device.threads = options.threads;
  device.kernel_set = options.kernels;
  device.activation = options.activation;
  return make_cpu_device(device, clock);
}

std::uint64_t decode_weight_bytes(const ModelConfig& config,
                                  const Checkpoint& checkpoint,
                                  std::uint32_t batch) {
  const double hit =
      config.experts == 0
          ? 0
          : 1 - std::pow(1 - static_cast<double>(config.experts_per_token) / config.experts, batch);
  double bytes = 0;
  for (const auto& tensor : checkpoint.tensors()) {
    const std::string_view name = tensor.name;
    if (name.starts_with("mtp.") || (name == "embed" && !config.tie_word_embeddings)) {
      continue;
    }
    const bool expert = name.find(".experts.") != std::string_view::npos;
    bytes += static_cast<double>(stored_bytes(tensor)) * (expert ? hit : 1);
  }
  return static_cast<std::uint64_t>(bytes);
}

Result<Loaded> load_model(const CommonOptions& options,
                          const LoadRequest& request,
                          const Clock& clock) {
  const Time begin = clock.now();
  Loaded loaded;
  TROUPE_ASSIGN(const auto checkpoint, Checkpoint::open(request.directory, *request.config));
  TROUPE_ASSIGN(loaded.device, make_device(options, clock));
  ProgressBar bar("loading " + request.directory.lexically_normal().filename().string());
  TROUPE_ASSIGN(loaded.stage,
                make_stage(*loaded.device,
                           *request.config,
                           *checkpoint,
                           request.stage,
                           load_options(options, request.directory, bar)));
  log_panels(loaded.stage->info().panels);
  loaded.load_s = in_seconds(clock.now() - begin);
  loaded.decode_weight_bytes = decode_weight_bytes(*request.config, *checkpoint, request.batch);
  return loaded;
}

Result<Engine> start_engine(Loaded loaded,
                            const Tokenizer* tokenizer,
                            const NodeOptions& options,
                            const Clock& clock) {
  Engine engine;
  engine.device = loaded.device->info();
  engine.stage = loaded.stage->info();
  engine.load_s = loaded.load_s;
  TROUPE_ASSIGN(
      engine.node,
      Node::start(std::move(loaded.device), std::move(loaded.stage), tokenizer, clock, options));
  return engine;
}

}  // namespace troupe::deploy
