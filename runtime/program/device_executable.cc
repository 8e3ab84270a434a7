#include "runtime/program/device_executable.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

namespace troupe {
namespace {

// Far beyond any step; a device that is silent for so long is lost.
constexpr Time kRunDeadline = std::chrono::minutes(10);

constexpr std::array<TensorSpec, 2> kOutputs = {{{"tokens", DType::kI32}, {"logits", DType::kF32}}};

}  // namespace

Result<std::unique_ptr<DeviceExecutable>> DeviceExecutable::make(CompiledStage& stage) {
  std::unique_ptr<DeviceExecutable> executable(new DeviceExecutable(stage));
  for (std::uint32_t i = 0; i < stage.info.ledger.contexts; ++i) {
    auto context = std::make_unique<StepContext>();
    context->reserve(stage.info);
    TROUPE_ASSIGN(context->workspace,
                  stage.device->allocate(stage.info.ledger.workspace_bytes,
                                         "workspace " + std::to_string(i)));
    StepContext& self = *context;
    context->done = [owner = executable.get(), &self](const WorkResult& result) {
      owner->finished(self, result);
    };
    executable->contexts_.push_back(std::move(context));
  }
  return executable;
}

DeviceExecutable::DeviceExecutable(CompiledStage& stage)
    : stage_(stage), checker_(stage.info, stage.info.ledger.pages, stage.info.ledger.blocks) {
  launch_observer_ = [this](std::size_t launch, const KernelEnv& env, const LaunchTime& time) {
    observer_(*observed_, launch, env, time);
  };
}

DeviceExecutable::~DeviceExecutable() {
  // Contexts are freed next: nothing may still run in them.
  TROUPE_CHECK(stage_.device->drain(kRunDeadline).has_value(),
               "the device did not finish its work");
}

Status DeviceExecutable::set_param(std::string_view name, std::span<const float> values) {
  return set_param_typed(name, std::as_bytes(values), DType::kF32);
}

Status DeviceExecutable::set_param_typed(std::string_view name,
                                         std::span<const std::byte> bytes,
                                         DType dtype) {
  TensorView view{.name = std::string(name),
                  .dtype = dtype,
                  .rows = stage_.parameters->rows(name),
                  .columns = stage_.parameters->columns(name),
                  .data = bytes.data()};
  const std::uint64_t expected = std::uint64_t{view.rows} * view.columns * size_of(dtype);
  if (view.rows != 0 && bytes.size() != expected) {
    return error(Kind::kInvalid,
                 "parameter " + view.name + " of shape [" + std::to_string(view.rows) + ", " +
                     std::to_string(view.columns) + "] in " + std::string(troupe::name(dtype)) +
                     " needs " + std::to_string(expected) + " bytes, " +
                     std::to_string(bytes.size()) + " were given");
  }
  ready_ = false;
  if (stage_.panel_writer != nullptr) {
    stage_.panel_writer->give_up();  // what is packed from now on is no checkpoint's
  }
  return stage_.parameters->store(view);
}

Status DeviceExecutable::finalize_params() {
  TROUPE_TRY(stage_.parameters->check_complete());
  ready_ = true;
  return {};
}

const Program& DeviceExecutable::program_for(const StepInputs& inputs) const {
  const std::size_t rows = inputs.tokens.size();
  const auto& list = rows == inputs.segments.size() && rows <= stage_.decode.back()->shape().rows
                         ? stage_.decode
                         : stage_.rows;
  const auto fits = [&](const auto& program) {
    return program->shape().rows >= rows && program->shape().sampled >= inputs.sampled.size();
  };
  const auto found = std::find_if(list.begin(), list.end(), fits);
  TROUPE_CHECK(found != list.end(), "a checked step fits no program");
  return **found;
}

StepContext* DeviceExecutable::context_of(TicketId ticket) {
  for (const auto& context : contexts_) {
    if (context->state.load(std::memory_order_acquire) != TicketState::kFree &&
        context->ticket == ticket) {
      return context.get();
    }
  }
  return nullptr;
}

void DeviceExecutable::poison(const StepInputs& inputs) {
#ifdef TROUPE_CHECKED
  for (const PageRef& page : inputs.freed_pages) {
    std::memset(stage_.page_memory->data() + page.index * stage_.states.page_bytes,
                0xff,
                stage_.states.page_bytes);
  }
  const std::uint64_t bytes = stage_.states.layer_block_bytes;
  for (const BlockRef& block : inputs.freed_blocks) {
    for (std::size_t layer = 0; layer < stage_.states.attention_layers.size(); ++layer) {
      std::memset(
          stage_.kv_memory->data() + (layer * block_count() + block.index) * bytes, 0xff, bytes);
    }
  }
#else
  static_cast<void>(inputs);
#endif
}

Result<TicketId> DeviceExecutable::commit_no_wait(const StepInputs& inputs) {
  if (!ready_) {
    return error(Kind::kInvalid, "a step was committed before finalize_params()");
  }
  std::span<const SampleResult> previous;
  if (inputs.source.value != 0) {
    const StepContext* source = context_of(inputs.source);
    if (source == nullptr) {
      return error(Kind::kInvalid,
                   "source ticket " + std::to_string(inputs.source.value) +
                       " is unknown or already released");
    }
    previous = source->results;
  }
  TROUPE_TRY(checker_.check(inputs, static_cast<std::uint32_t>(previous.size())));
  const auto free = std::find_if(contexts_.begin(), contexts_.end(), [](const auto& context) {
    return context->state.load(std::memory_order_acquire) == TicketState::kFree;
  });
  if (free == contexts_.end()) {
    return error(Kind::kOverloaded,
                 "all " + std::to_string(contexts_.size()) +
                     " contexts hold un-released tickets; release one first");
  }
  StepContext& context = **free;
  const Program& program = program_for(inputs);
  poison(inputs);
  context.fill(inputs, previous, key_);
  context.logits = program.logits();
  context.ticket = next_ticket_;
  context.state.store(TicketState::kRunning, std::memory_order_release);
  KernelEnv env;
  env.base[static_cast<std::size_t>(Arena::kWeights)] = stage_.weight_memory->data();
  env.base[static_cast<std::size_t>(Arena::kWorkspace)] = context.workspace->data();
  env.base[static_cast<std::size_t>(Arena::kPages)] = stage_.page_memory->data();
  env.base[static_cast<std::size_t>(Arena::kKv)] = stage_.kv_memory->data();
  env.step = &context.table;
  observed_ = &program;
  if (auto status =
          program.run(*stage_.device, env, observer_ ? &launch_observer_ : nullptr, context.done);
      !status) {
    context.state.store(TicketState::kFree, std::memory_order_release);
    return tl::unexpected(std::move(status).error());
  }
  checker_.accept(inputs);
  const auto asked = static_cast<std::uint32_t>(inputs.tokens.size());
  extent_ = {.asked = asked, .compiled = program.shape().rows, .honoured = asked};
  next_ticket_.value += 1;
  return context.ticket;
}

void DeviceExecutable::finished(StepContext& context, const WorkResult& result) {
  context.status = result.status;
  context.duration = result.duration;
  const TicketDone done{
      .ticket = context.ticket, .status = result.status, .duration = result.duration};
  context.state.store(TicketState::kDone, std::memory_order_release);
  if (completion_) {
    completion_(done);
  }
}

StepOutputs DeviceExecutable::view(const StepContext& context) const {
  const std::byte* base = context.workspace->data() + context.logits.offset;
  return {
      .results = context.results,
      .logits = {reinterpret_cast<const float*>(base), context.results.size() * stage_.info.vocab},
      .vocab = stage_.info.vocab};
}

Result<StepOutputs> DeviceExecutable::outputs(TicketId ticket) {
  StepContext* context = context_of(ticket);
  if (context == nullptr || context->state.load(std::memory_order_acquire) != TicketState::kDone) {
    return error(Kind::kInvalid,
                 "ticket " + std::to_string(ticket.value) +
                     (context == nullptr ? " is unknown or released" : " is still running"));
  }
  TROUPE_TRY(context->status);
  return view(*context);
}

Status DeviceExecutable::release(TicketId ticket) {
  StepContext* context = context_of(ticket);
  if (context == nullptr || context->state.load(std::memory_order_acquire) != TicketState::kDone) {
    return error(Kind::kInvalid,
                 "ticket " + std::to_string(ticket.value) +
                     (context == nullptr ? " is unknown or released"
                                         : " is still running and can't be released"));
  }
  context->state.store(TicketState::kFree, std::memory_order_release);
  return {};
}

Status DeviceExecutable::sync_pending(Time deadline) {
  if (stage_.device->drain(deadline)) {
    return {};
  }
  std::string tickets;
  for (const auto& context : contexts_) {
    if (context->state.load(std::memory_order_acquire) == TicketState::kRunning) {
      tickets += " " + std::to_string(context->ticket.value);
    }
  }
  return error(
      Kind::kOverloaded,
      "after " +
          std::to_string(std::chrono::duration_cast<std::chrono::milliseconds>(deadline).count()) +
          " ms these tickets are not done:" + tickets);
}

std::vector<AsyncPipeline::Pipelined> DeviceExecutable::run_pipelined(
    std::span<const StepInputs> inputs) {
  std::vector<Pipelined> results(inputs.size());
  for (std::size_t begin = 0; begin < inputs.size(); begin += depth()) {
    const std::size_t end = std::min<std::size_t>(begin + depth(), inputs.size());
    std::vector<Result<TicketId>> tickets;
    for (std::size_t i = begin; i < end; ++i) {
      tickets.push_back(commit_no_wait(inputs[i]));
    }
    const Status waited = sync_pending(kRunDeadline);
    for (std::size_t i = begin; i < end; ++i) {
      const auto& ticket = tickets[i - begin];
      if (!ticket || !waited) {
        results[i].status = tl::unexpected(ticket ? waited.error() : ticket.error());
        continue;
      }
      if (auto out = outputs(*ticket); out) {
        results[i].results.assign(out->results.begin(), out->results.end());
        results[i].logits.assign(out->logits.begin(), out->logits.end());
      } else {
        results[i].status = tl::unexpected(std::move(out).error());
      }
      TROUPE_CHECK(release(*ticket).has_value(), "a finished ticket can be released");
    }
  }
  return results;
}

Result<StepOutputs> DeviceExecutable::run_raw(const StepInputs& inputs) {
  if (held_.value != 0) {
    TROUPE_TRY(release(std::exchange(held_, TicketId{})));
  }
  TROUPE_ASSIGN(const TicketId ticket, commit_no_wait(inputs));
  TROUPE_TRY(sync_pending(kRunDeadline));
  held_ = ticket;
  return outputs(ticket);
}

Result<std::vector<OwnedTensor>> DeviceExecutable::run_named(std::span<const NamedTensor> inputs,
                                                             bool wide,
                                                             std::span<const TensorSpec> outputs) {
  TROUPE_ASSIGN(const StepInputs step, io_.read(inputs, wide));
  TROUPE_ASSIGN(const StepOutputs out, run_raw(step));
  return TensorIo::write(out, outputs);
}

Result<std::vector<OwnedTensor>> DeviceExecutable::run(std::span<const NamedTensor> inputs) {
  return run_named(inputs, false, kOutputs);
}

Result<std::vector<OwnedTensor>> DeviceExecutable::run_slots(std::span<const NamedTensor> by_slot) {
  TROUPE_ASSIGN(const auto named, TensorIo::by_slot(by_slot));
  return run_named(named, false, kOutputs);
}

Result<std::vector<OwnedTensor>> DeviceExecutable::run_typed(std::span<const NamedTensor> inputs,
                                                             std::span<const TensorSpec> outputs) {
  return run_named(inputs, true, outputs);
}

void* DeviceExecutable::find_interface(InterfaceId id) {
  if (id == interface_id<AsyncPipeline>()) {
    return static_cast<AsyncPipeline*>(this);
  }
  if (id == interface_id<ActiveExtent>()) {
    return static_cast<ActiveExtent*>(this);
  }
  if (id == interface_id<RngControl>()) {
    return static_cast<RngControl*>(this);
  }
  if (id == interface_id<StatePages>()) {
    return static_cast<StatePages*>(this);
  }
  return nullptr;
}

Capabilities capabilities(Executable& executable) {
  return {.typed_io = true,
          .async_pipeline = executable.query<AsyncPipeline>() != nullptr,
          .active_extent = executable.query<ActiveExtent>() != nullptr};
}

std::vector<std::string_view> enabled_names(const Capabilities& c) {
  const std::array<std::pair<bool, std::string_view>, 8> all = {
      {{c.clone, "clone"},
       {c.moe, "moe"},
       {c.persistent_handles, "persistent_handles"},
       {c.gpu_handles, "gpu_handles"},
       {c.kv_resident, "kv_resident"},
       {c.typed_io, "typed_io"},
       {c.async_pipeline, "async_pipeline"},
       {c.active_extent, "active_extent"}}};
  std::vector<std::string_view> names;
  for (const auto& [enabled, text] : all) {
    if (enabled) {
      names.push_back(text);
    }
  }
  return names;
}

}  // namespace troupe
