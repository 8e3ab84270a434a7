// ExchangeState: one request and its answer, shared between the threads that answer and the
// connection that sends. Answering appends to a buffer and wakes the connection; it never waits for
// the network. Private to net/.
//
// ES-1: open or streaming, it becomes ended or gone, once. Whoever comes second does nothing.
// ES-2: the connection is touched only under the mutex and only before gone, so that gone ends
//       every use of it, whatever still holds an Exchange.
// ES-3: the callback of on_gone runs without the mutex, on the connection's thread or in on_gone.
#pragma once

#include "net/body_budget.h"
#include "net/http.h"
#include "net/http_message.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

namespace troupe::net {

// What an exchange sees of its connection.
class Wakeable {
 public:
  virtual ~Wakeable() = default;
  virtual void wake() = 0;  // any thread; returns at once
};

class ExchangeState final {
 public:
  struct Options {
    Framing framing;
    std::size_t buffer_bytes_max = 0;
    std::shared_ptr<const std::atomic<bool>> draining;  // then answers say "connection: close"
  };

  ExchangeState(HttpRequest request,
                BodyLease lease,  // of the request's body
                const Options& options,
                std::weak_ptr<Wakeable> connection);

  // For those who answer; any thread. As in Exchange.
  [[nodiscard]] const HttpRequest& request() const { return request_; }
  [[nodiscard]] std::string take_body();
  void respond(const HttpResponse& response);
  [[nodiscard]] bool begin_stream(const HttpResponse& head);
  [[nodiscard]] bool write(std::string_view piece);
  void end();
  void on_gone(std::function<void()> callback);
  // Nobody can answer any more.
  void abandon();

  // For the connection; its thread.
  struct Outgoing {
    std::string bytes;
    bool ended = false;  // no more come
  };
  [[nodiscard]] Outgoing take();
  void sent(std::size_t bytes);  // of those taken
  [[nodiscard]] bool has_ended() const;
  [[nodiscard]] bool is_dropped() const;   // can't be completed: reset the connection
  [[nodiscard]] bool is_slow() const;      // dropped because its reader did not take the bytes
  [[nodiscard]] bool keeps_alive() const;  // the connection may stay open after the answer
  void lose();                             // the client or the server has gone

 private:
  enum class Phase : std::uint8_t { kOpen, kStreaming, kEnded, kGone };

  // REQUIRES: mutex_ is held, as for all below.
  void append(std::string_view bytes);
  void wake();
  void drop();
  Framing framing_now();
  // Frees what the phase that begins needs no more; the caller destroys the result unlocked, as it
  // may hold the last Exchange.
  [[nodiscard]] std::function<void()> enter(Phase phase);

  HttpRequest request_;  // only its body changes
  BodyLease lease_;
  const Options options_;

  mutable std::mutex mutex_;
  const std::weak_ptr<Wakeable> connection_;
  Phase phase_ = Phase::kOpen;
  bool drop_ = false;  // over the limit, or abandoned in a stream
  bool slow_ = false;
  bool woken_ = false;  // the connection will take
  bool keep_alive_;
  std::string pending_;
  std::size_t unsent_ = 0;  // pending_ and what the connection took and has not sent
  std::function<void()> gone_;
};

}  // namespace troupe::net
