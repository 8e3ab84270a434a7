// Node over an actor system. A thread of its own makes, keeps and destroys the system, because CAF
// must be taken down where it was set up, while the node's callers come from any thread.
#include "actors/node.h"

#include "actors/protocol.h"
#include "runtime/base/check_hook.h"
#include "runtime/text/detokenizer.h"

#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>

namespace troupe {

namespace {

constexpr std::uint32_t kSchedulerThreads =
    2;  // gateway and coordinator; devices have threads of their own
constexpr std::size_t kEventsOfABug = 64;  // printed when a check fails
constexpr Time kDestructorPatience = std::chrono::seconds(30);

class TokenizerStream final : public TextStream {
 public:
  explicit TokenizerStream(const std::shared_ptr<const Tokenizer>& tokenizer)
      : detokenizer_(tokenizer, true) {}
  std::string push(std::uint32_t token) override { return detokenizer_.push(token); }
  std::string flush() override { return detokenizer_.flush(); }

 private:
  Detokenizer detokenizer_;
};

TextStreamFactory text_streams(const Tokenizer* tokenizer) {
  if (tokenizer == nullptr) {
    return {};
  }
  // The caller keeps the tokenizer, so this shares it without owning it.
  return [shared = std::shared_ptr<const Tokenizer>(std::shared_ptr<void>(), tokenizer)] {
    return std::make_unique<TokenizerStream>(shared);
  };
}

std::string milliseconds(Time time) {
  return std::to_string(std::chrono::duration_cast<std::chrono::milliseconds>(time).count()) +
         " ms";
}

// What the threads of a node share: a value set once that others wait for.
template <class T>
class Once final {
 public:
  void set(T value) {
    {
      const std::lock_guard lock(mutex_);
      value_ = std::move(value);
    }
    changed_.notify_all();
  }
  [[nodiscard]] std::optional<T> wait(std::optional<Time> patience) {
    std::unique_lock lock(mutex_);
    const auto ready = [this] { return value_.has_value(); };
    if (patience) {
      changed_.wait_for(lock, *patience, ready);
    } else {
      changed_.wait(lock, ready);
    }
    return value_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<T> value_;
};

class NodeImpl final : public Node {
 public:
  NodeImpl(const NodeConfig& config, const StageInfo& info)
      : config_(config),
        vocab_(info.vocab),
        max_context_(info.max_context),
        max_values_(info.max_values),
        hook_([record = config.record] { record->flight().print_newest(kEventsOfABug); }) {}
  NodeImpl(const NodeImpl&) = delete;
  NodeImpl& operator=(const NodeImpl&) = delete;
  ~NodeImpl() override {
    static_cast<void>(stop(kDestructorPatience).has_value());
    if (keeper_.joinable()) {
      keeper_.join();
    }
  }

  Status launch(std::shared_ptr<DeviceParts> parts) {
    keeper_ = std::thread([this, parts = std::move(parts)]() mutable { keep(std::move(parts)); });
    return *started_.wait(std::nullopt);
  }

  Result<RequestId> submit(Request request, RequestSink sink) override;
  void cancel(RequestId id) override;
  NodeStatus status() const override { return config_.record->status(); }
  const FlightRecorder& flight() const override { return config_.record->flight(); }
  Status drain(Time deadline) override;
  Status stop(Time deadline) override;

 private:
  void keep(std::shared_ptr<DeviceParts> parts);
  Status run(std::shared_ptr<DeviceParts> parts);
  [[nodiscard]] Status check(const Request& request) const;

  NodeConfig config_;
  const std::uint32_t vocab_;
  const std::uint32_t max_context_;
  const std::uint32_t max_values_;
  std::mutex join_mutex_;
  std::thread keeper_;
  std::mutex mutex_;
  std::optional<NodeActors> actors_;  // under mutex_; empty once the system is going down
  Once<Status> started_;
  Once<bool> supervisor_ended_;
  Once<bool> ended_;
  CheckHook hook_;
};

void NodeImpl::keep(std::shared_ptr<DeviceParts> parts) {
  if (Status status = run(std::move(parts)); !status) {
    started_.set(std::move(status));
  }
  ended_.set(true);
}

Status NodeImpl::run(std::shared_ptr<DeviceParts> parts) try {
  caf::actor_system_config system_config;
  system_config.set("scheduler.policy", caf::atom("sharing"));
  system_config.set("scheduler.max-threads", kSchedulerThreads);
  caf::actor_system system(system_config);
  {
    NodeConfig config = config_;
    config.on_end = [this] { supervisor_ended_.set(true); };
    TROUPE_ASSIGN(auto actors, spawn_node(system, std::move(parts), config));
    const std::lock_guard lock(mutex_);
    actors_ = std::move(actors);
  }
  started_.set({});
  static_cast<void>(supervisor_ended_.wait(std::nullopt));
  config_.gate->close(
      Error{Kind::kDisconnected, "the node's actors have ended", std::source_location::current()});
  std::optional<NodeActors> actors;
  {
    const std::lock_guard lock(mutex_);
    actors = std::exchange(actors_, std::nullopt);
  }
  // All are dead by now unless the supervisor itself was killed.
  caf::anon_send_exit(actors->gateway, caf::exit_reason::user_shutdown);
  caf::anon_send_exit(actors->coordinator, caf::exit_reason::user_shutdown);
  caf::anon_send_exit(actors->device, caf::exit_reason::user_shutdown);
  actors.reset();  // a handle that outlives the system would block its end
  return {};
} catch (const std::exception& e) {  // border: CAF
  return error(Kind::kInternal, std::string("the actor system could not be started: ") + e.what());
}

Status NodeImpl::check(const Request& request) const {
  TROUPE_TRY(check_request(request, vocab_, max_context_));
  TROUPE_TRY(check_lists(request, vocab_, max_values_));
  if (!request.stop_strings.empty() && !config_.text) {
    return error(Kind::kInvalid,
                 "stop strings need a tokenizer; this node was started without one");
  }
  return {};
}

Result<RequestId> NodeImpl::submit(Request request, RequestSink sink) {
  if (Status checked = check(request); !checked) {
    config_.record->refused_invalid();
    return tl::unexpected(std::move(checked).error());
  }
  // Under the gate's lock actors_ is set: the gate is closed before the supervisor ends.
  return submit_request(
      std::move(request), std::move(sink), config_.gate, [this](std::shared_ptr<OpenRequest> open) {
        const std::lock_guard lock(mutex_);
        if (actors_) {
          caf::anon_send(actors_->gateway, Submit{std::move(open)});
        }
      });
}

void NodeImpl::cancel(RequestId id) {
  const std::lock_guard lock(mutex_);
  if (actors_) {
    caf::anon_send(actors_->gateway, CancelRequest{id});
  }
}

Status NodeImpl::drain(Time deadline) {
  config_.gate->close(Error{Kind::kDisconnected,
                            "the node is draining and takes no more requests",
                            std::source_location::current()});
  const Time begin = config_.clock->now();
  const bool empty = config_.gate->wait_empty(deadline);
  const std::uint32_t left = config_.gate->inside();
  TROUPE_TRY(
      stop(std::max<Time>(deadline - (config_.clock->now() - begin), std::chrono::seconds(1))));
  if (!empty) {
    return error(Kind::kOverloaded,
                 std::to_string(left) + " requests had not ended within " + milliseconds(deadline) +
                     " and were cancelled");
  }
  return {};
}

Status NodeImpl::stop(Time deadline) {
  config_.gate->close(
      Error{Kind::kDisconnected, "the node has been stopped", std::source_location::current()});
  {
    const std::lock_guard lock(mutex_);
    if (actors_) {
      caf::anon_send(actors_->supervisor, StopNode{});
    }
  }
  if (!ended_.wait(deadline)) {
    return error(Kind::kOverloaded,
                 "the node's actors had not ended within " + milliseconds(deadline) +
                     "; a device that hangs is given up some seconds later");
  }
  const std::lock_guard lock(join_mutex_);
  if (keeper_.joinable()) {
    keeper_.join();
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<Node>> Node::start(std::unique_ptr<Device> device,
                                          std::unique_ptr<Stage> stage,
                                          const Tokenizer* tokenizer,
                                          const Clock& clock,
                                          const NodeOptions& options) {
  TROUPE_CHECK(device != nullptr && stage != nullptr, "a node has a device and a stage");
  NodeConfig config;
  config.options = options;
  config.clock = &clock;
  config.text = text_streams(tokenizer);
  // What runs does not wait: so many more may be inside.
  config.record = std::make_shared<NodeRecord>(clock);
  config.gate =
      std::make_shared<AdmissionGate>(options.queue_max + options.sequences_max, config.record);
  auto node = std::make_unique<NodeImpl>(config, stage->info());
  const auto parts = std::make_shared<DeviceParts>();
  parts->device = std::move(device);
  parts->stage = std::move(stage);
  TROUPE_TRY(node->launch(parts));
  return node;
}

}  // namespace troupe
