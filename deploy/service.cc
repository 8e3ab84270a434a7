#include "deploy/service.h"

#include <spdlog/spdlog.h>

#include <algorithm>

namespace troupe::deploy {
namespace {

// Longer than the node waits for its device, so that the node's own report comes first.
constexpr Time kSilenceMargin = std::chrono::seconds(30);

NodeOptions node_options(const StageInfo& stage) {
  NodeOptions options;
  options.sequences_max = std::min(options.sequences_max, stage.max_segments);
  options.step_rows_max = std::min(options.step_rows_max, stage.max_rows);
  options.seed = entropy_seed();
  return options;
}

}  // namespace

Result<std::unique_ptr<Service>> Service::start(const ModelFiles& files,
                                                const CommonOptions& options,
                                                World& world) {
  LoadRequest request;
  request.directory = files.directory;
  request.config = &files.config;
  request.stage = stage_options(files, options);
  TROUPE_ASSIGN(auto loaded, load_model(options, request, world.clock));
  const NodeOptions node = node_options(loaded.stage->info());
  TROUPE_ASSIGN(auto engine,
                start_engine(std::move(loaded), files.tokenizer.get(), node, world.clock));
  world.signals.set_graceful(true);
  spdlog::info("loaded {} in {:.2f} s: kernels {} ({}), {} threads",
               files.directory.string(),
               engine.load_s,
               engine.device.kernel_set,
               engine.device.choice_reason,
               engine.device.threads);
  return std::unique_ptr<Service>(new Service(std::move(engine), world));
}

Service::Service(Engine engine, World& world)
    : world_(world),
      setting_{std::move(engine.device), std::move(engine.stage), engine.load_s},
      node_(std::move(engine.node)),
      session_(std::make_unique<Session>(
          *node_, world.signals, world.clock, NodeOptions{}.step_deadline + kSilenceMargin)) {}

Service::~Service() {
  if (const auto stopped = node_->stop(kStopDeadline); !stopped) {
    spdlog::warn("the node did not stop: {}", stopped.error().message);
  }
  world_.signals.set_graceful(false);
}

ExitCode report_silence() {
  print_error("no step was made for too long: the device is stuck; giving up");
  return ExitCode::kTimedOut;
}

}  // namespace troupe::deploy
