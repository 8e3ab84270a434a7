#include "tests/net/http_client.h"

#include <algorithm>
#include <arpa/inet.h>
#include <array>
#include <cerrno>
#include <charconv>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

namespace troupe::net::test {
namespace {

template <auto release>
struct Release {
  template <class T>
  void operator()(T* object) const {
    release(object);
  }
};
template <class T, auto release>
using Owned = std::unique_ptr<T, Release<release>>;

int connect_to(const std::string& host, std::uint16_t port, int receive_buffer_bytes) {
  const bool v6 = host.find(':') != std::string::npos;
  const int socket = ::socket(v6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (receive_buffer_bytes != 0) {
    ::setsockopt(
        socket, SOL_SOCKET, SO_RCVBUF, &receive_buffer_bytes, sizeof(receive_buffer_bytes));
  }
  const int on = 1;
  ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  int rc = -1;
  if (v6) {
    sockaddr_in6 address{};
    address.sin6_family = AF_INET6;
    address.sin6_port = htons(port);
    inet_pton(AF_INET6, host.c_str(), &address.sin6_addr);
    rc = ::connect(socket, reinterpret_cast<const sockaddr*>(&address), sizeof(address));
  } else {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    inet_pton(AF_INET, host.c_str(), &address.sin_addr);
    rc = ::connect(socket, reinterpret_cast<const sockaddr*>(&address), sizeof(address));
  }
  if (rc != 0) {
    ::close(socket);
    return -1;
  }
  const timeval limit{kWaitMs / 1000, 0};
  ::setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
  ::setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
  return socket;
}

std::size_t number(std::string_view text, int base) {
  std::size_t value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value, base);
  return value;
}

void parse_head(std::string_view head, Answer& answer) {
  answer.status = static_cast<unsigned>(number(head.substr(9, 3), 10));
  std::size_t at = head.find("\r\n") + 2;
  while (at < head.size()) {
    const std::size_t end = head.find("\r\n", at);
    const std::string_view line = head.substr(at, end - at);
    const std::size_t colon = line.find(": ");
    if (colon != std::string_view::npos) {
      answer.fields.emplace_back(line.substr(0, colon), line.substr(colon + 2));
    }
    at = end + 2;
  }
}

}  // namespace

struct Client::Tls {
  Owned<SSL_CTX, SSL_CTX_free> context;
  Owned<SSL, SSL_free> session;
};

std::string Answer::field(std::string_view name) const {
  const auto found = std::find_if(
      fields.begin(), fields.end(), [&](const auto& field) { return field.first == name; });
  return found == fields.end() ? "" : found->second;
}

Client::Client(std::uint16_t port) : Client(port, Options{}) {}

Client::Client(std::uint16_t port, const Options& options)
    : socket_(connect_to(options.host, port, options.receive_buffer_bytes)) {
  if (socket_ < 0) {
    end_ = End::kReset;
  } else if (options.tls) {
    tls_ = std::make_unique<Tls>();
    tls_->context.reset(SSL_CTX_new(TLS_client_method()));
    tls_->session.reset(SSL_new(tls_->context.get()));
    SSL_set_fd(tls_->session.get(), socket_);
    if (SSL_connect(tls_->session.get()) != 1) {
      end_ = End::kReset;
    }
  }
}

Client::~Client() {
  close();
}

bool Client::connected() const {
  return end_ == End::kOpen;
}

bool Client::send(std::string_view bytes) {
  while (!bytes.empty() && socket_ >= 0) {
    const ssize_t sent =
        tls_ ? SSL_write(tls_->session.get(), bytes.data(), static_cast<int>(bytes.size()))
             : ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) {
      return false;
    }
    bytes.remove_prefix(static_cast<std::size_t>(sent));
  }
  return socket_ >= 0;
}

std::size_t Client::flood(std::string_view bytes, std::size_t most) {
  std::size_t total = 0;
  pollfd ready{socket_, POLLOUT, 0};
  while (total < most && ::poll(&ready, 1, 200) == 1) {
    const ssize_t sent = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    total += sent > 0 ? static_cast<std::size_t>(sent) : 0;
  }
  return total;
}

bool Client::readable(int within_ms) const {
  pollfd ready{socket_, POLLIN, 0};
  return ::poll(&ready, 1, within_ms) == 1;
}

bool Client::fill() {
  if (socket_ < 0 || end_ != End::kOpen) {
    return false;
  }
  std::array<char, 16384> buffer;
  const ssize_t got = tls_ ? SSL_read(tls_->session.get(), buffer.data(), buffer.size())
                           : ::recv(socket_, buffer.data(), buffer.size(), 0);
  if (got > 0) {
    input_.append(buffer.data(), static_cast<std::size_t>(got));
    return true;
  }
  const bool clean =
      tls_ ? SSL_get_error(tls_->session.get(), static_cast<int>(got)) == SSL_ERROR_ZERO_RETURN
           : got == 0;
  const bool late = errno == EAGAIN || errno == EWOULDBLOCK;
  end_ = clean ? End::kClosed : late ? End::kTimedOut : End::kReset;
  return false;
}

std::string Client::read_until(std::string_view mark) {
  std::size_t found = input_.find(mark);
  while (found == std::string::npos) {
    if (!fill()) {
      return "";
    }
    found = input_.find(mark);
  }
  std::string text = input_.substr(0, found + mark.size());
  input_.erase(0, text.size());
  return text;
}

Answer Client::read_answer(bool head_only) {
  Answer answer;
  std::string head;
  do {
    head = read_until("\r\n\r\n");
    if (head.empty()) {
      return {};
    }
    answer = {};
    parse_head(head, answer);
  } while (answer.status < 200);
  if (head_only || answer.status == 204 || answer.status == 304) {
    answer.whole = true;
  } else if (answer.field("transfer-encoding") == "chunked") {
    while (const auto piece = read_chunk()) {
      answer.body += *piece;
    }
    answer.whole = end_ == End::kOpen;
  } else if (const std::string length = answer.field("content-length"); !length.empty()) {
    const std::size_t size = number(length, 10);
    while (input_.size() < size && fill()) {
    }
    answer.whole = input_.size() >= size;
    answer.body = input_.substr(0, size);
    input_.erase(0, size);
  } else {
    while (fill()) {
    }
    answer.whole = end_ == End::kClosed;
    answer.body = std::exchange(input_, {});
  }
  return answer;
}

std::optional<std::string> Client::read_chunk() {
  const std::string line = read_until("\r\n");
  const std::size_t size = number(line, 16) + 2;
  if (line.empty()) {
    return std::nullopt;
  }
  while (input_.size() < size && fill()) {
  }
  if (input_.size() < size) {
    return std::nullopt;
  }
  std::string data = input_.substr(0, size - 2);
  input_.erase(0, size);
  return data.empty() ? std::nullopt : std::optional(std::move(data));
}

End Client::read_to_end() {
  while (fill()) {
    input_.clear();
  }
  return end_;
}

void Client::half_close() {
  ::shutdown(socket_, SHUT_WR);
}

void Client::close() {
  if (socket_ >= 0) {
    ::close(std::exchange(socket_, -1));
  }
}

void Client::reset() {
  const linger now{1, 0};
  ::setsockopt(socket_, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
  close();
}

Answer ask(std::uint16_t port, std::string_view bytes) {
  Client client(port);
  client.send(bytes);
  return client.read_answer();
}

Certificate make_certificate() {
  const Owned<EVP_PKEY, EVP_PKEY_free> key(EVP_EC_gen("P-256"));
  const Owned<X509, X509_free> certificate(X509_new());
  ASN1_INTEGER_set(X509_get_serialNumber(certificate.get()), 1);
  X509_gmtime_adj(X509_getm_notBefore(certificate.get()), -60);
  X509_gmtime_adj(X509_getm_notAfter(certificate.get()), 3600);
  X509_set_pubkey(certificate.get(), key.get());
  X509_NAME* name = X509_get_subject_name(certificate.get());
  const auto* host = reinterpret_cast<const unsigned char*>("localhost");
  X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, host, -1, -1, 0);
  X509_set_issuer_name(certificate.get(), name);
  X509_sign(certificate.get(), key.get(), EVP_sha256());

  const auto text = [](auto write) {
    const Owned<BIO, BIO_free_all> out(BIO_new(BIO_s_mem()));
    write(out.get());
    char* bytes = nullptr;
    const long size = BIO_get_mem_data(out.get(), &bytes);
    return std::string(bytes, static_cast<std::size_t>(size));
  };
  return {text([&](BIO* out) { PEM_write_bio_X509(out, certificate.get()); }), text([&](BIO* out) {
            PEM_write_bio_PrivateKey(out, key.get(), nullptr, nullptr, 0, nullptr, nullptr);
          })};
}

}  // namespace troupe::net::test
