// A client of plain sockets, so that tests can send what no library would. Each wait has a limit:
// a test that waits in vain fails and does not hang.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace troupe::net::test {

inline constexpr int kWaitMs = 20000;

struct Answer {
  unsigned status = 0;  // 0: the connection ended before an answer came
  std::vector<std::pair<std::string, std::string>> fields;  // names in lower case
  std::string body;
  bool whole = false;  // it ended as its head said it would

  [[nodiscard]] std::string field(std::string_view name) const;
};

enum class End : std::uint8_t { kOpen, kClosed, kReset, kTimedOut };

class Client final {
 public:
  struct Options {
    std::string host = "127.0.0.1";
    bool tls = false;
    int receive_buffer_bytes = 0;  // 0: the system's
  };

  explicit Client(std::uint16_t port);
  Client(std::uint16_t port, const Options& options);
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  [[nodiscard]] bool connected() const;
  bool send(std::string_view bytes);
  // Sends `bytes` again and again until the server takes no more for a while, or `most` went out.
  [[nodiscard]] std::size_t flood(std::string_view bytes, std::size_t most);
  [[nodiscard]] bool readable(int within_ms = 0) const;
  // Until `mark` was read, all up to its end; empty when the connection ended before.
  [[nodiscard]] std::string read_until(std::string_view mark);
  // One answer, after any 1xx. `head_only`: of a HEAD request.
  [[nodiscard]] Answer read_answer(bool head_only = false);
  // The data of the next chunk of a stream; nothing: the last one, or the end.
  [[nodiscard]] std::optional<std::string> read_chunk();
  // Reads and throws away until the end.
  [[nodiscard]] End read_to_end();
  void half_close();
  void close();
  void reset();  // the server gets RST

 private:
  struct Tls;
  [[nodiscard]] bool fill();  // reads more; false at the end

  std::unique_ptr<Tls> tls_;
  std::string input_;
  int socket_ = -1;
  End end_ = End::kOpen;
};

// Sends `bytes` on a connection of its own and reads one answer.
[[nodiscard]] Answer ask(std::uint16_t port, std::string_view bytes);

// A self-signed certificate of localhost and its key, in PEM.
struct Certificate {
  std::string certificate;
  std::string key;
};
[[nodiscard]] Certificate make_certificate();

}  // namespace troupe::net::test
