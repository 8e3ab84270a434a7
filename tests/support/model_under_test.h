// A real model on a real CPU device, driven step by step without actors: what the golden, exactness
// and conformance tests run. Pages and blocks come from real pools; a sequence keeps one page and
// its blocks and gives back what a step replaced.
#pragma once

#include "runtime/base/sources.h"
#include "runtime/device/device.h"
#include "runtime/model/checkpoint.h"
#include "runtime/model/config.h"
#include "runtime/program/executable.h"
#include "runtime/program/stage.h"
#include "runtime/state/slot_pool.h"

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace troupe::test {

struct ModelOptions {
  std::string config_file = "config.json";
  Activation activation = Activation::kF32;
  std::string kernel_set = "scalar";
  std::uint32_t threads = 1;
  bool run_inline = true;
  StageOptions stage = {
      .max_rows = 256, .max_segments = 32, .max_sampled = 256, .pages = 70, .blocks = 160};
  LoadOptions load = {};
};

struct Sequence {
  PageRef page;  // {0, 0}: nothing has run yet
  std::vector<BlockRef> blocks;
  std::int32_t length = 0;  // tokens that have run
};

// One segment of a step.
struct Piece {
  Sequence* sequence = nullptr;
  std::vector<std::int32_t> tokens;
  SampleParams params{};    // of the sampled rows
  bool sample_all = false;  // else the last row only
  bool sample_none = false;
};

struct StepResult {
  std::vector<SampleResult> results;
  std::vector<std::vector<float>> logits;  // by sampled row
};

class ModelUnderTest final {
 public:
  static std::unique_ptr<ModelUnderTest> open(const std::filesystem::path& directory,
                                              const ModelOptions& options);

  StepResult step(std::span<const Piece> pieces);
  StepResult step(const Piece& piece) { return step(std::span(&piece, 1)); }
  void end(Sequence& sequence);  // gives pages and blocks back

  [[nodiscard]] Stage& stage() { return *stage_; }
  [[nodiscard]] Executable& executable() { return stage_->executable(); }
  [[nodiscard]] const ModelConfig& config() const { return config_; }
  [[nodiscard]] PagePool& pages() { return *pages_; }
  [[nodiscard]] BlockPool& blocks() { return *blocks_; }
  [[nodiscard]] Device& device() { return *device_; }

 private:
  SteadyClock clock_;
  ModelConfig config_;
  std::unique_ptr<Checkpoint> checkpoint_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Stage> stage_;
  std::unique_ptr<PagePool> pages_;
  std::unique_ptr<BlockPool> blocks_;
};

// The sets that this processor has; with fp32 activations only those that support them.
[[nodiscard]] std::vector<std::string> available_sets(Activation activation);
// All compiled-in sets for an activation type, available or not.
[[nodiscard]] std::vector<std::string> all_sets(Activation activation);
[[nodiscard]] std::string data_directory();  // tests/golden/data

}  // namespace troupe::test
