#include "net/wire.h"

#include "runtime/base/error.h"

#include <boost/asio/post.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/stream.hpp>

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <optional>
#include <sys/socket.h>
#include <utility>

namespace troupe::net {
namespace {

namespace asio = boost::asio;
using tcp = asio::ip::tcp;

void set(int socket, int level, int name, int value) {
  // These tune; a kernel that refuses one still serves.
  static_cast<void>(::setsockopt(socket, level, name, &value, sizeof(value)));
}

// Each write leaves at once, and a client that vanished without a word is noticed in about a
// minute and a half even when nothing is sent to it.
void tune(int socket) {
  set(socket, IPPROTO_TCP, TCP_NODELAY, 1);
  set(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
  set(socket, IPPROTO_TCP, TCP_KEEPIDLE, 60);
  set(socket, IPPROTO_TCP, TCP_KEEPINTVL, 10);
  set(socket, IPPROTO_TCP, TCP_KEEPCNT, 3);
}

class SocketWire final : public Wire {
 public:
  SocketWire(tcp::socket socket, asio::ssl::context* tls) : socket_(std::move(socket)) {
    tune(socket_.native_handle());
    ErrorCode ignored;
    const tcp::endpoint peer = socket_.remote_endpoint(ignored);
    const std::string host = peer.address().to_string();
    remote_ =
        (peer.address().is_v6() ? "[" + host + "]" : host) + ":" + std::to_string(peer.port());
    if (tls != nullptr) {
      tls_.emplace(socket_, *tls);
    }
  }

  void handshake(Done done) override {
    if (tls_) {
      tls_->async_handshake(asio::ssl::stream_base::server,
                            [done = std::move(done)](const ErrorCode& ec) { done(ec, 0); });
    } else {
      asio::post(socket_.get_executor(), [done = std::move(done)] { done({}, 0); });
    }
  }
  void read_some(asio::mutable_buffer into, Done done) override {
    if (tls_) {
      tls_->async_read_some(into, std::move(done));
    } else {
      socket_.async_read_some(into, std::move(done));
    }
  }
  void write_some(asio::const_buffer from, Done done) override {
    if (tls_) {
      tls_->async_write_some(from, std::move(done));
    } else {
      socket_.async_write_some(from, std::move(done));
    }
  }
  void finish_writing(Done done) override {
    if (tls_) {
      // Sends close_notify first; its wait for the peer's ends with the reads or with close().
      tls_->async_shutdown([done = std::move(done)](const ErrorCode& ec) { done(ec, 0); });
    } else {
      ErrorCode ignored;
      socket_.shutdown(tcp::socket::shutdown_send, ignored);
      asio::post(socket_.get_executor(), [done = std::move(done)] { done({}, 0); });
    }
  }
  void close(bool reset) override {
    ErrorCode ignored;
    if (reset) {
      socket_.set_option(asio::socket_base::linger(true, 0), ignored);
    }
    socket_.close(ignored);
  }
  asio::any_io_executor executor() override { return socket_.get_executor(); }
  [[nodiscard]] std::string remote() const override { return remote_; }

 private:
  tcp::socket socket_;
  std::optional<asio::ssl::stream<tcp::socket&>> tls_;
  std::string remote_;
};

}  // namespace

std::unique_ptr<Wire> make_wire(tcp::socket socket, asio::ssl::context* tls) {
  return std::make_unique<SocketWire>(std::move(socket), tls);
}

}  // namespace troupe::net
