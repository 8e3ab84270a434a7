// RequestParser: one request of HTTP/1.0 or 1.1 out of the bytes of a connection, within limits.
// Strict where leniency lets two parties read two requests out of the same bytes. Private to net/;
// one thread.
//
// RP-1: what it keeps is bounded by the limits, and so is what it leaves unconsumed.
#pragma once

#include "net/body_budget.h"
#include "net/http_message.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

namespace troupe::net {

class RequestParser {
 public:
  enum class State : std::uint8_t {
    kNeedsMore,
    kDone,     // request() and framing() are complete; what follows is another request
    kRefused,  // refusal() says why; the connection can't go on
  };

  virtual ~RequestParser() = default;

  // How many of `bytes` were consumed; the rest is to come again, with more. REQUIRES: state() is
  // kNeedsMore.
  [[nodiscard]] virtual std::size_t put(std::string_view bytes) = 0;
  [[nodiscard]] virtual State state() const = 0;
  // True once, when the client waits for "100 Continue" before it sends the body.
  [[nodiscard]] virtual bool take_expectation() = 0;
  [[nodiscard]] virtual HttpRequest& request() = 0;
  // What of the budget the request's body takes; once, when it is done.
  [[nodiscard]] virtual BodyLease take_lease() = 0;
  [[nodiscard]] virtual const Framing& framing() const = 0;
  [[nodiscard]] virtual const Refusal& refusal() const = 0;
};

[[nodiscard]] std::unique_ptr<RequestParser> make_request_parser(
    const HttpLimits& limits, std::shared_ptr<BodyBudget> budget);

}  // namespace troupe::net
