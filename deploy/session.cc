#include "deploy/session.h"

#include "runtime/base/file.h"

#include <chrono>
#include <cstdint>
#include <iterator>
#include <mutex>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

namespace troupe::deploy {
namespace {

constexpr int kLookMs = 10'000;  // how often a silent node is asked whether it still steps

}  // namespace

struct Session::Mailbox {
  std::mutex mutex;
  std::vector<Event> events;  // bounded by the tokens that the running requests may have
  File wake{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};

  void post(std::size_t tag, const RequestEvent& event) {
    {
      const std::lock_guard lock(mutex);
      events.push_back({tag, event});
    }
    const std::uint64_t one = 1;
    [[maybe_unused]] const auto written = ::write(wake.fd(), &one, sizeof one);
  }
};

Session::Session(Node& node, Signals& signals, const Clock& clock, Time silence_max)
    : node_(node),
      signals_(signals),
      clock_(clock),
      silence_max_(silence_max),
      mailbox_(std::make_shared<Mailbox>()) {
  TROUPE_CHECK(mailbox_->wake.fd() >= 0, "no descriptor left for events");
}

Session::~Session() = default;

Status Session::submit(std::size_t tag, Request request) {
  progress_at_ = clock_.now();
  TROUPE_ASSIGN(
      const auto id,
      node_.submit(std::move(request), [mailbox = mailbox_, tag](const RequestEvent& event) {
        mailbox->post(tag, event);
      }));
  running_[tag] = id;
  return {};
}

void Session::cancel_all() {
  for (const auto& [tag, id] : running_) {
    node_.cancel(id);
  }
  progress_at_ = clock_.now();
}

bool Session::silent() {
  if (const std::uint64_t steps = node_.status().steps; steps != steps_) {
    steps_ = steps;
    progress_at_ = clock_.now();
  }
  return clock_.now() - progress_at_ >= silence_max_;
}

Session::Wake Session::wait(bool watch_signals) {
  for (;;) {
    pollfd watched[] = {{mailbox_->wake.fd(), POLLIN, 0},
                        {watch_signals ? signals_.fd() : -1, POLLIN, 0}};
    const int ready = ::poll(watched, 2, kLookMs);
    if (watched[1].revents != 0) {
      return Wake::kSignal;
    }
    if (watched[0].revents != 0) {
      return Wake::kEvents;
    }
    if (ready == 0 && silent()) {
      return Wake::kSilent;
    }
  }
}

std::vector<Session::Event> Session::take() {
  std::uint64_t count = 0;
  [[maybe_unused]] const auto taken = ::read(mailbox_->wake.fd(), &count, sizeof count);
  std::vector<Event> events;
  {
    const std::lock_guard lock(mailbox_->mutex);
    events.swap(mailbox_->events);
  }
  for (const auto& event : events) {
    if (event.event.finished) {
      running_.erase(event.tag);
    }
  }
  if (!events.empty()) {
    progress_at_ = clock_.now();
  }
  return events;
}

void append(Answer& answer, const RequestEvent& event) {
  answer.tokens.insert(answer.tokens.end(), event.tokens.begin(), event.tokens.end());
  answer.text += event.text;
  if (event.finished) {
    answer.reason = event.reason;
    answer.failure = event.failure;
    answer.stats = event.stats;
  }
}

Result<Asked> ask(Session& session,
                  Request request,
                  const std::function<Status(const std::string&)>& show) {
  Asked asked;
  TROUPE_TRY(session.submit(0, std::move(request)));
  const auto interrupt = [&session, &asked] {
    if (!asked.interrupted) {
      asked.interrupted = true;
      session.cancel_all();
    }
  };
  while (session.running() > 0) {
    switch (session.wait(!asked.interrupted)) {
      case Session::Wake::kSignal:
        interrupt();
        break;
      case Session::Wake::kSilent:
        asked.silent = true;
        return asked;
      case Session::Wake::kEvents:
        for (const auto& event : session.take()) {
          append(asked.answer, event.event);
          if (asked.output && !event.event.text.empty()) {
            asked.output = show(event.event.text);
          }
        }
        if (!asked.output) {
          interrupt();
        }
    }
  }
  return asked;
}

}  // namespace troupe::deploy
