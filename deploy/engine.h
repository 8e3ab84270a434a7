// Engine: a device with a model loaded on it, and the node that serves it. Built by main's commands
// from options; main thread.
#pragma once

#include "actors/node.h"
#include "deploy/model_files.h"
#include "deploy/options.h"
#include "runtime/base/error.h"
#include "runtime/base/sources.h"
#include "runtime/device/device.h"
#include "runtime/model/config.h"
#include "runtime/program/stage.h"
#include "runtime/text/tokenizer.h"

#include <cstdint>
#include <filesystem>
#include <memory>

namespace troupe::deploy {

// A model on a device; the stage goes first.
struct Loaded {
  std::unique_ptr<Device> device;
  std::unique_ptr<Stage> stage;
  double load_s = 0;
  std::uint64_t decode_weight_bytes = 0;  // see decode_weight_bytes()
};

struct LoadRequest {
  std::filesystem::path directory;
  const ModelConfig* config = nullptr;
  StageOptions stage;
  std::uint32_t batch = 1;  // for Loaded::decode_weight_bytes
};

// The options of every stage that serves the model: only ids that its tokenizer knows are ever
// chosen.
[[nodiscard]] StageOptions stage_options(const ModelFiles& files, const CommonOptions& options);

[[nodiscard]] Result<std::unique_ptr<Device>> make_device(const CommonOptions& options,
                                                          const Clock& clock);

// Shows a bar on standard error when that is a terminal.
[[nodiscard]] Result<Loaded> load_model(const CommonOptions& options,
                                        const LoadRequest& request,
                                        const Clock& clock);

// Weights that a decode step of `batch` sequences reads, as packed: every matrix once, a row of the
// embedding (nothing, unless the head is tied to it), and of each layer's E experts as many as
// `batch` tokens with k choices each are expected to hit when the router spreads them evenly: E (1
// - (1 - k/E)^batch).
[[nodiscard]] std::uint64_t decode_weight_bytes(const ModelConfig& config,
                                                const Checkpoint& checkpoint,
                                                std::uint32_t batch);

// What a running node was made of.
struct Engine {
  std::unique_ptr<Node> node;
  DeviceInfo device;
  StageInfo stage;
  double load_s = 0;
};

// `tokenizer` may be null; it and the clock outlive the engine.
[[nodiscard]] Result<Engine> start_engine(Loaded loaded,
                                          const Tokenizer* tokenizer,
                                          const NodeOptions& options,
                                          const Clock& clock);

}  // namespace troupe::deploy
