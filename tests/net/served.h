// A server for tests: answers a few paths itself and hands the exchanges of /hold to the test.
//   /hello   "hello"
//   /echo    what was read: method, path, query, x-test field and body, one a line
//   /drop    lets go of the exchange
//   /nothing 204
//   else     to take()
#pragma once

#include "net/http.h"

#include <atomic>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <string>

namespace troupe::net::test {

// Counts what happens on other threads; wait_for says whether it came to that in time.
class Counter final {
 public:
  void add();
  [[nodiscard]] bool wait_for(int count);
  [[nodiscard]] int now() const;

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  int count_ = 0;
};

class Served final {
 public:
  explicit Served(const HttpOptions& options = {});

  [[nodiscard]] HttpServer& server() { return *server_; }
  [[nodiscard]] std::uint16_t port() const { return server_->port(); }
  [[nodiscard]] std::shared_ptr<Exchange> take();  // the next one; null when none came in time
  // The same, and null as soon as `stopping` is set and wake_takers called.
  [[nodiscard]] std::shared_ptr<Exchange> take_or_stop(const std::atomic<bool>& stopping);
  void wake_takers();
  void end() { server_.reset(); }

 private:
  void handle(const std::shared_ptr<Exchange>& exchange);

  std::mutex mutex_;
  std::condition_variable came_;
  std::deque<std::shared_ptr<Exchange>> held_;
  std::unique_ptr<HttpServer> server_;  // first to go: its handlers use the rest
};

inline constexpr const char* kGetHello = "GET /hello HTTP/1.1\r\nhost: x\r\n\r\n";
inline constexpr const char* kGetHold = "GET /hold HTTP/1.1\r\nhost: x\r\n\r\n";

[[nodiscard]] HttpResponse text(std::string body, unsigned status = 200);

}  // namespace troupe::net::test
