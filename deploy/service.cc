#include "deploy/service.h"

#include "deploy/engine.h"

#include <spdlog/spdlog.h>

#include <algorithm>

namespace troupe::deploy {
namespace {

// Longer than the node waits for its device, so that the node's own report comes first.
constexpr Time kSilenceMargin = std::chrono::seconds(30);

}  // namespace

Result<StartedNode> start_node(const ModelFiles& files,
                               const CommonOptions& options,
                               NodeOptions wanted,
                               const Clock& clock) {
  LoadRequest request;
  request.directory = files.directory;
  request.config = &files.config;
  request.stage = stage_options(files, options);
  TROUPE_ASSIGN(auto loaded, load_model(options, request, clock));
  const StageInfo& stage = loaded.stage->info();
  wanted.sequences_max = std::min(wanted.sequences_max, stage.max_segments);
  wanted.step_rows_max = std::min(wanted.step_rows_max, stage.max_rows);
  wanted.seed = entropy_seed();
  TROUPE_ASSIGN(auto engine, start_engine(std::move(loaded), files.tokenizer.get(), wanted, clock));
  return StartedNode{std::move(engine.node),
                     wanted,
                     {std::move(engine.device), std::move(engine.stage), engine.load_s}};
}

Result<std::unique_ptr<Service>> Service::start(const ModelFiles& files,
                                                const CommonOptions& options,
                                                World& world) {
  TROUPE_ASSIGN(auto started, start_node(files, options, {}, world.clock));
  world.signals.set_graceful(true);
  spdlog::info("loaded {} in {:.2f} s: kernels {} ({}), {} threads",
               files.directory.string(),
               started.setting.load_s,
               started.setting.device.kernel_set,
               started.setting.device.choice_reason,
               started.setting.device.threads);
  return std::unique_ptr<Service>(new Service(std::move(started), world));
}

Service::Service(StartedNode started, World& world)
    : world_(world),
      started_(std::move(started)),
      session_(std::make_unique<Session>(*started_.node,
                                         world.signals,
                                         world.clock,
                                         started_.options.step_deadline + kSilenceMargin)) {}

Service::~Service() {
  if (const auto stopped = started_.node->stop(kStopDeadline); !stopped) {
    spdlog::warn("the node did not stop: {}", stopped.error().message);
  }
  world_.signals.set_graceful(false);
}

ExitCode report_silence() {
  print_error("no step was made for too long: the device is stuck; giving up");
  return ExitCode::kTimedOut;
}

}  // namespace troupe::deploy
