#include "tests/world/sim_node.h"

#include <algorithm>
#include <utility>

namespace troupe {

namespace {

constexpr Time kAges = std::chrono::hours(24);

class Letters final : public TextStream {
 public:
  std::string push(std::uint32_t token) override { return std::string(1, letter(token)); }
  std::string flush() override { return {}; }
};

}  // namespace

char letter(std::uint32_t token) {
  return static_cast<char>('a' + token % 26);
}

TextStreamFactory letters() {
  return [] { return std::make_unique<Letters>(); };
}

SimNode::SimNode(SimScheduler& scheduler,
                 const FakeStageOptions& stage,
                 const NodeOptions& options,
                 TextStreamFactory text)
    : scheduler_(scheduler),
      record_(std::make_shared<NodeRecord>(scheduler.clock())),
      gate_(std::make_shared<AdmissionGate>(options.queue_max + options.sequences_max, record_)) {
  NodeConfig config;
  config.options = options;
  config.clock = &scheduler.clock();
  config.text = std::move(text);
  config.record = record_;
  config.gate = gate_;
  config.detached_device = false;
  config.on_end = [ended = ended_] { *ended = true; };
  auto fake = make_fake_stage(stage);
  stage_ = fake.get();
  const auto parts = std::make_shared<DeviceParts>();
  parts->device = make_fake_device();
  parts->stage = std::move(fake);
  actors_ = spawn_node(scheduler.system(), parts, config).value();
}

SimNode::~SimNode() {
  stop();
  scheduler_.run_until([this] { return ended(); }, kAges);
  kill(caf::actor_cast<caf::strong_actor_ptr>(actors_.gateway));
  kill(caf::actor_cast<caf::strong_actor_ptr>(actors_.coordinator));
  kill(caf::actor_cast<caf::strong_actor_ptr>(actors_.device));
}

Result<RequestId> SimNode::submit(Request request) {
  Told fresh;
  fresh.request = request;
  // The id is known only inside the gate, the sink is made before: it learns the id from its
  // events.
  auto id = submit_request(
      std::move(request),
      [this](const RequestEvent& event) { tell(event.id, event); },
      gate_,
      [this](std::shared_ptr<OpenRequest> open) {
        caf::anon_send(actors_.gateway, Submit{std::move(open)});
      });
  if (id) {
    told[*id].request = std::move(fresh.request);
  }
  return id;
}

void SimNode::tell(RequestId id, const RequestEvent& event) {
  Told& entry = told[id];
  entry.late_events += entry.ends > 0 ? 1 : 0;
  events_after_stop += ended() ? 1 : 0;
  for (const auto& output : event.tokens) {
    entry.tokens.push_back(output.token);
    entry.outputs.push_back(output);
  }
  entry.prompt.insert(entry.prompt.end(), event.prompt.begin(), event.prompt.end());
  entry.text += event.text;
  entry.ends += event.finished ? 1 : 0;
  entry.last = event;
  if (event.finished) {
    scheduler_.note("request " + std::to_string(id.value) + " " + std::string(name(event.reason)) +
                    " after " + std::to_string(entry.tokens.size()) + " tokens");
  }
}

void SimNode::cancel(RequestId id) {
  caf::anon_send(actors_.gateway, CancelRequest{id});
}

void SimNode::close_gate() {
  gate_->close(Error{Kind::kDisconnected,
                     "the node is draining and takes no more requests",
                     std::source_location::current()});
}

void SimNode::stop() {
  close_gate();
  caf::anon_send(actors_.supervisor, StopNode{});
}

void SimNode::kill(const caf::strong_actor_ptr& actor) {
  caf::anon_send_exit(caf::actor_cast<caf::actor>(actor), caf::exit_reason::kill);
}

bool SimNode::all_told() const {
  return std::all_of(
      told.begin(), told.end(), [](const auto& entry) { return entry.second.ends > 0; });
}

}  // namespace troupe
