#include "tests/support/fake_stage.h"

#include "runtime/serve/step.h"
#include "tests/support/fake_token.h"

#include <algorithm>
#include <array>
#include <deque>
#include <map>
#include <mutex>
#include <set>
#include <utility>

namespace troupe {

namespace {

constexpr std::uint64_t kGarbage = 0xbadbadbadbadULL;

struct Page {
  std::uint32_t generation = 0;
  std::uint64_t hash = kGarbage;
  std::uint32_t length = 0;
};

struct Block {
  std::uint32_t generation = 0;
  std::array<std::int64_t, kBlockTokens> tokens{};
};

struct Ticket {
  StepPlan step;  // a copy of the inputs
  FakeFault fault = FakeFault::kNone;
  bool done = false;
  Status status;
  std::vector<SampleResult> results;
};

class Core {
 public:
  explicit Core(const FakeStageOptions& options)
      : options_(options), pages_(options.pages), blocks_(options.blocks) {
    pages_[0].hash = kFakeEmptyHistory;
  }

  Result<TicketId> commit(const StepInputs& inputs);
  void run_next();
  Result<StepOutputs> outputs(TicketId id);
  Status release(TicketId id);
  void close() {
    const std::lock_guard lock(mutex_);
    closed_ = true;
  }
  void set_completion(std::function<void(const TicketDone&)> done) { done_ = std::move(done); }
  std::vector<std::string> violations() const {
    const std::lock_guard lock(mutex_);
    return violations_;
  }
  std::uint64_t last() const {
    const std::lock_guard lock(mutex_);
    return last_;
  }
  const FakeStageOptions& options() const { return options_; }

 private:
  Status check_shape(const StepInputs& inputs) const;
  Status check_generations(const StepInputs& inputs) const;
  void check_aliases(const StepInputs& inputs);
  void run(Ticket& ticket);
  void run_segment(Ticket& ticket, const SegmentInput& segment, std::uint32_t first_row);
  void spoil(const Ticket& ticket);
  void poison(const Ticket& ticket);
  std::uint64_t history(const StepPlan& step, const SegmentInput& segment);
  Block& block(const StepPlan& step, const SegmentInput& segment, std::uint32_t position);
  void violate(std::string what) {
    violations_.push_back("ticket " + std::to_string(running_) + ": " + std::move(what));
  }

  FakeStageOptions options_;
  mutable std::mutex mutex_;
  std::vector<Page> pages_;
  std::vector<Block> blocks_;
  std::map<std::uint64_t, Ticket> tickets_;
  std::deque<std::uint64_t> queue_;
  std::function<void(const TicketDone&)> done_;
  std::vector<std::string> violations_;
  std::uint64_t last_ = 0;
  std::uint64_t running_ = 0;
  bool closed_ = false;
  bool mute_ = false;
};

Status Core::check_shape(const StepInputs& in) const {
  std::size_t rows = 0;
  for (const auto& segment : in.segments) {
    rows += segment.rows;
    if (segment.rows == 0 ||
        (segment.block_row + 1) * std::size_t{in.block_width} > in.blocks.size()) {
      return error(Kind::kInvalid, "a segment without rows or without a row in the block table");
    }
  }
  if (rows == 0 || rows > options_.max_rows || rows != in.tokens.size() ||
      rows != in.write_pages.size() || in.segments.size() > options_.max_segments ||
      in.sampled.size() > std::max(options_.max_sampled, options_.max_segments)) {
    return error(Kind::kInvalid, "the step's sizes do not fit: " + std::to_string(rows) + " rows");
  }
  for (std::size_t i = 0; i < in.sampled.size(); ++i) {
    if (in.sampled[i].row >= rows || (i > 0 && in.sampled[i].row <= in.sampled[i - 1].row)) {
      return error(Kind::kInvalid, "sampled rows do not ascend");
    }
  }
  return {};
}

Status Core::check_generations(const StepInputs& in) const {
  const auto page_ok = [this](PageRef ref) {
    return ref.index < pages_.size() && ref.generation >= pages_[ref.index].generation;
  };
  for (const auto& segment : in.segments) {
    if (!page_ok(segment.read_page)) {
      return error(Kind::kInvalid, "stale page " + std::to_string(segment.read_page.index));
    }
  }
  for (const PageRef ref : in.write_pages) {
    if (ref.index != kNoPage && (ref.index == kZeroPage || !page_ok(ref))) {
      return error(Kind::kInvalid, "stale or zero page " + std::to_string(ref.index) + " written");
    }
  }
  return {};
}

// What is written by one un-released ticket may be neither read nor written by another.
void Core::check_aliases(const StepInputs& in) {
  std::set<std::uint32_t> read, written;
  for (const auto& segment : in.segments) {
    read.insert(segment.read_page.index);
  }
  for (const PageRef ref : in.write_pages) {
    if (ref.index != kNoPage && !written.insert(ref.index).second) {
      violate("page " + std::to_string(ref.index) + " is written twice");
    }
  }
  for (const auto& [id, other] : tickets_) {
    for (const PageRef ref : other.step.write_pages) {
      if (!other.done && (read.contains(ref.index) || written.contains(ref.index))) {
        violate("page " + std::to_string(ref.index) + " is still written by ticket " +
                std::to_string(id));
      }
    }
    for (const auto& segment : other.step.segments) {
      if (!other.done && written.contains(segment.read_page.index)) {
        violate("page " + std::to_string(segment.read_page.index) + " is still read by ticket " +
                std::to_string(id));
      }
    }
  }
}

Result<TicketId> Core::commit(const StepInputs& in) {
  std::function<void(std::function<void()>)> defer;
  TicketId id;
  {
    const std::lock_guard lock(mutex_);
    if (tickets_.size() >= options_.contexts) {
      return error(Kind::kOverloaded, "all contexts are taken");
    }
    running_ = last_ + 1;
    for (const Status& status : {check_shape(in), check_generations(in)}) {
      if (!status) {
        violate(status.error().message);
        return tl::unexpected(status.error());
      }
    }
    check_aliases(in);
    Ticket ticket;
    ticket.step = {.id = StepId{},
                   .tokens = {in.tokens.begin(), in.tokens.end()},
                   .write_pages = {in.write_pages.begin(), in.write_pages.end()},
                   .segments = {in.segments.begin(), in.segments.end()},
                   .blocks = {in.blocks.begin(), in.blocks.end()},
                   .block_width = in.block_width,
                   .sampled = {in.sampled.begin(), in.sampled.end()},
                   .values = {in.values.begin(), in.values.end()},
                   .freed_pages = {in.freed_pages.begin(), in.freed_pages.end()},
                   .freed_blocks = {in.freed_blocks.begin(), in.freed_blocks.end()}};
    id = TicketId{++last_};
    ticket.fault = options_.fault ? options_.fault(id) : FakeFault::kNone;
    tickets_.emplace(id.value, std::move(ticket));
    queue_.push_back(id.value);
  }
  return id;
}

void Core::run_next() {
  const std::lock_guard lock(mutex_);
  if (closed_ || queue_.empty() || mute_) {
    return;
  }
  const std::uint64_t id = queue_.front();
  queue_.pop_front();
  Ticket& ticket = tickets_.at(id);
  if (ticket.fault == FakeFault::kSilent) {
    mute_ = true;
    return;
  }
  running_ = id;
  run(ticket);
  ticket.done = true;
  const int reports = ticket.fault == FakeFault::kTwice ? 2 : 1;
  for (int i = 0; i < reports && done_; ++i) {
    done_({TicketId{id}, ticket.status, Time{1}});
  }
}

void Core::poison(const Ticket& ticket) {
  for (const PageRef ref : ticket.step.freed_pages) {
    pages_[ref.index].hash = kGarbage;
  }
  for (const BlockRef ref : ticket.step.freed_blocks) {
    blocks_[ref.index].tokens.fill(-1);
  }
}

void Core::run(Ticket& ticket) {
  poison(ticket);
  std::uint32_t row = 0;
  for (const auto& segment : ticket.step.segments) {
    run_segment(ticket, segment, row);
    row += segment.rows;
  }
  if (ticket.fault == FakeFault::kFail) {
    spoil(ticket);
    ticket.results.clear();
    ticket.status = error(Kind::kInternal, "the fake device failed as asked");
  } else if (ticket.fault == FakeFault::kSpoilPage) {
    spoil(ticket);
  } else if (ticket.fault == FakeFault::kWrongToken) {
    for (auto& result : ticket.results) {
      result.token = (result.token + 1) % static_cast<std::int32_t>(options_.vocab);
    }
  }
}

void Core::spoil(const Ticket& ticket) {
  for (const PageRef ref : ticket.step.write_pages) {
    if (ref.index != kNoPage) {
      pages_[ref.index].hash = kGarbage;
    }
  }
}

Block& Core::block(const StepPlan& step, const SegmentInput& segment, std::uint32_t position) {
  const std::size_t entry =
      std::size_t{segment.block_row} * step.block_width + position / kBlockTokens;
  const BlockRef ref = step.blocks.at(entry);
  Block& found = blocks_.at(ref.index);
  if (ref.generation < found.generation) {
    violate("block " + std::to_string(ref.index) + " is named by an old generation");
  } else if (ref.generation > found.generation) {
    found.generation = ref.generation;
    found.tokens.fill(-1);
  }
  return found;
}

// The hash of the tokens before the segment as its blocks hold them; its read page must hold the
// same.
std::uint64_t Core::history(const StepPlan& step, const SegmentInput& segment) {
  std::uint64_t hash = kFakeEmptyHistory;
  const auto length = static_cast<std::uint32_t>(segment.first_position);
  for (std::uint32_t position = 0; position < length; ++position) {
    hash = fake_mix(
        hash,
        static_cast<std::uint64_t>(block(step, segment, position).tokens[position % kBlockTokens]));
  }
  const Page& page = pages_[segment.read_page.index];
  if (page.generation != segment.read_page.generation || page.length != length ||
      page.hash != hash) {
    violate("page " + std::to_string(segment.read_page.index) + " does not hold the " +
            std::to_string(length) + " tokens before the segment");
  }
  return page.hash;
}

void Core::run_segment(Ticket& ticket, const SegmentInput& segment, std::uint32_t first_row) {
  const StepPlan& step = ticket.step;
  std::uint64_t hash = history(step, segment);
  for (std::uint32_t i = 0; i < segment.rows; ++i) {
    const std::uint32_t row = first_row + i;
    const std::uint32_t position = static_cast<std::uint32_t>(segment.first_position) + i;
    const auto token = static_cast<std::uint64_t>(step.tokens[row]);
    hash = fake_mix(hash, token);
    block(step, segment, position).tokens[position % kBlockTokens] =
        static_cast<std::int64_t>(token);
    if (const PageRef ref = step.write_pages[row]; ref.index != kNoPage) {
      if (ref == segment.read_page && segment.rows != 1) {
        violate("page " + std::to_string(ref.index) + " is written in place by several rows");
      }
      pages_[ref.index] = {ref.generation, hash, position + 1};
    }
    const auto sampled =
        std::find_if(step.sampled.begin(), step.sampled.end(), [row](const SampledInput& input) {
          return input.row == row;
        });
    if (sampled != step.sampled.end()) {
      const SampleParams& params = sampled->params;
      const std::uint32_t chosen =
          params.forced >= 0 ? static_cast<std::uint32_t>(params.forced)
                             : fake_token(hash, position, params, step.values, options_.vocab);
      ticket.results.push_back(fake_report(hash, chosen, params, options_.vocab));
    }
  }
}

Result<StepOutputs> Core::outputs(TicketId id) {
  const std::lock_guard lock(mutex_);
  const auto found = tickets_.find(id.value);
  if (found == tickets_.end() || !found->second.done) {
    return error(Kind::kInvalid, "ticket " + std::to_string(id.value) + " is unknown or running");
  }
  if (!found->second.status) {
    return tl::unexpected(found->second.status.error());
  }
  return StepOutputs{.results = found->second.results, .logits = {}, .vocab = options_.vocab};
}

Status Core::release(TicketId id) {
  const std::lock_guard lock(mutex_);
  const auto found = tickets_.find(id.value);
  if (found == tickets_.end() || !found->second.done) {
    return error(Kind::kInvalid, "ticket " + std::to_string(id.value) + " is unknown or running");
  }
  tickets_.erase(found);
  return {};
}

class FakeStageImpl final : public FakeStage, private Executable, private AsyncPipeline {
 public:
  explicit FakeStageImpl(const FakeStageOptions& options) : core_(std::make_shared<Core>(options)) {
    info_.ledger.pages = options.pages;
    info_.ledger.blocks = options.blocks;
    info_.ledger.contexts = options.contexts;
    info_.max_rows = options.max_rows;
    info_.max_segments = options.max_segments;
    info_.max_sampled = options.max_sampled != 0 ? options.max_sampled : options.max_segments;
    info_.max_values = 1U << 16;
    info_.vocab = options.vocab;
    info_.max_context =
        options.max_context != 0 ? options.max_context : options.blocks * kBlockTokens;
  }
  ~FakeStageImpl() override { core_->close(); }

  Executable& executable() override { return *this; }
  const StageInfo& info() const override { return info_; }
  void observe(EdgeObserver) override {}
  void observe_launches(LaunchViewer) override {}
  std::vector<std::string> violations() const override { return core_->violations(); }
  std::uint64_t tickets() const override { return core_->last(); }

 private:
  static tl::unexpected<Error> none() {
    return error(Kind::kUnsupported, "the fake stage has no parameters");
  }
  Status set_param(std::string_view, std::span<const float>) override { return none(); }
  Status set_param_typed(std::string_view, std::span<const std::byte>, DType) override {
    return none();
  }
  Status finalize_params() override { return {}; }
  Result<StepOutputs> run_raw(const StepInputs&) override { return none(); }
  Result<std::vector<OwnedTensor>> run(std::span<const NamedTensor>) override { return none(); }
  Result<std::vector<OwnedTensor>> run_slots(std::span<const NamedTensor>) override {
    return none();
  }
  Result<std::vector<OwnedTensor>> run_typed(std::span<const NamedTensor>,
                                             std::span<const TensorSpec>) override {
    return none();
  }
  void* find_interface(InterfaceId id) override {
    return id == interface_id<AsyncPipeline>() ? static_cast<AsyncPipeline*>(this) : nullptr;
  }

  std::uint32_t depth() const override { return core_->options().contexts; }
  void set_completion(std::function<void(const TicketDone&)> done) override {
    core_->set_completion(std::move(done));
  }
  Result<TicketId> commit_no_wait(const StepInputs& inputs) override {
    auto ticket = core_->commit(inputs);
    if (ticket && core_->options().defer) {
      core_->options().defer([weak = std::weak_ptr<Core>(core_)] {
        if (const auto core = weak.lock()) {
          core->run_next();
        }
      });
    } else if (ticket) {
      core_->run_next();
    }
    return ticket;
  }
  Result<StepOutputs> outputs(TicketId ticket) override { return core_->outputs(ticket); }
  Status release(TicketId ticket) override { return core_->release(ticket); }
  Status sync_pending(Time) override {
    return {};
  }  // deferred work may come at any time: it finds the core closed
  std::vector<Pipelined> run_pipelined(std::span<const StepInputs>) override { return {}; }

  std::shared_ptr<Core> core_;
  StageInfo info_;
};

class FakeDevice final : public Device {
 public:
  FakeDevice() { info_.name = "fake:0"; }
  const DeviceInfo& info() const override { return info_; }
  const KernelSet& kernels() const override { return kernels_; }
  Result<std::unique_ptr<Buffer>> allocate(std::size_t, const std::string& purpose) override {
    return error(Kind::kUnsupported, "the fake device has no memory for " + purpose);
  }
  Result<std::unique_ptr<Buffer>> map_file(int,
                                           std::uint64_t,
                                           std::size_t,
                                           const std::string& purpose) override {
    return error(Kind::kUnsupported, "the fake device maps no file for " + purpose);
  }
  Status submit(const Work&) override {
    return error(Kind::kUnsupported, "the fake device runs nothing");
  }
  void parallel_for(std::size_t count, const std::function<void(std::size_t)>& f) override {
    for (std::size_t i = 0; i < count; ++i) {
      f(i);
    }
  }
  Status drain(Time) override { return {}; }
  DeviceStats stats() const override { return {}; }

 private:
  DeviceInfo info_;
  KernelSet kernels_;
};

}  // namespace

std::unique_ptr<FakeStage> make_fake_stage(const FakeStageOptions& options) {
  return std::make_unique<FakeStageImpl>(options);
}

std::unique_ptr<Device> make_fake_device() {
  return std::make_unique<FakeDevice>();
}

}  // namespace troupe
