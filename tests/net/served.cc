#include "tests/net/served.h"

#include "tests/net/http_client.h"

#include <chrono>
#include <utility>

namespace troupe::net::test {

void Counter::add() {
  const std::scoped_lock lock(mutex_);
  ++count_;
  changed_.notify_all();
}

bool Counter::wait_for(int count) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(
      lock, std::chrono::milliseconds(kWaitMs), [&] { return count_ >= count; });
}

int Counter::now() const {
  const std::scoped_lock lock(mutex_);
  return count_;
}

HttpResponse text(std::string body, unsigned status) {
  HttpResponse response;
  response.status = status;
  response.content_type = "text/plain";
  response.body = std::move(body);
  return response;
}

Served::Served(const HttpOptions& options)
    : server_(HttpServer::start(options, [this](const std::shared_ptr<Exchange>& exchange) {
                handle(exchange);
              }).value()) {}

void Served::handle(const std::shared_ptr<Exchange>& exchange) {
  const HttpRequest& request = exchange->request();
  if (request.path == "/hello") {
    exchange->respond(text("hello"));
  } else if (request.path == "/echo") {
    exchange->respond(text(request.method + "\n" + request.path + "\n" + request.query + "\n" +
                           std::string(request.field("x-test")) + "\n" + request.body));
  } else if (request.path == "/nothing") {
    exchange->respond(text("", 204));
  } else if (request.path != "/drop") {
    const std::scoped_lock lock(mutex_);
    held_.push_back(exchange);
    came_.notify_all();
  }
}

std::shared_ptr<Exchange> Served::take() {
  const std::atomic<bool> never = false;
  return take_or_stop(never);
}

std::shared_ptr<Exchange> Served::take_or_stop(const std::atomic<bool>& stopping) {
  std::unique_lock lock(mutex_);
  const bool came = came_.wait_for(
      lock, std::chrono::milliseconds(kWaitMs), [&] { return !held_.empty() || stopping; });
  if (!came || held_.empty()) {
    return nullptr;
  }
  auto exchange = std::move(held_.front());
  held_.pop_front();
  return exchange;
}

void Served::wake_takers() {
  const std::scoped_lock lock(mutex_);
  came_.notify_all();
}

}  // namespace troupe::net::test
