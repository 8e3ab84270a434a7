// What HttpServer needs to start, each with its error: an open acceptor and a TLS context. Private
// to net/.
#pragma once

#include "net/http.h"
#include "runtime/base/error.h"

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>

#include <memory>

namespace troupe::net {

[[nodiscard]] Status check_options(const HttpOptions& options);

// Listens at host and port. `host`: an address, "[::1]" too, or a name.
[[nodiscard]] Result<boost::asio::ip::tcp::acceptor> open_acceptor(boost::asio::io_context& io,
                                                                   const HttpOptions& options);

// Empty when the options name no certificate.
[[nodiscard]] Result<std::unique_ptr<boost::asio::ssl::context>> open_tls(
    const HttpOptions& options);

}  // namespace troupe::net
