// Executable: one compiled stage on one device. Parameters go in once, then steps run. Owned by one
// actor, never shared; all calls on that actor's thread. Optional abilities are interfaces found by
// query<I>(): a pointer is the only truth about what is supported, and capabilities() is computed
// from these pointers, so no flag can lie (ARCHITECTURE.md section 6).
//
// EX-1: nothing allocates after warm-up, on the way from commit to completion.
// EX-2: unknown names, wrong sizes and wrong dtypes are errors that name them; nothing is ignored.
// EX-3: un-waited commits never share inputs, outputs or workspace: each has a context of its own.
// EX-4: a step that names a page or block by an older generation than the device has seen is
// refused and changes nothing.
#pragma once

#include "kernels/ops.h"
#include "runtime/base/dtype.h"
#include "runtime/base/error.h"
#include "runtime/base/ids.h"
#include "runtime/base/sources.h"
#include "runtime/state/slot_pool.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

// ---- one step
// -----------------------------------------------------------------------------------------------------------------

struct SegmentInput {
  std::uint32_t rows = 0;           // rows of the step follow each other in segment order
  std::int32_t first_position = 0;  // of its first row in the sequence
  PageRef read_page;                // {0, 0}: the zero page, a sequence's start
  std::uint32_t block_row = 0;      // row of the block table
};

struct SampledInput {
  std::uint32_t row = 0;
  SampleParams params;  // values lists index StepInputs::values
};

// Borrowed by run() and commit_no_wait() for the call only; contents are copied into a context.
struct StepInputs {
  std::span<const std::int32_t>
      tokens;  // [rows] ids, or ~r: what sampled row r of ticket `source` chose
  std::span<const PageRef>
      write_pages;  // [rows]; index kNoPage: the state after this row is not kept
  std::span<const SegmentInput> segments;
  std::span<const BlockRef>
      blocks;  // [block rows][block_width], entries beyond a sequence's length unused
  std::uint32_t block_width = 0;
  std::span<const SampledInput> sampled;  // ascending rows; logits are computed for these only
  std::span<const TokenValue> values;
  TicketId source;  // the ticket that negative tokens refer to: the one committed just before
  std::span<const PageRef> freed_pages;  // freed since the last step: poisoned in checked builds
  std::span<const BlockRef> freed_blocks;
};

// Views into a context; valid until the ticket is released (run(): until the next call).
struct StepOutputs {
  std::span<const SampleResult> results;  // one per sampled row
  std::span<const float> logits;          // [sampled][vocab]
  std::uint32_t vocab = 0;
};

// ---- tensors by name, slot and dtype
// --------------------------------------------------------------------------------------------

// The input slots of a step, by name and index: 0 "tokens" I32 [T] · 1 "segments" I32 [S][3] {rows,
// first position, block row} · 2 "read_pages" I32 [S][2] {index, generation} · 3 "write_pages" I32
// [T][2] (index -1: none) · 4 "blocks" I32 [B][width][2] · 5 "sampled_rows" I32 [n] (greedy).
// Integers are also accepted as I64 by run_typed. Output slots: 0 "tokens" I32 [n] · 1 "logits" F32
// [n][V] (BF16 on request of run_typed).
struct TensorSpec {
  std::string_view name;
  DType dtype = DType::kF32;
};

struct NamedTensor {
  std::string_view name;
  DType dtype = DType::kI32;
  std::vector<std::uint32_t> shape;
  std::span<const std::byte> bytes;  // borrowed
};

struct OwnedTensor {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<std::uint32_t> shape;
  std::vector<std::byte> bytes;
};

// ---- optional interfaces
// ------------------------------------------------------------------------------------------------------

struct TicketDone {
  TicketId ticket;
  Status status;
  Time duration{0};
};

// Un-waited commits. queued -> running -> done or failed -> released; FIFO; each ticket has its own
// error.
class AsyncPipeline {
 public:
  virtual ~AsyncPipeline() = default;
  [[nodiscard]] virtual std::uint32_t depth()
      const = 0;  // contexts: commits that may be un-released at once
  // Called once per ticket, on a device thread, when it is done or failed; it may only post a
  // message. Set before any commit.
  virtual void set_completion(std::function<void(const TicketDone&)> done) = 0;
  // kOverloaded when all contexts are taken (nothing happened); kInvalid names what is wrong with
  // the inputs.
  [[nodiscard]] virtual Result<TicketId> commit_no_wait(const StepInputs& inputs) = 0;
  // Outputs of a completed ticket, or its error. kInvalid for an unknown, released or still running
  // ticket.
  [[nodiscard]] virtual Result<StepOutputs> outputs(TicketId ticket) = 0;
  virtual Status release(TicketId ticket) = 0;
  // Waits for all; kOverloaded names the tickets that were not done by the deadline.
  virtual Status sync_pending(Time deadline) = 0;
  // Independent runs with one wait: result i belongs to inputs[i]. Outputs are copied out.
  struct Pipelined {
    Status status;
    std::vector<SampleResult> results;
    std::vector<float> logits;
  };
  [[nodiscard]] virtual std::vector<Pipelined> run_pipelined(
      std::span<const StepInputs> inputs) = 0;
};

// How many rows of a compiled program were really computed.
class ActiveExtent {
 public:
  virtual ~ActiveExtent() = default;
  struct Extent {
    std::uint32_t asked = 0;     // rows of the inputs
    std::uint32_t compiled = 0;  // rows of the program that ran
    std::uint32_t honoured = 0;  // rows computed: == asked here; == compiled where a device pads
  };
  [[nodiscard]] virtual Extent last_extent() const = 0;
};

// The Philox key of sampled rows whose own key is 0.
class RngControl {
 public:
  virtual ~RngControl() = default;
  virtual void set_rng(std::uint64_t key) = 0;
  [[nodiscard]] virtual std::uint64_t rng() const = 0;
};

// State pages and KV blocks as bytes, in wire form: per layer h [nv][dk][dv] fp32 and window
// [channels][W-1] fp32; KV of a block [K|V][kv head][64][D] fp32. For checkpoints, tests and
// transfers; not on the hot path, waits for running work.
class StatePages {
 public:
  virtual ~StatePages() = default;
  [[nodiscard]] virtual std::uint32_t page_count() const = 0;
  [[nodiscard]] virtual std::uint64_t page_bytes() const = 0;
  [[nodiscard]] virtual std::uint32_t block_count() const = 0;
  [[nodiscard]] virtual std::uint64_t block_bytes() const = 0;  // of all attention layers
  struct LayerState {
    std::uint32_t layer = 0;
    std::vector<float> state;   // [nv][dk][dv]
    std::vector<float> window;  // [channels][W-1], oldest first
  };
  [[nodiscard]] virtual Result<std::vector<LayerState>> read_page(PageRef page) = 0;
  virtual Status write_page(PageRef page, std::span<const LayerState> layers) = 0;
  struct LayerKv {
    std::uint32_t layer = 0;
    std::vector<float> keys;  // [kv heads][64][D]
    std::vector<float> values;
  };
  [[nodiscard]] virtual Result<std::vector<LayerKv>> read_block(BlockRef block) = 0;
};

// ---- the core
// -----------------------------------------------------------------------------------------------------------------

class Executable {
 public:
  virtual ~Executable() = default;

  // Parameters by Troupe's names (runtime/model/checkpoint.h), whole tensors, row-major.
  virtual Status set_param(std::string_view name, std::span<const float> values) = 0;
  virtual Status set_param_typed(std::string_view name,
                                 std::span<const std::byte> bytes,
                                 DType dtype) = 0;
  // Errors name the first missing parameter and how many are missing. Steps are refused before.
  virtual Status finalize_params() = 0;

  // Runs one step and waits for it.
  [[nodiscard]] virtual Result<StepOutputs> run_raw(const StepInputs& inputs) = 0;
  // The same by name (outputs copied), by slot index (see the table above), and with a choice of
  // output dtypes.
  [[nodiscard]] virtual Result<std::vector<OwnedTensor>> run(
      std::span<const NamedTensor> inputs) = 0;
  [[nodiscard]] virtual Result<std::vector<OwnedTensor>> run_slots(
      std::span<const NamedTensor> by_slot) = 0;
  [[nodiscard]] virtual Result<std::vector<OwnedTensor>> run_typed(
      std::span<const NamedTensor> inputs, std::span<const TensorSpec> outputs) = 0;

  template <class I>
  [[nodiscard]] I* query() {
    return static_cast<I*>(find_interface(interface_id<I>()));
  }

 protected:
  using InterfaceId = const void*;
  template <class I>
  [[nodiscard]] static InterfaceId interface_id() {
    static constexpr char kId = 0;
    return &kId;
  }
  [[nodiscard]] virtual void* find_interface(InterfaceId id) = 0;
};

// Optional interfaces of Executable that no executable has yet are declared with their
// implementation, not before.
struct Capabilities {
  bool clone = false;
  bool moe = false;
  bool persistent_handles = false;
  bool gpu_handles = false;
  bool kv_resident = false;
  bool typed_io = false;
  bool async_pipeline = false;
  bool active_extent = false;
  bool operator==(const Capabilities&) const = default;
};

// Computed from the queries. typed_io belongs to the core and is always true.
[[nodiscard]] Capabilities capabilities(Executable& executable);
// In the fixed order of the struct.
[[nodiscard]] std::vector<std::string_view> enabled_names(const Capabilities& capabilities);

}  // namespace troupe
