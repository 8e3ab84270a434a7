#include "net/listener.h"

#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/error.hpp>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <string>
#include <utility>

namespace troupe::net {
namespace {

namespace asio = boost::asio;
namespace ssl = asio::ssl;
using tcp = asio::ip::tcp;
using ErrorCode = boost::system::error_code;

constexpr std::size_t kHeaderBytesMax = 1U << 20U;  // each connection may hold that much

std::string bare(const std::string& host) {
  const bool in_brackets = host.size() > 2 && host.front() == '[' && host.back() == ']';
  return in_brackets ? host.substr(1, host.size() - 2) : host;
}

Status listen_error(const ErrorCode& ec, const HttpOptions& options) {
  const std::string where = "port " + std::to_string(options.port) + " of " + options.host;
  if (ec == asio::error::address_in_use) {
    return error(Kind::kOverloaded,
                 where + " is taken: stop the program that listens there, or choose another port");
  }
  if (ec == asio::error::access_denied) {
    return error(Kind::kInvalid,
                 "not allowed to listen on " + where +
                     ": choose a port from 1024 up, or give the process CAP_NET_BIND_SERVICE");
  }
  if (ec == ErrorCode(EADDRNOTAVAIL, boost::system::system_category())) {
    return error(Kind::kInvalid,
                 "host " + options.host +
                     " is no address of this machine: choose one of its own, 127.0.0.1 or 0.0.0.0");
  }
  return error(Kind::kInvalid, "cannot listen on " + where + ": " + ec.message());
}

Status readable(const std::string& what, const std::string& path) {
  errno = 0;
  std::ifstream file(path);
  // A directory opens but can't be read.
  if (!file || file.peek() == std::ifstream::traits_type::eof()) {
    const std::string reason = errno != 0 ? std::strerror(errno) : "it is empty";
    return error(Kind::kInvalid, "cannot read the " + what + " " + path + ": " + reason);
  }
  return {};
}

}  // namespace

Status check_options(const HttpOptions& options) {
  const HttpLimits& limits = options.limits;
  if (options.threads == 0 || limits.connections == 0) {
    return error(Kind::kInvalid, "an HTTP server needs at least one thread and one connection");
  }
  if (limits.header_bytes == 0 || limits.header_bytes > kHeaderBytesMax) {
    return error(Kind::kInvalid,
                 "the limit of an HTTP header is " + std::to_string(limits.header_bytes) +
                     " bytes; it must be from 1 to " + std::to_string(kHeaderBytesMax));
  }
  if (limits.bodies_bytes < limits.body_bytes) {
    return error(Kind::kInvalid,
                 "the limit of all requests' bodies is " + std::to_string(limits.bodies_bytes) +
                     " bytes; it must be at least that of one, " +
                     std::to_string(limits.body_bytes));
  }
  if (limits.read_deadline <= Time{0} || limits.write_deadline <= Time{0} ||
      limits.idle_deadline <= Time{0}) {
    return error(Kind::kInvalid, "the deadlines of an HTTP server must be longer than nothing");
  }
  return {};
}

Result<tcp::acceptor> open_acceptor(asio::io_context& io, const HttpOptions& options) {
  ErrorCode ec;
  tcp::resolver resolver(io);
  const auto found = resolver.resolve(bare(options.host),
                                      std::to_string(options.port),
                                      tcp::resolver::passive | tcp::resolver::numeric_service,
                                      ec);
  if (options.host.empty() || ec || found.empty()) {
    return error(Kind::kInvalid,
                 "host '" + options.host +
                     "' is neither an address nor a name that is known here: give 127.0.0.1, "
                     "0.0.0.0, [::1] or the like");
  }
  const tcp::endpoint endpoint = found.begin()->endpoint();
  tcp::acceptor acceptor(io);
  acceptor.open(endpoint.protocol(), ec);
  if (!ec) {
    acceptor.set_option(asio::socket_base::reuse_address(true), ec);
  }
  if (!ec) {
    acceptor.bind(endpoint, ec);
  }
  if (!ec) {
    acceptor.listen(asio::socket_base::max_listen_connections, ec);
  }
  if (ec) {
    return tl::unexpected(listen_error(ec, options).error());
  }
  return acceptor;
}

Result<std::unique_ptr<ssl::context>> open_tls(const HttpOptions& options) {
  const std::string& certificate = options.tls_certificate_file;
  const std::string& key = options.tls_key_file;
  if (certificate.empty() && key.empty()) {
    return std::unique_ptr<ssl::context>();
  }
  if (certificate.empty() || key.empty()) {
    return error(Kind::kInvalid,
                 std::string("TLS needs a certificate file and a key file; there is no ") +
                     (key.empty() ? "key file" : "certificate file"));
  }
  TROUPE_TRY(readable("TLS certificate file", certificate));
  TROUPE_TRY(readable("TLS key file", key));

  auto context = std::make_unique<ssl::context>(ssl::context::tls_server);
  ErrorCode ec;
  context->set_options(ssl::context::default_workarounds | ssl::context::no_tlsv1 |
                           ssl::context::no_tlsv1_1 | SSL_OP_NO_RENEGOTIATION,
                       ec);
  // Without it OpenSSL asks for the passphrase of an encrypted key on the terminal.
  context->set_password_callback(
      [](std::size_t, ssl::context::password_purpose) { return std::string(); }, ec);
  context->use_certificate_chain_file(certificate, ec);
  if (ec) {
    return error(Kind::kInvalid,
                 "the TLS certificate file " + certificate + " holds no certificate in PEM form");
  }
  context->use_private_key_file(key, ssl::context::pem, ec);
  if (ec.category() == asio::error::get_ssl_category() &&
      ERR_GET_REASON(static_cast<unsigned long>(ec.value())) == X509_R_KEY_VALUES_MISMATCH) {
    return error(Kind::kInvalid,
                 "the key in " + key + " does not belong to the certificate in " + certificate);
  }
  if (ec) {
    return error(Kind::kInvalid,
                 "the TLS key file " + key + " holds no unencrypted private key in PEM form");
  }
  return context;
}

}  // namespace troupe::net
