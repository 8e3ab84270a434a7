// HttpServer: HTTP/1.1 for many clients on a few threads. It reads whole requests within limits,
// hands each to a handler, and sends what the handler says back, at once or piece by piece. It
// knows no path and no JSON. Everything is thread-safe; handlers run on the server's threads and
// must not block.
//
// HT-1: every Exchange ends: answered, or its client is gone, or a deadline passed. One that the
//       handler drops without an answer is answered with 500.
// HT-2: what clients can make the server hold is bounded: connections, header and body bytes of
//       each, body bytes of all, the bytes of a stream that its reader has not taken. Beyond a
//       bound the client is refused (400, 408, 413, 431, 503) or, in a stream, dropped.
// HT-3: on_gone's callback is called at most once, and only before the Exchange has ended.
// HT-4: after stop() returns no handler and no callback runs any more, but one that on_gone calls.
#pragma once

#include "runtime/base/error.h"
#include "runtime/base/sources.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace troupe::net {

using HttpFields = std::vector<std::pair<std::string, std::string>>;

struct HttpRequest {
  std::string method;  // "GET"
  std::string path;    // "/v1/models", without the query, percent-decoded
  std::string query;   // what follows '?', as sent
  HttpFields fields;   // names in lower case, in order
  std::string body;
  std::string remote;  // "127.0.0.1:50123"

  [[nodiscard]] std::string_view field(std::string_view lower_case_name) const;  // empty: absent
};

struct HttpResponse {
  unsigned status = 200;
  std::string content_type = "application/json";
  std::string body;
  HttpFields fields;  // more of them; the server adds length, connection and date
};

// One request and the way back to its client. Kept alive by whoever answers; any thread.
class Exchange {
 public:
  virtual ~Exchange() = default;  // answers 500 when nothing was said (HT-1)
  [[nodiscard]] virtual const HttpRequest& request() const = 0;
  // The request's body, which then is empty there and counts no longer against
  // HttpLimits::bodies_bytes. For a handler, before it hands the exchange on.
  [[nodiscard]] virtual std::string take_body() = 0;

  // The whole answer. Ends the exchange; later calls do nothing.
  virtual void respond(HttpResponse response) = 0;

  // An answer in pieces (chunked): begin_stream with an empty body, write() each piece, end().
  // False: the client is gone, or what it has not taken is over HttpLimits::stream_buffer_bytes and
  // it was dropped; nothing more is needed. The limit is asked before a piece is added, so that one
  // piece of any size goes out.
  virtual bool begin_stream(HttpResponse head) = 0;
  virtual bool write(std::string piece) = 0;
  virtual void end() = 0;

  // Called on a server's thread when the client disconnects, is dropped or the server stops, before
  // the exchange ended; at once, by on_gone itself, when that has happened already. A client that
  // closes only its sending side counts as gone: the two can't be told apart before it is too late.
  virtual void on_gone(std::function<void()> callback) = 0;
};

using HttpHandler = std::function<void(std::shared_ptr<Exchange>)>;

struct HttpLimits {
  std::uint32_t connections = 1024;  // one more gets 503 and is closed; each is a file
  std::uint32_t refused = 256;  // of those more, how many may wait for their 503 at once, a file
                                // each; the others are closed without a word
  std::size_t header_bytes = 16U << 10U;          // 431
  std::size_t body_bytes = 16U << 20U;            // 413
  std::size_t bodies_bytes = 256U << 20U;         // of all requests that are not answered: 503
  std::size_t stream_buffer_bytes = 1U << 20U;    // of one stream, not taken by its reader
  Time read_deadline = std::chrono::seconds(30);  // for a whole request once it has begun: 408
  Time write_deadline =
      std::chrono::seconds(30);  // a reader that takes nothing for this long is gone
  Time idle_deadline = std::chrono::seconds(75);  // of a connection between requests
};

struct HttpOptions {
  std::string host = "127.0.0.1";
  std::uint16_t port = 0;  // 0: any
  std::uint32_t threads = 1;
  HttpLimits limits;
  std::string tls_certificate_file;  // PEM, chain; empty: no TLS
  std::string tls_key_file;
};

struct HttpCounts {
  std::uint64_t accepted = 0;        // connections
  std::uint64_t refused = 0;         // connections over the limit
  std::uint64_t slow_readers = 0;    // dropped because they did not take their answers
  std::uint32_t open = 0;            // connections now
  std::uint64_t bodies_refused = 0;  // requests over the limit of all bodies
  std::size_t bodies_bytes = 0;      // of all bodies now
};

class HttpServer {
 public:
  // Listens when it returns. Errors: kInvalid names host, port or file and what is wrong with it;
  // kOverloaded: the port is taken.
  [[nodiscard]] static Result<std::unique_ptr<HttpServer>> start(const HttpOptions& options,
                                                                 HttpHandler handler);
  virtual ~HttpServer() = default;  // stops at once

  [[nodiscard]] virtual std::uint16_t port() const = 0;
  [[nodiscard]] virtual HttpCounts counts() const = 0;
  // Accepts no new connection, answers what was begun with "connection: close", waits for the open
  // exchanges up to `patience`, then drops them. Not from a handler or a callback.
  virtual void stop(Time patience) = 0;
};

}  // namespace troupe::net
