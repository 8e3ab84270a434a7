// The texts of HTTP/1.1: request targets read, response heads, chunks and errors written. Pure
// functions; private to net/.
//
// HM-1: what a caller puts into a field can't end the head: control characters become spaces.
#pragma once

#include "net/http.h"

#include <cstdint>
#include <ctime>
#include <optional>
#include <string>
#include <string_view>

namespace troupe::net {

// The path decoded and the query as sent, of an origin-form, absolute-form or asterisk-form target.
// Nothing: malformed, or a %00 that no path of ours can mean.
struct Target {
  std::string path;
  std::string query;
};
[[nodiscard]] std::optional<Target> parse_target(std::string_view target);

[[nodiscard]] std::string lower_case(std::string_view text);  // ASCII

// What of a request decides how its answer is framed.
struct Framing {
  bool head_only = false;  // HEAD: no body follows
  bool http_1_1 = true;
  bool keep_alive = true;  // the connection stays open after the answer
};

enum class Body : std::uint8_t {
  kWhole,   // content-length says its size
  kPieces,  // chunked; to an HTTP/1.0 client it ends with the connection
};

// A status that has no body: 1xx, 204, 304.
[[nodiscard]] bool is_bodiless(unsigned status);

// Status line, fields and the empty line. `unix_s`: now, for the date field.
[[nodiscard]] std::string head_of(const HttpResponse& response,
                                  Body body,
                                  const Framing& framing,
                                  std::time_t unix_s);

[[nodiscard]] std::string chunk_of(std::string_view piece);  // REQUIRES: not empty
inline constexpr std::string_view kLastChunk = "0\r\n\r\n";
inline constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";

// An answer that the server gives itself. Texts without a character that JSON escapes.
struct Refusal {
  unsigned status = 0;
  std::string code;
  std::string message;
};
[[nodiscard]] HttpResponse response_of(const Refusal& refusal);

}  // namespace troupe::net
