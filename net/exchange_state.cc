#include "net/exchange_state.h"

#include "runtime/base/error.h"

#include <ctime>
#include <utility>

namespace troupe::net {

ExchangeState::ExchangeState(HttpRequest request,
                             BodyLease lease,
                             const Options& options,
                             std::weak_ptr<Wakeable> connection)
    : request_(std::move(request)),
      lease_(std::move(lease)),
      options_(options),
      connection_(std::move(connection)),
      keep_alive_(options.framing.keep_alive) {}

std::string ExchangeState::take_body() {
  const std::scoped_lock lock(mutex_);
  lease_.release();
  return std::exchange(request_.body, {});
}

void ExchangeState::append(std::string_view bytes) {
  pending_ += bytes;
  unsent_ += bytes.size();
}

void ExchangeState::wake() {
  if (woken_) {
    return;
  }
  woken_ = true;
  if (const auto connection = connection_.lock()) {
    connection->wake();
  }
}

void ExchangeState::drop() {
  drop_ = true;
  pending_ = {};
  woken_ = false;  // the connection may be waiting for a reader that takes nothing
  wake();
}

Framing ExchangeState::framing_now() {
  keep_alive_ = keep_alive_ && !options_.draining->load();
  Framing framing = options_.framing;
  framing.keep_alive = keep_alive_;
  return framing;
}

std::function<void()> ExchangeState::enter(Phase phase) {
  phase_ = phase;
  if (phase == Phase::kGone) {
    pending_ = {};
  }
  return std::exchange(gone_, nullptr);
}

void ExchangeState::respond(const HttpResponse& response) {
  std::function<void()> unused;
  const std::scoped_lock lock(mutex_);
  if (phase_ != Phase::kOpen) {
    return;
  }
  append(head_of(response, Body::kWhole, framing_now(), std::time(nullptr)));
  if (!options_.framing.head_only && !is_bodiless(response.status)) {
    append(response.body);
  }
  unused = enter(Phase::kEnded);
  wake();
}

bool ExchangeState::begin_stream(const HttpResponse& head) {
  TROUPE_CHECK(head.body.empty(), "the body of a stream is what write() adds");
  const std::scoped_lock lock(mutex_);
  if (phase_ != Phase::kOpen) {
    return false;
  }
  keep_alive_ = keep_alive_ && options_.framing.http_1_1;
  append(head_of(head, Body::kPieces, framing_now(), std::time(nullptr)));
  phase_ = Phase::kStreaming;
  wake();
  return true;
}

bool ExchangeState::write(std::string_view piece) {
  const std::scoped_lock lock(mutex_);
  TROUPE_CHECK(phase_ != Phase::kOpen, "begin_stream comes before write");
  if (phase_ != Phase::kStreaming || drop_) {
    return false;
  }
  if (piece.empty() || options_.framing.head_only) {
    return true;  // an empty chunk would end the stream
  }
  if (unsent_ > options_.buffer_bytes_max) {
    slow_ = true;
    drop();
    return false;
  }
  append(options_.framing.http_1_1 ? chunk_of(piece) : std::string(piece));
  wake();
  return true;
}

void ExchangeState::end() {
  std::function<void()> unused;
  const std::scoped_lock lock(mutex_);
  if (phase_ != Phase::kStreaming || drop_) {
    return;
  }
  if (options_.framing.http_1_1 && !options_.framing.head_only) {
    append(kLastChunk);
  }
  unused = enter(Phase::kEnded);
  wake();
}

void ExchangeState::on_gone(std::function<void()> callback) {
  {
    const std::scoped_lock lock(mutex_);
    if (phase_ == Phase::kOpen || phase_ == Phase::kStreaming) {
      gone_.swap(callback);
      return;
    }
    if (phase_ == Phase::kEnded) {
      return;
    }
  }
  callback();
}

void ExchangeState::abandon() {
  respond(response_of({500, "no_answer", "the server has a bug: it gave no answer"}));
  std::function<void()> unused;
  const std::scoped_lock lock(mutex_);
  if (phase_ == Phase::kStreaming && !drop_) {
    unused = std::exchange(gone_, nullptr);
    drop();
  }
}

ExchangeState::Outgoing ExchangeState::take() {
  const std::scoped_lock lock(mutex_);
  woken_ = false;
  return {std::exchange(pending_, {}), phase_ == Phase::kEnded};
}

void ExchangeState::sent(std::size_t bytes) {
  const std::scoped_lock lock(mutex_);
  unsent_ -= bytes;
}

bool ExchangeState::has_ended() const {
  const std::scoped_lock lock(mutex_);
  return phase_ == Phase::kEnded;
}

bool ExchangeState::is_dropped() const {
  const std::scoped_lock lock(mutex_);
  return drop_;
}

bool ExchangeState::is_slow() const {
  const std::scoped_lock lock(mutex_);
  return slow_;
}

bool ExchangeState::keeps_alive() const {
  const std::scoped_lock lock(mutex_);
  return keep_alive_;
}

void ExchangeState::lose() {
  std::function<void()> callback;
  {
    const std::scoped_lock lock(mutex_);
    if (phase_ == Phase::kOpen || phase_ == Phase::kStreaming) {
      callback = enter(Phase::kGone);
    }
  }
  if (callback) {
    callback();
  }
}

}  // namespace troupe::net
