#include "net/connection.h"

#include <boost/asio/post.hpp>

#include <chrono>
#include <utility>

namespace troupe::net {
namespace {

namespace asio = boost::asio;

constexpr std::size_t kReadAheadBytes = 64U << 10U;  // of pipelined requests
constexpr Time kLinger = std::chrono::seconds(3);

// What a handler holds. The connection holds only the state, so that dropping this is noticed.
class SharedExchange final : public Exchange {
 public:
  explicit SharedExchange(std::shared_ptr<ExchangeState> state) : state_(std::move(state)) {}
  ~SharedExchange() override { state_->abandon(); }
  SharedExchange(const SharedExchange&) = delete;
  SharedExchange& operator=(const SharedExchange&) = delete;

  [[nodiscard]] const HttpRequest& request() const override { return state_->request(); }
  [[nodiscard]] std::string take_body() override { return state_->take_body(); }
  void respond(HttpResponse response) override { state_->respond(response); }
  bool begin_stream(HttpResponse head) override { return state_->begin_stream(head); }
  bool write(std::string piece) override { return state_->write(piece); }
  void end() override { state_->end(); }
  void on_gone(std::function<void()> callback) override { state_->on_gone(std::move(callback)); }

 private:
  const std::shared_ptr<ExchangeState> state_;
};

}  // namespace

Connection::Connection(ConnectionHost& host, std::unique_ptr<Wire> wire)
    : host_(host),
      wire_(std::move(wire)),
      deadline_(wire_->executor()),
      write_deadline_(wire_->executor()) {}

void Connection::start(std::optional<Refusal> refusal) {
  if (stage_ != Stage::kHandshake) {
    return;  // aborted before it started
  }
  arm(refusal ? kLinger : host_.limits().read_deadline);
  refusal_at_start_ = std::move(refusal);
  wire_->handshake([self = shared_from_this()](const Wire::ErrorCode& ec, std::size_t) {
    self->on_handshake(ec);
  });
}

void Connection::on_handshake(const Wire::ErrorCode& ec) {
  if (stage_ != Stage::kHandshake) {
    return;
  }
  if (ec) {
    close(false);
  } else if (refusal_at_start_) {
    refuse(*refusal_at_start_);
  } else {
    become_idle();
  }
}

void Connection::drain() {
  if (stage_ == Stage::kHandshake || stage_ == Stage::kIdle) {
    close(false);
  }
}

void Connection::abort() {
  close(true);
}

void Connection::wake() {
  asio::post(wire_->executor(), [self = shared_from_this()] { self->pump(); });
}

// --- reading

void Connection::become_idle() {
  stage_ = Stage::kIdle;
  parser_ = make_request_parser(host_.limits(), host_.body_budget());
  arm(host_.limits().idle_deadline);
  parse();
  const bool waits = stage_ == Stage::kIdle || stage_ == Stage::kReading;
  if ((waits && input_ended_) || (stage_ == Stage::kIdle && host_.draining()->load())) {
    close(false);
    return;
  }
  read();
}

void Connection::read() {
  const bool is_full = stage_ == Stage::kAnswering && input_.size() >= kReadAheadBytes;
  if (is_reading_ || input_ended_ || is_full || stage_ == Stage::kClosed) {
    return;
  }
  is_reading_ = true;
  wire_->read_some(asio::buffer(chunk_),
                   [self = shared_from_this()](const Wire::ErrorCode& ec, std::size_t bytes) {
                     self->on_read(ec, bytes);
                   });
}

void Connection::on_read(const Wire::ErrorCode& ec, std::size_t bytes) {
  is_reading_ = false;
  if (stage_ == Stage::kClosed) {
    return;
  }
  if (ec) {
    on_end_of_input();
    return;
  }
  if (stage_ != Stage::kRefusing && stage_ != Stage::kLingering) {
    input_.append(chunk_.data(), bytes);
    parse();
  }
  read();
}

void Connection::on_end_of_input() {
  input_ended_ = true;
  switch (stage_) {
    case Stage::kAnswering:
      if (!exchange_->has_ended()) {
        close(false);
      }
      return;
    case Stage::kRefusing:
      return;  // a client that has closed only its side still reads the answer
    default:
      close(false);
  }
}

void Connection::parse() {
  while (stage_ == Stage::kIdle && (input_.starts_with("\r\n") || input_ == "\r")) {
    if (input_.size() < 2) {
      return;
    }
    input_.erase(0, 2);  // RFC 9112, 2.2: an empty line before a request is ignored
  }
  if (input_.empty() || (stage_ != Stage::kIdle && stage_ != Stage::kReading)) {
    return;
  }
  if (stage_ == Stage::kIdle) {
    stage_ = Stage::kReading;
    arm(host_.limits().read_deadline);
  }
  input_.erase(0, parser_->put(input_));
  switch (parser_->state()) {
    case RequestParser::State::kNeedsMore:
      if (parser_->take_expectation()) {
        own_output_ += kContinue;
        pump();
      }
      return;
    case RequestParser::State::kRefused:
      refuse(parser_->refusal());
      return;
    case RequestParser::State::kDone:
      begin_exchange();
  }
}

void Connection::begin_exchange() {
  stage_ = Stage::kAnswering;
  ++deadline_id_;
  deadline_.cancel();
  answer_ended_ = false;
  HttpRequest request = std::move(parser_->request());
  request.remote = wire_->remote();
  const ExchangeState::Options options{.framing = parser_->framing(),
                                       .buffer_bytes_max = host_.limits().stream_buffer_bytes,
                                       .draining = host_.draining()};
  exchange_ = std::make_shared<ExchangeState>(
      std::move(request), parser_->take_lease(), options, weak_from_this());
  parser_.reset();
  host_.handler()(std::make_shared<SharedExchange>(exchange_));
  if (input_ended_ && !exchange_->has_ended()) {
    close(false);
  }
}

void Connection::refuse(const Refusal& refusal) {
  stage_ = Stage::kRefusing;
  ++deadline_id_;  // from here on the write deadline runs
  deadline_.cancel();
  input_ = {};
  const HttpResponse response = response_of(refusal);
  own_output_ +=
      head_of(response, Body::kWhole, {.keep_alive = false}, std::time(nullptr)) + response.body;
  parser_.reset();  // and what it has of the body; `refusal` may be its own
  pump();
  read();
}

// --- writing

void Connection::pump() {
  if (stage_ == Stage::kAnswering && exchange_->is_dropped()) {
    drop_answer();
    return;
  }
  if (is_sending_ || stage_ == Stage::kClosed || stage_ == Stage::kLingering) {
    return;
  }
  if (!own_output_.empty()) {
    output_ = std::exchange(own_output_, {});
    sends_exchange_ = false;
    send();
    return;
  }
  if (stage_ == Stage::kRefusing) {
    linger();
    return;
  }
  if (stage_ != Stage::kAnswering) {
    return;
  }
  if (!answer_ended_) {
    auto [bytes, ended] = exchange_->take();
    answer_ended_ = ended;
    output_ = std::move(bytes);
    sends_exchange_ = true;
    if (!output_.empty()) {
      send();
      return;
    }
  }
  if (answer_ended_) {
    finish_answer();
  }
}

void Connection::send() {
  is_sending_ = true;
  arm_write();
  wire_->write_some(asio::buffer(output_) + sent_,
                    [self = shared_from_this()](const Wire::ErrorCode& ec, std::size_t bytes) {
                      self->on_sent(ec, bytes);
                    });
}

void Connection::on_sent(const Wire::ErrorCode& ec, std::size_t bytes) {
  is_sending_ = false;
  ++write_deadline_id_;
  if (stage_ == Stage::kClosed) {
    return;
  }
  if (ec) {
    close(true);
    return;
  }
  sent_ += bytes;
  if (sends_exchange_) {
    exchange_->sent(bytes);
  }
  if (sent_ < output_.size()) {
    send();
    return;
  }
  output_.clear();
  sent_ = 0;
  pump();
}

void Connection::finish_answer() {
  const bool stays =
      exchange_->keeps_alive() && !host_.draining()->load() && !(input_ended_ && input_.empty());
  exchange_.reset();
  if (stays) {
    become_idle();
  } else {
    linger();
  }
}

void Connection::drop_answer() {
  if (exchange_->is_slow()) {
    host_.count_slow_reader();
  }
  close(true);
}

void Connection::linger() {
  stage_ = Stage::kLingering;
  settle();
  if (input_ended_) {
    close(false);
    return;
  }
  input_ = {};
  arm(kLinger);
  wire_->finish_writing([self = shared_from_this()](const Wire::ErrorCode&, std::size_t) {});
  read();
}

// --- ends

void Connection::close(bool reset) {
  if (stage_ == Stage::kClosed) {
    return;
  }
  const auto self = shared_from_this();
  stage_ = Stage::kClosed;
  ++deadline_id_;
  deadline_.cancel();
  ++write_deadline_id_;
  write_deadline_.cancel();
  wire_->close(reset);
  if (const auto exchange = std::exchange(exchange_, nullptr)) {
    exchange->lose();
  }
  settle();
  host_.on_closed(*this);
}

void Connection::settle() {
  if (!std::exchange(is_settled_, true)) {
    host_.on_settled(*this);
  }
}

void Connection::arm(Time after) {
  deadline_.expires_after(after);
  deadline_.async_wait([self = shared_from_this(), id = ++deadline_id_](const Wire::ErrorCode&) {
    if (id == self->deadline_id_) {
      self->on_deadline();
    }
  });
}

void Connection::on_deadline() {
  if (stage_ != Stage::kReading) {
    close(false);
    return;
  }
  const auto allowed =
      std::chrono::duration_cast<std::chrono::milliseconds>(host_.limits().read_deadline);
  refuse({408,
          "request_timeout",
          "the request was not complete within " + std::to_string(allowed.count()) + " ms"});
}

void Connection::arm_write() {
  write_deadline_.expires_after(host_.limits().write_deadline);
  write_deadline_.async_wait(
      [self = shared_from_this(), id = ++write_deadline_id_](const Wire::ErrorCode&) {
        if (id == self->write_deadline_id_) {
          self->lose_slow_reader();
        }
      });
}

void Connection::lose_slow_reader() {
  if (stage_ == Stage::kAnswering) {
    host_.count_slow_reader();
  }
  close(true);
}

}  // namespace troupe::net
