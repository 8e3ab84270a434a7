// Wire: a connected socket, with TLS or without, as one thing to read from and write to. One read
// and one write may be under way. Private to net/; the thread of its io_context.
#pragma once

#include <boost/asio/buffer.hpp>
#include <boost/asio/ip/tcp.hpp>

#include <cstddef>
#include <functional>
#include <memory>
#include <string>

namespace boost::asio::ssl {
class context;
}  // namespace boost::asio::ssl

namespace troupe::net {

class Wire {
 public:
  using ErrorCode = boost::system::error_code;
  using Done = std::function<void(const ErrorCode&, std::size_t)>;

  virtual ~Wire() = default;
  virtual void handshake(Done done) = 0;  // at once without TLS, still through the io_context
  virtual void read_some(boost::asio::mutable_buffer into, Done done) = 0;
  virtual void write_some(boost::asio::const_buffer from, Done done) = 0;
  // Says to the peer that nothing more comes; reading goes on.
  virtual void finish_writing(Done done) = 0;
  // Ends all that is under way. `reset`: the peer sees an error instead of an end, and what the
  // kernel still holds is thrown away.
  virtual void close(bool reset) = 0;
  [[nodiscard]] virtual boost::asio::any_io_executor executor() = 0;
  [[nodiscard]] virtual std::string remote() const = 0;  // "127.0.0.1:50123"
};

// `tls`: empty for none; outlives the wire.
[[nodiscard]] std::unique_ptr<Wire> make_wire(boost::asio::ip::tcp::socket socket,
                                              boost::asio::ssl::context* tls);

}  // namespace troupe::net
