// The demo model with room for a BenchShape, on one thread: what the tests of BenchRun and Profile
// drive.
#pragma once

#include "deploy/bench_run.h"
#include "deploy/engine.h"
#include "runtime/model/config.h"

#include <string>

namespace troupe::deploy {

inline constexpr const char* kDemo = TROUPE_SOURCE_DIR "/models/demo";

// Sets the shape's vocabulary. `kernels` empty: the kernel set that is measured to be best.
[[nodiscard]] inline Result<Loaded> load_demo(BenchShape& shape,
                                              const std::string& kernels,
                                              const StageOptions& stage,
                                              const Clock& clock) {
  TROUPE_ASSIGN(const auto config, read_model_config(kDemo));
  shape.vocab = config.vocab_size;
  CommonOptions common;
  common.kernels = kernels;
  common.threads = 1;
  LoadRequest request;
  request.directory = kDemo;
  request.config = &config;
  request.batch = shape.batch;
  request.stage = stage;
  request.stage.pages = bench_pages(shape);
  request.stage.blocks = bench_blocks(shape);
  return load_model(common, request, clock);
}

}  // namespace troupe::deploy
