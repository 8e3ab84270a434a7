// Session: the main thread's side of a node. Requests go in with a tag, their events come back in
// order, and waiting for them also notices signals and a node that has fallen silent.
//
// SE-1: no wait is without end: a node that makes no step for `silence_max` counts as silent.
#pragma once

#include "actors/node.h"
#include "deploy/signals.h"
#include "runtime/base/error.h"
#include "runtime/base/sources.h"
#include "runtime/serve/request.h"

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace troupe::deploy {

// A finished answer.
struct Answer {
  std::vector<TokenOutput> tokens;
  std::string text;
  FinishReason reason = FinishReason::kCancelled;
  std::optional<Error> failure;  // with kError
  RequestStats stats;
};

class Session final {
 public:
  enum class Wake { kEvents, kSignal, kSilent };
  struct Event {
    std::size_t tag = 0;
    RequestEvent event;
  };

  // All outlive the session.
  Session(Node& node, Signals& signals, const Clock& clock, Time silence_max);
  ~Session();

  Status submit(std::size_t tag, Request request);
  void cancel_all();
  // `watch_signals` false: a signal that is already pending does not end the wait.
  [[nodiscard]] Wake wait(bool watch_signals);
  // What has come since the last call, possibly nothing.
  [[nodiscard]] std::vector<Event> take();
  [[nodiscard]] std::size_t running() const { return running_.size(); }

 private:
  struct Mailbox;
  [[nodiscard]] bool silent();

  Node& node_;
  Signals& signals_;
  const Clock& clock_;
  Time silence_max_;
  std::shared_ptr<Mailbox>
      mailbox_;  // shared with sinks, which the node may call until it has stopped
  std::map<std::size_t, RequestId> running_;
  Time progress_at_{0};
  std::uint64_t steps_ = 0;
};

// How one request went: the answer, if it ended at all.
struct Asked {
  Answer answer;
  bool interrupted = false;  // by a signal, or because the reader is gone
  bool silent = false;       // the node did not end it; there is no answer
  Status output;             // of `show`
};

// Runs one request; `show` gets each piece of text as it comes. Its first error cancels the
// request.
[[nodiscard]] Result<Asked> ask(Session& session,
                                Request request,
                                const std::function<Status(const std::string&)>& show);

// Adds an event to the answer.
void append(Answer& answer, const RequestEvent& event);

}  // namespace troupe::deploy
