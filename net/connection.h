// Connection: reads requests off a wire, one at a time, hands each to the handler and sends its
// answer; the next request waits in the buffer, so pipelined answers come in order. It always keeps
// a read under way, because that is how a client's going is seen: end of file or an error while an
// answer is not complete means gone, also after a mere half-close, which can't be told apart.
// Private to net/; all but wake() on the thread of its wire.
//
// CN-1: it holds at most one request, read-ahead of kReadAheadBytes and the buffer of one answer.
// CN-2: in every stage but kAnswering with nothing to send, a deadline runs.
// CN-3: ConnectionHost is told once of its settling and once of its closing, last.
#pragma once

#include "net/exchange_state.h"
#include "net/http.h"
#include "net/request_parser.h"
#include "net/wire.h"

#include <boost/asio/steady_timer.hpp>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace troupe::net {

class Connection;

// What a connection needs of its server. Outlives every connection; any server thread.
class ConnectionHost {
 public:
  virtual ~ConnectionHost() = default;
  [[nodiscard]] virtual const HttpLimits& limits() const = 0;
  [[nodiscard]] virtual const HttpHandler& handler() const = 0;
  [[nodiscard]] virtual std::shared_ptr<const std::atomic<bool>> draining() const = 0;
  [[nodiscard]] virtual std::shared_ptr<BodyBudget> body_budget() const = 0;
  virtual void count_slow_reader() = 0;
  virtual void on_settled(const Connection& connection) = 0;  // all is answered or lost
  virtual void on_closed(const Connection& connection) = 0;
};

class Connection final : public Wakeable, public std::enable_shared_from_this<Connection> {
 public:
  Connection(ConnectionHost& host, std::unique_ptr<Wire> wire);

  // `refusal`: what to say instead of reading a request.
  void start(std::optional<Refusal> refusal);
  void drain();  // end after what has begun
  void abort();  // end now
  void wake() override;

 private:
  enum class Stage : std::uint8_t {
    kHandshake,
    kIdle,       // no byte of a request is here
    kReading,    // some are
    kAnswering,  // the handler has it
    kRefusing,   // a last answer of our own is on its way
    kLingering,  // all is sent; reads and throws away until the client closes, so that no reset
                 // overtakes the answer
    kClosed,
  };

  void on_handshake(const Wire::ErrorCode& ec);
  void become_idle();
  void read();
  void on_read(const Wire::ErrorCode& ec, std::size_t bytes);
  void on_end_of_input();
  void parse();
  void begin_exchange();
  void refuse(const Refusal& refusal);
  void pump();
  void send();
  void on_sent(const Wire::ErrorCode& ec, std::size_t bytes);
  void finish_answer();
  void drop_answer();
  void linger();
  void lose_slow_reader();
  void close(bool reset);
  void settle();
  void arm(Time after);
  void on_deadline();
  void arm_write();

  ConnectionHost& host_;
  const std::unique_ptr<Wire> wire_;
  Stage stage_ = Stage::kHandshake;
  std::optional<Refusal> refusal_at_start_;

  std::array<char, 16U << 10U> chunk_;  // where a read lands
  std::string input_;                   // read and not parsed
  bool is_reading_ = false;
  bool input_ended_ = false;
  std::unique_ptr<RequestParser> parser_;

  std::shared_ptr<ExchangeState> exchange_;
  std::string own_output_;  // "100 Continue", refusals
  std::string output_;      // being sent from sent_ on
  std::size_t sent_ = 0;
  bool is_sending_ = false;
  bool sends_exchange_ = false;  // output_ is the exchange's
  bool answer_ended_ = false;    // nothing follows output_

  boost::asio::steady_timer deadline_;
  std::uint64_t deadline_id_ = 0;  // a timer that fired before it was set anew is ignored
  boost::asio::steady_timer write_deadline_;
  std::uint64_t write_deadline_id_ = 0;
  bool is_settled_ = false;
};

}  // namespace troupe::net
