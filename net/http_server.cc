// The server around its connections: one io_context and one thread each, connections dealt out in
// turn, so that a connection needs no lock of its own.
#include "net/connection.h"
#include "net/http.h"
#include "net/listener.h"

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

namespace troupe::net {
namespace {

namespace asio = boost::asio;
using tcp = asio::ip::tcp;
using ErrorCode = boost::system::error_code;

constexpr Time kPatienceMax = std::chrono::hours(24 * 365);   // now plus it is still a time
constexpr Time kAcceptPause = std::chrono::milliseconds(50);  // out of file descriptors

class Worker final {
 public:
  Worker() : work_(asio::make_work_guard(io_)) {}
  void start() {
    thread_ = std::thread([this] { io_.run(); });
  }
  void stop() {
    work_.reset();
    io_.stop();
    if (thread_.joinable()) {
      thread_.join();
    }
  }
  asio::io_context& io() { return io_; }
  [[nodiscard]] bool is_here() const { return thread_.get_id() == std::this_thread::get_id(); }

 private:
  asio::io_context io_{1};
  asio::executor_work_guard<asio::io_context::executor_type> work_;
  std::thread thread_;
};

class BeastHttpServer final : public HttpServer, public ConnectionHost {
 public:
  BeastHttpServer(const HttpOptions& options, HttpHandler handler)
      : options_(options),
        handler_(std::move(handler)),
        bodies_(std::make_shared<BodyBudget>(options.limits.bodies_bytes)) {
    for (std::uint32_t i = 0; i < options.threads; ++i) {
      workers_.push_back(std::make_unique<Worker>());
    }
  }
  // NOLINTNEXTLINE(bugprone-exception-escape): out of memory while it stops, the process ends
  ~BeastHttpServer() override { BeastHttpServer::stop(Time{0}); }
  BeastHttpServer(const BeastHttpServer&) = delete;
  BeastHttpServer& operator=(const BeastHttpServer&) = delete;

  Status listen() {
    TROUPE_ASSIGN(tls_, open_tls(options_));
    TROUPE_ASSIGN(auto acceptor, open_acceptor(workers_.front()->io(), options_));
    ErrorCode ec;
    port_ = acceptor.local_endpoint(ec).port();
    acceptor_ = std::make_unique<tcp::acceptor>(std::move(acceptor));
    accept_pause_ = std::make_unique<asio::steady_timer>(workers_.front()->io());
    accept();
    for (const auto& worker : workers_) {
      worker->start();
    }
    return {};
  }

  [[nodiscard]] std::uint16_t port() const override { return port_; }
  [[nodiscard]] HttpCounts counts() const override;
  void stop(Time patience) override;

 private:
  struct Entry {
    std::shared_ptr<Connection> connection;
    asio::any_io_executor executor;
    bool is_refused = false;
    bool is_settled = false;
  };

  // ConnectionHost
  [[nodiscard]] const HttpLimits& limits() const override { return options_.limits; }
  [[nodiscard]] const HttpHandler& handler() const override { return handler_; }
  [[nodiscard]] std::shared_ptr<const std::atomic<bool>> draining() const override {
    return draining_;
  }
  [[nodiscard]] std::shared_ptr<BodyBudget> body_budget() const override { return bodies_; }
  void count_slow_reader() override;
  void on_settled(const Connection& connection) override;
  void on_closed(const Connection& connection) override;

  void accept();
  void on_accepted(const ErrorCode& ec, tcp::socket socket);
  void admit(tcp::socket socket);
  void stop_accepting();
  void tell_all(void (Connection::*what)());
  [[nodiscard]] bool all_settled() const;  // REQUIRES: mutex_

  const HttpOptions options_;
  const HttpHandler handler_;
  const std::shared_ptr<std::atomic<bool>> draining_ = std::make_shared<std::atomic<bool>>(false);
  // Exchanges that outlive the server have their part of it.
  const std::shared_ptr<BodyBudget> bodies_;
  std::uint16_t port_ = 0;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::unordered_map<const Connection*, Entry> connections_;
  std::size_t refused_now_ = 0;
  HttpCounts counts_;
  bool accepts_ = true;

  std::mutex stop_mutex_;
  bool is_stopped_ = false;

  // Below all that connections use, so that what is left in the io_contexts goes first.
  std::unique_ptr<asio::ssl::context> tls_;
  std::vector<std::unique_ptr<Worker>> workers_;
  std::size_t next_worker_ = 0;              // the first worker's thread
  std::unique_ptr<tcp::acceptor> acceptor_;  // the same; null until it listens
  std::unique_ptr<asio::steady_timer> accept_pause_;
};

HttpCounts BeastHttpServer::counts() const {
  const std::scoped_lock lock(mutex_);
  HttpCounts counts = counts_;
  counts.open = static_cast<std::uint32_t>(connections_.size() - refused_now_);
  counts.bodies_bytes = bodies_->held();
  counts.bodies_refused = bodies_->refused();
  return counts;
}

void BeastHttpServer::count_slow_reader() {
  const std::scoped_lock lock(mutex_);
  ++counts_.slow_readers;
}

void BeastHttpServer::on_settled(const Connection& connection) {
  const std::scoped_lock lock(mutex_);
  connections_[&connection].is_settled = true;
  changed_.notify_all();
}

void BeastHttpServer::on_closed(const Connection& connection) {
  Entry entry;  // destroyed without the mutex
  const std::scoped_lock lock(mutex_);
  const auto found = connections_.find(&connection);
  entry = std::move(found->second);
  connections_.erase(found);
  refused_now_ -= entry.is_refused ? 1 : 0;
  changed_.notify_all();
}

void BeastHttpServer::accept() {
  asio::io_context& io = workers_[next_worker_]->io();
  next_worker_ = (next_worker_ + 1) % workers_.size();
  acceptor_->async_accept(
      io, [this](const ErrorCode& ec, tcp::socket socket) { on_accepted(ec, std::move(socket)); });
}

void BeastHttpServer::on_accepted(const ErrorCode& ec, tcp::socket socket) {
  if (!acceptor_->is_open()) {
    return;
  }
  if (!ec) {
    admit(std::move(socket));
  } else if (ec != asio::error::connection_aborted) {
    accept_pause_->expires_after(kAcceptPause);
    accept_pause_->async_wait([this](const ErrorCode&) {
      if (acceptor_->is_open()) {
        accept();
      }
    });
    return;
  }
  accept();
}

void BeastHttpServer::admit(tcp::socket socket) {
  std::optional<Refusal> refusal;
  const asio::any_io_executor executor = socket.get_executor();
  std::shared_ptr<Connection> connection;
  {
    const std::scoped_lock lock(mutex_);
    const bool refused = connections_.size() - refused_now_ >= options_.limits.connections;
    ++(refused ? counts_.refused : counts_.accepted);
    if (refused && refused_now_ >= options_.limits.refused) {
      return;
    }
    connection = std::make_shared<Connection>(*this, make_wire(std::move(socket), tls_.get()));
    connections_.emplace(connection.get(), Entry{connection, executor, refused, false});
    if (refused) {
      ++refused_now_;
      refusal = Refusal{503,
                        "too_many_connections",
                        "the server's limit of " + std::to_string(options_.limits.connections) +
                            " connections is reached; try again later"};
    }
  }
  asio::post(executor, [connection, refusal] { connection->start(refusal); });
}

void BeastHttpServer::stop_accepting() {
  asio::post(workers_.front()->io(), [this] {
    ErrorCode ignored;
    acceptor_->close(ignored);
    accept_pause_->cancel();
    const std::scoped_lock lock(mutex_);
    accepts_ = false;
    changed_.notify_all();
  });
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return !accepts_; });
}

void BeastHttpServer::tell_all(void (Connection::*what)()) {
  const std::scoped_lock lock(mutex_);
  for (const auto& [unused, entry] : connections_) {
    asio::post(entry.executor, [connection = entry.connection, what] { ((*connection).*what)(); });
  }
}

bool BeastHttpServer::all_settled() const {
  for (const auto& [unused, entry] : connections_) {
    if (!entry.is_settled) {
      return false;
    }
  }
  return true;
}

void BeastHttpServer::stop(Time patience) {
  for (const auto& worker : workers_) {
    TROUPE_CHECK(!worker->is_here(), "a handler or a callback can't stop its own server");
  }
  const std::scoped_lock stopping(stop_mutex_);
  if (std::exchange(is_stopped_, true)) {
    return;
  }
  if (acceptor_) {
    draining_->store(true);
    stop_accepting();
    tell_all(&Connection::drain);
    {
      std::unique_lock lock(mutex_);
      changed_.wait_for(lock, std::min(patience, kPatienceMax), [this] { return all_settled(); });
    }
    tell_all(&Connection::abort);
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return connections_.empty(); });
  }
  for (const auto& worker : workers_) {
    worker->stop();
  }
}

}  // namespace

Result<std::unique_ptr<HttpServer>> HttpServer::start(const HttpOptions& options,
                                                      HttpHandler handler) {
  TROUPE_TRY(check_options(options));
  auto server = std::make_unique<BeastHttpServer>(options, std::move(handler));
  TROUPE_TRY(server->listen());
  return server;
}

}  // namespace troupe::net
