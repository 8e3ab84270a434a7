// The gateway: every admitted request from Submit to its last event: seed, text, stop strings,
// cancellation, statistics.
#include "actors/protocol.h"
#include "runtime/serve/stop_strings.h"

#include <map>
#include <string>
#include <utility>

namespace troupe {

namespace {

struct Stream {
  std::shared_ptr<OpenRequest> open;
  std::unique_ptr<TextStream> text;  // may be null
  StopMatcher matcher;
  Time admitted{0};
  Time last_token{0};
  RequestStats stats;
};

struct GatewayState {
  GatewayState() : rng(0) {}  // CAF would build an aggregate from the self pointer

  static constexpr const char* name = "gateway";
  const Clock* clock = nullptr;
  TextStreamFactory text;
  std::shared_ptr<AdmissionGate> gate;
  std::shared_ptr<NodeRecord> record;
  CoordinatorHandle coordinator;
  Rng rng;
  std::map<RequestId, Stream> streams;
};
static_assert(!std::is_aggregate_v<GatewayState>);

using Self = GatewayHandle::stateful_pointer<GatewayState>;

void submit(Self self, const std::shared_ptr<OpenRequest>& open) {
  auto& state = self->state;
  const Request& request = *open->request();
  std::uint64_t seed = 0;
  while (seed == 0) {  // a key of 0 means "the executable's own"
    seed = state.rng.next();
  }
  seed = request.sampling.seed.value_or(seed);
  Stream stream{open,
                state.text ? state.text() : nullptr,
                StopMatcher(request.stop_strings),
                state.clock->now(),
                {},
                {}};
  stream.stats.prompt_tokens = static_cast<std::uint32_t>(request.prompt.size());
  stream.stats.seed = seed;
  state.streams.emplace(open->id(), std::move(stream));
  state.record->begin_work(NodeActor::kCoordinator);
  self->send(state.coordinator, Admit{open->id(), open->request(), seed});
}

// Text of the tokens, up to a stop string; the event loses the tokens after the one that completed
// it.
void add_text(Stream& stream, RequestEvent& event, bool ends_with_stop_token) {
  if (!stream.text) {
    return;
  }
  const std::size_t count = event.tokens.size() - (ends_with_stop_token ? 1 : 0);
  for (std::size_t i = 0; i < count; ++i) {
    event.text += stream.matcher.push(stream.text->push(event.tokens[i].token));
    if (stream.matcher.matched()) {
      event.tokens.resize(i + 1);
      return;
    }
  }
  // A text that was broken off keeps back what might have become a stop string.
  if (event.finished &&
      (event.reason == FinishReason::kStop || event.reason == FinishReason::kLength)) {
    event.text += stream.matcher.push(stream.text->flush());
    event.text += stream.matcher.flush();
  }
}

void pass_on(Self self, const SequenceEvent& news) {
  auto& state = self->state;
  const auto found = state.streams.find(news.id);
  if (found == state.streams.end()) {
    return;  // ended by a stop string before
  }
  Stream& stream = found->second;
  RequestEvent event;
  event.tokens = news.tokens;
  event.prompt = news.prompt;
  event.finished = news.finished;
  event.reason = news.reason;
  if (news.failure) {
    event.failure.emplace(*news.failure);
  }
  add_text(
      stream, event, news.finished && news.reason == FinishReason::kStop && !event.tokens.empty());
  if (stream.matcher.matched()) {
    if (!event.finished) {
      self->send(state.coordinator, CancelRequest{news.id});
    }
    event.finished = true;
    event.reason = FinishReason::kStop;
    event.failure.reset();
  }
  const Time now = state.clock->now();
  const Time age = now - stream.admitted;
  const bool first = stream.stats.generated_tokens == 0 && !event.tokens.empty();
  if (first) {
    stream.stats.first_token_ns = age.count();
  }
  stream.stats.generated_tokens += static_cast<std::uint32_t>(event.tokens.size());
  stream.stats.preemptions = news.preemptions;
  stream.stats.queue_ns = std::max<std::int64_t>((news.first_step - stream.admitted).count(), 0);
  stream.stats.total_ns = age.count();
  if (first) {
    state.record->first_tokens(stream.stats);
  }
  if (!event.tokens.empty()) {
    state.record->tokens(event.tokens.size(), first ? Time{0} : now - stream.last_token);
    stream.last_token = now;
  }
  event.stats = stream.stats;
  if (!event.finished) {
    stream.open->report(std::move(event));
    return;
  }
  const auto open = std::move(stream.open);
  state.streams.erase(found);
  open->report(std::move(event));
}

void end_all(Self self, FinishReason reason, const std::optional<Error>& failure) {
  auto streams = std::exchange(self->state.streams, {});
  for (auto& [id, stream] : streams) {
    RequestEvent event;
    event.finished = true;
    event.reason = reason;
    if (failure) {
      event.failure.emplace(*failure);
    }
    event.stats = stream.stats;
    event.stats.total_ns = (self->state.clock->now() - stream.admitted).count();
    stream.open->report(std::move(event));
  }
}

GatewayHandle::behavior_type gateway_actor(Self self,
                                           const NodeConfig& config,
                                           const CoordinatorHandle& coordinator) {
  auto& state = self->state;
  state.clock = config.clock;
  state.text = config.text;
  state.gate = config.gate;
  state.record = config.record;
  state.coordinator = coordinator;
  state.rng = Rng(config.options.seed);
  self->set_exit_handler([self](caf::exit_msg& message) {
    end_all(self, FinishReason::kCancelled, std::nullopt);
    self->quit(message.reason);
  });
  return {
      [self](const Submit& message) {
        submit(self, message.request);
        self->state.record->end_work(NodeActor::kGateway);
      },
      [self](const CancelRequest& message) {
        if (self->state.streams.contains(message.id)) {
          self->state.record->cancelled(message.id);
          self->send(self->state.coordinator, message);
        }
      },
      [self](const News& message) {
        for (const auto& event : *message.events) {
          pass_on(self, event);
        }
        self->state.record->end_work(NodeActor::kGateway);
      },
      [self](const StageLost& message) {
        self->state.gate->close(message.why);
        end_all(self, FinishReason::kError, message.why);
      },
  };
}

}  // namespace

GatewayHandle spawn_gateway(caf::actor_system& system,
                            const NodeConfig& config,
                            const CoordinatorHandle& coordinator) {
  return system.spawn(gateway_actor, config, coordinator);
}

}  // namespace troupe
