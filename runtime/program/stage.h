// Stage: everything compiled for one range of layers on one device: plans, layouts, programs,
// packed parameters, pages and KV blocks, and the Executable over them. This is where a checkpoint
// becomes something that runs.
#pragma once

#include "runtime/base/error.h"
#include "runtime/circuit/fusion_plan.h"
#include "runtime/device/device.h"
#include "runtime/model/checkpoint.h"
#include "runtime/model/config.h"
#include "runtime/program/executable.h"
#include "runtime/program/launch_work.h"

#include <bitset>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>

namespace troupe {

struct StageOptions {
  Activation activation = Activation::kBF16;
  std::uint32_t max_rows = 512;         // most rows of one step
  std::uint32_t max_segments = 128;     // most sequences of one step
  std::uint32_t max_sampled = 128;      // most sampled rows of one step
  std::uint32_t contexts = 2;           // depth of the pipeline (D)
  std::uint32_t pages = 0;              // state pages beside the zero page; 0: chosen from memory
  std::uint32_t blocks = 0;             // KV blocks; 0: chosen from memory
  std::uint32_t max_values = 1U << 16;  // most entries of all sparse sampling lists of one step
  std::bitset<kRuleCount>
      disabled_rules;              // fusion rules not to use: to prove that they keep the bits
  std::uint32_t valid_tokens = 0;  // ids the tokenizer knows; 0: all of the vocabulary
  std::uint64_t reserve_bytes = std::uint64_t{1}
                                << 30;  // memory left to others when sizes are chosen
};

// Sizes of everything, decided before anything is allocated.
struct MemoryLedger {
  std::uint64_t weight_bytes = 0;
  std::uint64_t page_bytes = 0;   // of one page
  std::uint32_t pages = 0;        // the zero page included
  std::uint64_t block_bytes = 0;  // of one block, all attention layers
  std::uint32_t blocks = 0;
  std::uint64_t workspace_bytes = 0;  // of one context
  std::uint32_t contexts = 0;
  std::uint64_t available_bytes = 0;
  [[nodiscard]] std::uint64_t total() const {
    return weight_bytes + page_bytes * pages + block_bytes * blocks + workspace_bytes * contexts;
  }
  [[nodiscard]] std::string text() const;  // a table, one line each, with the sum
};

// Where the packed weights came from.
struct PanelUse {
  bool mapped = false;   // from `file`; else they were packed
  bool damaged = false;  // `file` was there and its digests were wrong
  std::string file;      // empty: none was asked for
  std::string reason;    // why it was not used
};

struct StageInfo {
  MemoryLedger ledger;
  PanelUse panels;
  std::string arithmetic_digest;  // decision D9
  std::string plan_digest;
  std::uint32_t max_rows = 0;
  std::uint32_t max_segments = 0;
  std::uint32_t max_sampled = 0;
  std::uint32_t max_values = 0;  // entries of all sparse sampling lists of one step
  std::uint32_t vocab = 0;
  std::uint32_t max_context =
      0;  // tokens of one sequence that the KV pool can hold, at most what the model allows
};

// bytes loaded so far, bytes in all; called from loading threads, one at a time.
using LoadProgress = std::function<void(std::uint64_t done, std::uint64_t total)>;

struct LoadOptions {
  LoadProgress progress{};
  // Where packed weights are kept (panel_file.h): mapped when they are there and intact, else
  // written in the background once they are packed. Empty: never. Weights of fewer bytes than
  // panel_bytes_min are packed faster than a file is worth.
  std::filesystem::path panel_directory{};
  std::uint64_t panel_bytes_min = std::uint64_t{64} << 20;
  // How the writing ended, kCancelled included; on a thread of the stage's.
  std::function<void(const Status&)> on_panels_written{};
};

class Stage {
 public:
  virtual ~Stage() = default;
  [[nodiscard]] virtual Executable& executable() = 0;
  [[nodiscard]] virtual const StageInfo& info() const = 0;
  // For tests and traces: called after every launch of every later step with the names of the edges
  // it wrote.
  struct EdgeView {
    std::string_view name;  // e.g. "layers.3.mixer_out"
    Ref place;
    std::uint32_t width = 0;  // elements of a row
    bool f32 = false;         // else u32 ids when `integer`, else act
    bool integer = false;
  };
  using EdgeObserver = std::function<void(const EdgeView& edge, const KernelEnv& env)>;
  virtual void observe(EdgeObserver observer) = 0;

  // For profiles: called after every launch of every later step. It and `observe` replace each
  // other; an empty one ends it. Views are valid during the call.
  struct LaunchView {
    KernelId kernel = KernelId::kEmbed;
    Mode mode = Mode::kDecode;  // of the program
    std::string_view node;      // the first that the launch covers, e.g. "layers.3.gdn.qkv"
    LaunchWork work;
    LaunchTime time;
  };
  using LaunchViewer = std::function<void(const LaunchView& launch)>;
  virtual void observe_launches(LaunchViewer viewer) = 0;
};

// Compiles, allocates and loads a whole model on one device. The device must outlive the stage.
[[nodiscard]] Result<std::unique_ptr<Stage>> make_stage(Device& device,
                                                        const ModelConfig& config,
                                                        const Checkpoint& checkpoint,
                                                        const StageOptions& options,
                                                        const LoadOptions& load = {});

// The same without parameters: for Executable::set_param.
[[nodiscard]] Result<std::unique_ptr<Stage>> make_empty_stage(Device& device,
                                                              const ModelConfig& config,
                                                              const StageOptions& options);

}  // namespace troupe
