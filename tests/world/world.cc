#include "tests/world/world.h"

#include "tests/world/sim_node.h"

#include <algorithm>
#include <set>
#include <utility>

namespace troupe {

namespace {

constexpr std::uint32_t kVocab = 64;
constexpr Time kWorldTime = std::chrono::hours(6);  // far more than any honest world takes

std::uint32_t between(Rng& rng, std::uint64_t low, std::uint64_t high) {
  return static_cast<std::uint32_t>(low + rng.below(high - low + 1));
}

// All that a seed decides beforehand. Each fault is off in most worlds, so that they are met alone
// as well as together.
struct Knobs {
  std::uint32_t pages, blocks, contexts, rows, sequences, sampled, queue, requests;
  std::uint32_t step_us_max, arrival_us_max;
  std::uint32_t fail_percent = 0, twice_percent = 0, cancel_percent = 0;
  std::uint32_t silent_at = 0, kill_device_at_us = 0, stop_at_us = 0;
  bool tight;  // many long answers at once on few blocks: preemption

  explicit Knobs(Rng& rng)
      : pages(between(rng, 2, 10)),
        blocks(between(rng, 3, 12)),
        contexts(between(rng, 1, 2)),
        rows(between(rng, 1, 48)),
        sequences(between(rng, 1, 8)),
        sampled(sequences + between(rng, 0, 24)),
        queue(between(rng, 1, 12)),
        requests(between(rng, 1, 12)),
        step_us_max(between(rng, 0, 20000)),
        arrival_us_max(between(rng, 0, 200000)),
        tight(rng.below(3) == 0) {
    if (tight) {
      pages = 10;
      blocks = between(rng, 3, 6);
      rows = between(rng, 8, 48);
      sequences = queue = between(rng, 3, 8);
      sampled = sequences + between(rng, 0, 24);
      requests = between(rng, 4, 12);
      arrival_us_max = 0;
    }
    fail_percent = rng.below(4) == 0 ? between(rng, 1, 20) : 0;
    twice_percent = rng.below(4) == 0 ? 30 : 0;
    cancel_percent = rng.below(2) == 0 ? between(rng, 5, 60) : 0;
    silent_at = rng.below(10) == 0 ? between(rng, 1, 40) : 0;
    kill_device_at_us = rng.below(10) == 0 ? between(rng, 1, 400000) : 0;
    stop_at_us = rng.below(5) == 0 ? between(rng, 1, 400000) : 0;
  }
  [[nodiscard]] bool faulty() const { return fail_percent + silent_at + kill_device_at_us > 0; }
  [[nodiscard]] std::string text() const {
    std::string out;
    const auto add = [&out](const char* what, std::uint32_t value) {
      out += std::string(out.empty() ? "" : " ") + what + "=" + std::to_string(value);
    };
    add("pages", pages), add("blocks", blocks), add("contexts", contexts), add("rows", rows);
    add("sequences", sequences), add("sampled", sampled), add("queue", queue),
        add("requests", requests), add("step_us", step_us_max);
    add("arrival_us", arrival_us_max), add("fail%", fail_percent), add("twice%", twice_percent);
    add("cancel%", cancel_percent), add("silent_at", silent_at),
        add("kill_device_us", kill_device_at_us);
    add("stop_us", stop_at_us);
    return out;
  }
};

Request random_request(Rng& rng, const Knobs& knobs) {
  Request request;
  const std::uint32_t room = knobs.blocks * kBlockTokens;
  const std::uint32_t length = between(rng, 1, rng.below(3) == 0 ? room - 1 : 40);
  for (std::uint32_t i = 0; i < length; ++i) {
    request.prompt.push_back(between(rng, 0, kVocab - 1));
  }
  request.max_tokens = knobs.tight ? room - length : between(rng, 1, std::min(room - length, 80U));
  if (rng.below(2) == 0) {
    request.sampling.temperature = 1;
  }
  if (rng.below(2) == 0) {
    request.sampling.seed = rng.next();
  }
  if (rng.below(3) == 0) {
    request.sampling.repetition_penalty = 1.125F;
    request.sampling.logit_bias = {{between(rng, 0, kVocab - 1), 0.5F}};
  }
  if (rng.below(3) == 0) {
    request.logprobs = between(rng, 0, 3);
  }
  if (rng.below(3) == 0) {
    request.prompt_logprobs = between(rng, 0, 3);
  }
  if (!knobs.tight && rng.below(3) == 0) {
    request.stop_tokens = {between(rng, 0, kVocab - 1)};
  }
  if (!knobs.tight && rng.below(4) == 0) {
    request.stop_strings = {std::string(1, letter(between(rng, 0, 25))),
                            std::string(2, letter(between(rng, 0, 25)))};
  }
  return request;
}

struct Expected {
  FakeAnswer answer;
  std::string text;
};

Expected expected_of(const Request& request, std::uint64_t seed) {
  Expected expected{fake_answer(request, seed, kVocab), {}};
  auto& tokens = expected.answer.tokens;
  const std::size_t spoken =
      tokens.size() - (expected.answer.reason == FinishReason::kStop ? 1 : 0);
  for (std::size_t i = 0; i < spoken; ++i) {
    expected.text += letter(tokens[i]);
    std::size_t cut = 0;
    for (const auto& stop : request.stop_strings) {
      cut = expected.text.ends_with(stop) ? std::max(cut, stop.size()) : cut;
    }
    if (cut > 0) {
      expected.text.resize(expected.text.size() - cut);
      tokens.resize(i + 1);
      expected.answer.outputs.resize(i + 1);
      expected.answer.reason = FinishReason::kStop;
      break;
    }
  }
  return expected;
}

template <class T>
bool is_prefix(const T& part, const T& whole) {
  return part.size() <= whole.size() && std::equal(part.begin(), part.end(), whole.begin());
}

class World final {
 public:
  explicit World(const WorldOptions& options)
      : options_(options), scheduler_(options.seed, options.keep_trace), knobs_(scheduler_.rng()) {
    outcome_.knobs = knobs_.text();
    if (options.bug != PlantedBug::kNone) {  // a planted bug must be the only one
      knobs_.fail_percent = knobs_.cancel_percent = knobs_.silent_at = knobs_.kill_device_at_us =
          knobs_.stop_at_us = 0;
    }
    FakeStageOptions stage;
    stage.pages = knobs_.pages;
    stage.blocks = knobs_.blocks;
    stage.contexts = knobs_.contexts;
    stage.max_rows = knobs_.rows;
    stage.max_segments = knobs_.sequences;
    stage.max_sampled = knobs_.sampled;
    stage.vocab = kVocab;
    stage.defer = [this](std::function<void()> work) { defer(std::move(work)); };
    stage.fault = [this](TicketId ticket) { return fault(ticket); };
    NodeOptions node;
    node.queue_max = knobs_.queue;
    node.sequences_max = knobs_.sequences;
    node.step_rows_max = knobs_.rows;
    node.seed = options.seed;
    node.step_deadline = std::chrono::seconds(2);
    if (options.bug == PlantedBug::kSilence || options.bug == PlantedBug::kLeak) {
      node.step_deadline = std::chrono::hours(48);
    }
    node_.emplace(scheduler_, stage, node, letters());
  }

  WorldOutcome run();

 private:
  // Runs the oldest ticket later; the stage keeps their order, as a device does.
  void defer(std::function<void()> work) {
    scheduler_.at(std::chrono::microseconds(between(scheduler_.rng(), 0, knobs_.step_us_max)),
                  std::move(work));
  }
  FakeFault fault(TicketId ticket);
  void schedule_clients();
  void arrive();
  void plant();
  void check_request_ends();
  void check_answer(RequestId id, const Told& told);
  void check_balance();
  void fail(const std::string& what) { outcome_.failures.push_back(what); }

  WorldOptions options_;
  SimScheduler scheduler_;
  Knobs knobs_;
  std::optional<SimNode> node_;
  std::set<RequestId> cancelled_;
  std::uint32_t arrived_ = 0;
  std::uint32_t refused_ = 0;
  bool mute_ = false;
  bool device_killed_ = false;
  WorldOutcome outcome_;
};

FakeFault World::fault(TicketId ticket) {
  Rng& rng = scheduler_.rng();
  if (mute_ || ticket.value == knobs_.silent_at ||
      (options_.bug == PlantedBug::kSilence && ticket.value == 1)) {
    return FakeFault::kSilent;
  }
  if (options_.bug == PlantedBug::kWrongToken) {
    return FakeFault::kWrongToken;
  }
  if (options_.bug == PlantedBug::kSpoilPage) {
    return FakeFault::kSpoilPage;
  }
  if (rng.below(100) < knobs_.fail_percent) {
    return FakeFault::kFail;
  }
  return rng.below(100) < knobs_.twice_percent ? FakeFault::kTwice : FakeFault::kNone;
}

void World::arrive() {
  ++arrived_;
  Rng& rng = scheduler_.rng();
  Request request = random_request(rng, knobs_);
  const std::uint32_t choices = rng.below(4) == 0 ? between(rng, 2, 4) : 1;  // the API's n
  for (std::uint32_t i = 0; i < choices; ++i) {
    request.choice = i;
    const auto id = node_->submit(request);
    if (!id) {
      ++refused_;
      scheduler_.note("refused: " + id.error().message);
    } else if (rng.below(100) < knobs_.cancel_percent) {
      scheduler_.at(std::chrono::microseconds(rng.below(300000)), [this, id = *id] {
        cancelled_.insert(id);
        node_->cancel(id);
      });
    }
  }
}

void World::schedule_clients() {
  for (std::uint32_t i = 0; i < knobs_.requests; ++i) {
    scheduler_.at(std::chrono::microseconds(between(scheduler_.rng(), 0, knobs_.arrival_us_max)),
                  [this] { arrive(); });
  }
  if (knobs_.kill_device_at_us > 0) {
    scheduler_.at(std::chrono::microseconds(knobs_.kill_device_at_us), [this] {
      device_killed_ = true;
      node_->kill(caf::actor_cast<caf::strong_actor_ptr>(node_->actors().device));
    });
  }
  if (knobs_.stop_at_us > 0) {
    scheduler_.at(std::chrono::microseconds(knobs_.stop_at_us), [this] { node_->stop(); });
  }
}

void World::plant() {
  if (options_.bug == PlantedBug::kEndTwice && !node_->told.empty()) {
    node_->tell(node_->told.begin()->first, node_->told.begin()->second.last);
  } else if (options_.bug == PlantedBug::kMiscount) {
    ++refused_;
  } else if (options_.bug == PlantedBug::kLeak) {  // a sequence that nobody will end
    mute_ = true;
    const auto orphan = std::make_shared<const Request>(random_request(scheduler_.rng(), knobs_));
    caf::anon_send(node_->actors().coordinator, Admit{RequestId{1U << 20U}, orphan, 1});
    scheduler_.run_for(std::chrono::seconds(1));
  }
}

void World::check_answer(RequestId id, const Told& told) {
  const std::string who = "request " + std::to_string(id.value);
  const RequestEvent& last = told.last;
  const Expected expected = expected_of(told.request, last.stats.seed);
  const bool whole = last.reason == FinishReason::kStop || last.reason == FinishReason::kLength;
  if (told.request.sampling.seed && whole && *told.request.sampling.seed != last.stats.seed) {
    fail("tokens: " + who + " was not given its own seed");
  }
  const bool prompt_fits = told.prompt.empty()
                               ? told.tokens.empty() || expected.answer.prompt.empty()
                               : told.prompt == expected.answer.prompt;
  if (!is_prefix(told.outputs, expected.answer.outputs) || !is_prefix(told.text, expected.text) ||
      !prompt_fits) {
    fail("tokens: " + who + " was answered otherwise than by the oracle");
  } else if (whole && (told.tokens != expected.answer.tokens || told.text != expected.text ||
                       last.reason != expected.answer.reason)) {
    fail("tokens: " + who + " was cut short at " + std::to_string(told.tokens.size()) + " of " +
         std::to_string(expected.answer.tokens.size()) + " tokens");
  }
  if (last.reason == FinishReason::kError && !knobs_.faulty()) {
    fail("tokens: " + who + " failed in a world without faults: " + last.failure->message);
  }
  if (last.reason == FinishReason::kCancelled && !cancelled_.contains(id) &&
      knobs_.stop_at_us == 0) {
    fail("tokens: " + who + " was cancelled by nobody");
  }
  outcome_.finished += whole ? 1 : 0;
  outcome_.cancelled += last.reason == FinishReason::kCancelled ? 1 : 0;
  outcome_.failed += last.reason == FinishReason::kError ? 1 : 0;
}

void World::check_request_ends() {
  for (const auto& [id, told] : node_->told) {
    const std::string who = "request " + std::to_string(id.value);
    if (told.ends == 0) {
      fail("ends: " + who + " has not ended after " + std::to_string(told.tokens.size()) +
           " tokens");
      continue;
    }
    if (told.ends != 1 || told.late_events != 0) {
      fail("once: " + who + " ended " + std::to_string(told.ends) + " times and had " +
           std::to_string(told.late_events) + " events afterwards");
      continue;
    }
    check_answer(id, told);
  }
  if (node_->inside() != 0 && node_->all_told()) {
    fail("once: the gate counts " + std::to_string(node_->inside()) +
         " requests although all have ended");
  }
}

void World::check_balance() {
  // A request that was ended by a stop string may be in a step still.
  scheduler_.run_for(std::chrono::seconds(5));
  const NodeStatus status = node_->status();
  std::uint64_t ended = 0;
  for (const std::uint64_t count : status.finished) {
    ended += count;
  }
  if (status.admitted != node_->told.size() || ended != node_->told.size() ||
      status.refused_full + status.refused_closed != refused_) {
    fail("counts: " + std::to_string(status.admitted) + " admitted, " + std::to_string(ended) +
         " ended and " + std::to_string(status.refused_full + status.refused_closed) +
         " refused are counted of " + std::to_string(node_->told.size()) + " and " +
         std::to_string(refused_));
  }
  outcome_.preemptions = status.preemptions;
  if (status.pages.used + status.blocks.used + status.running + status.waiting +
          status.imbalances !=
      0) {
    fail("balance: with all requests ended " + std::to_string(status.running) + " run, " +
         std::to_string(status.waiting) + " wait, " + std::to_string(status.pages.used) +
         " pages and " + std::to_string(status.blocks.used) + " blocks are held, " +
         std::to_string(status.imbalances) + " imbalances");
  }
}

WorldOutcome World::run() {
  schedule_clients();
  const auto all_done = [this] { return arrived_ == knobs_.requests && node_->all_told(); };
  static_cast<void>(scheduler_.run_until(all_done, kWorldTime));
  plant();
  if (node_->all_told()) {
    check_balance();
  }
  check_request_ends();
  if (!device_killed_ && !node_->ended()) {
    for (const auto& violation : node_->stage().violations()) {
      fail("state: " + violation);
    }
  }
  node_->stop();
  if (!scheduler_.run_until([this] { return node_->ended(); }, std::chrono::minutes(1))) {
    fail("ends: the node has not stopped within a minute");
  }
  scheduler_.run_for(std::chrono::seconds(10));
  if (options_.bug == PlantedBug::kLateEvent && !node_->told.empty()) {
    node_->tell(node_->told.begin()->first, RequestEvent{});
  }
  if (node_->events_after_stop != 0) {
    fail("stopped: " + std::to_string(node_->events_after_stop) + " events after the stop");
  }
  outcome_.requests = static_cast<std::uint32_t>(node_->told.size());
  outcome_.trace_hash = scheduler_.trace_hash();
  outcome_.messages = scheduler_.steps();
  outcome_.trace = scheduler_.trace();
  return std::move(outcome_);
}

}  // namespace

WorldOutcome run_world(const WorldOptions& options) {
  return World(options).run();
}

}  // namespace troupe
