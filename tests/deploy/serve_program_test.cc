// `troupe serve` as a process: what a launcher and a client see of it. The API itself is tested in
// tests/net, and with public clients in tests/clients.
#include "tests/deploy/program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <arpa/inet.h>
#include <cstdlib>
#include <netinet/in.h>
#include <signal.h>
#include <string>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

namespace troupe::deploy {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

constexpr int kReplySeconds = 60;

// A server on a port of the system's choice.
class Serving final {
 public:
  explicit Serving(std::vector<std::string> more, const std::vector<std::string>& through = {})
      : program_(arguments(std::move(more)), Program::Files::kPipes, through) {
    EXPECT_TRUE(program_.wait_for_error("listening on http://127.0.0.1:"));
    EXPECT_TRUE(program_.wait_for_error("\n"));
  }

  Program& program() { return program_; }

  // One request on a connection of its own; the whole reply, or what came before the time was up.
  static std::string ask(std::uint16_t port, const std::string& request) {
    const int fd = open(port);
    EXPECT_EQ(::send(fd, request.data(), request.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(request.size()));
    std::string reply;
    char piece[4096];
    for (ssize_t got = 0; (got = ::recv(fd, piece, sizeof piece, 0)) > 0;) {
      reply.append(piece, static_cast<std::size_t>(got));
    }
    ::close(fd);
    return reply;
  }
  static int open(std::uint16_t port) {
    const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const timeval patience{kReplySeconds, 0};
    EXPECT_EQ(::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience), 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
    return fd;
  }

 private:
  static std::vector<std::string> arguments(std::vector<std::string> more) {
    std::vector<std::string> all = {"serve", "--listen"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }

  Program program_;
};

// A port that was free a moment ago.
std::uint16_t free_port() {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  EXPECT_EQ(::bind(fd, reinterpret_cast<const sockaddr*>(&address), size), 0);
  EXPECT_EQ(::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size), 0);
  ::close(fd);
  return ntohs(address.sin_port);
}

std::string at(std::uint16_t port) {
  return "127.0.0.1:" + std::to_string(port);
}

std::string get(const std::string& path) {
  return "GET " + path + " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
}

std::string post(const std::string& path, const std::string& body) {
  return "POST " + path +
         " HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: application/json\r\n"
         "Content-Length: " +
         std::to_string(body.size()) + "\r\n\r\n" + body;
}

std::string body_of(const std::string& reply) {
  const auto end = reply.find("\r\n\r\n");
  return end == std::string::npos ? "" : reply.substr(end + 4);
}

TEST(Serve, AnswersUntilASignalAndEndsWithZero) {
  const std::uint16_t port = free_port();
  Serving serving({at(port)});

  const std::string reply = Serving::ask(
      port,
      post("/v1/chat/completions",
           R"({"model":"demo","messages":[{"role":"user","content":"What is 12 + 44?"}]})"));
  EXPECT_THAT(reply, StartsWith("HTTP/1.1 200 OK"));
  const auto answer = nlohmann::json::parse(body_of(reply));
  EXPECT_EQ(answer["choices"][0]["message"]["content"],
            "12 + 44: ones 2+4=6, tens 1+4=5, result 56");
  EXPECT_EQ(body_of(Serving::ask(port, get("/health"))), R"({"status":"ok"})");
  EXPECT_THAT(Serving::ask(port, get("/")), HasSubstr("<!doctype html>"));
  EXPECT_THAT(Serving::ask(port, get("/metrics")),
              AllOf(HasSubstr("troupe_requests_finished_total{reason=\"stop\"} 1"),
                    HasSubstr("troupe_requests_failed_total{error=\"internal\"} 0"),
                    HasSubstr("troupe_http_bodies_bytes 0"),
                    HasSubstr("troupe_http_bodies_refused_total 0")));

  serving.program().signal(SIGTERM);
  const Ended ended = serving.program().finish();
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_EQ(ended.out, "");
}

TEST(Serve, LetsWhatRunsFinishWhenItDrains) {
  const std::uint16_t port = free_port();
  Serving serving({at(port), "--kernels", "scalar", "--threads", "1"});
  const int stream = Serving::open(port);
  const std::string request =
      post("/v1/completions",
           R"({"model":"demo","prompt":"a","max_tokens":64,"ignore_eos":true,"stream":true})");
  ASSERT_EQ(::send(stream, request.data(), request.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(request.size()));
  char first = 0;
  ASSERT_EQ(::recv(stream, &first, 1, 0), 1);

  serving.program().signal(SIGTERM);
  std::string rest;
  char piece[4096];
  for (ssize_t got = 0; (got = ::recv(stream, piece, sizeof piece, 0)) > 0;) {
    rest.append(piece, static_cast<std::size_t>(got));
  }
  ::close(stream);

  EXPECT_THAT(rest, HasSubstr(R"("finish_reason":"length")"));
  EXPECT_THAT(rest, HasSubstr("data: [DONE]"));
  EXPECT_EQ(serving.program().finish().code, 0);
}

TEST(Serve, DrainsWhenTheAdminListenerIsToldTo) {
  const std::uint16_t port = free_port();
  const std::uint16_t admin = free_port();
  Serving serving({at(port), "--admin-listen", at(admin)});
  EXPECT_EQ(body_of(Serving::ask(admin, get("/health/live"))), R"({"status":"ok"})");
  EXPECT_THAT(Serving::ask(port, post("/admin/drain", "{}")), StartsWith("HTTP/1.1 404"));

  EXPECT_THAT(Serving::ask(admin, post("/admin/drain", "{}")), StartsWith("HTTP/1.1 202"));

  EXPECT_EQ(serving.program().finish().code, 0);
}

// Keep-alive connections that were answered and stay open, until one is not.
std::vector<int> held_connections(std::uint16_t port, std::size_t most, std::string& last) {
  std::vector<int> held;
  last = "HTTP/1.1 200";
  while (held.size() < most && last.starts_with("HTTP/1.1 200")) {
    held.push_back(Serving::open(port));
    const std::string request = "GET /health HTTP/1.1\r\nHost: x\r\n\r\n";
    EXPECT_EQ(::send(held.back(), request.data(), request.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(request.size()));
    char piece[4096];
    const ssize_t got = ::recv(held.back(), piece, sizeof piece, 0);
    last.assign(piece, got > 0 ? static_cast<std::size_t>(got) : 0);
  }
  return held;
}

void close_all(const std::vector<int>& files) {
  for (const int fd : files) {
    ::close(fd);
  }
}

TEST(Serve, RaisesItsSoftLimitOfOpenFilesToWhatItsConnectionsNeed) {
  const std::uint16_t port = free_port();
  Serving serving({at(port), "--connections", "300"}, {"/usr/bin/prlimit", "--nofile=64:900"});

  std::string last;
  const auto held = held_connections(port, 300, last);

  EXPECT_EQ(held.size(), 300U);
  EXPECT_THAT(last, StartsWith("HTTP/1.1 200"));
  close_all(held);
  serving.program().signal(SIGTERM);
  EXPECT_THAT(serving.program().finish().err, testing::Not(HasSubstr("open files")));
}

TEST(Serve, AcceptsFewerConnectionsThanAskedForWhenTheHardLimitIsLower) {
  const std::uint16_t port = free_port();
  Serving serving({at(port)}, {"/usr/bin/prlimit", "--nofile=200:200"});

  std::string last;
  const auto held = held_connections(port, 200, last);

  EXPECT_THAT(last, StartsWith("HTTP/1.1 503"));
  EXPECT_THAT(last, HasSubstr("too_many_connections"));
  const std::string accepted = std::to_string(held.size() - 1);
  EXPECT_GT(held.size(), 40U);
  close_all(held);
  serving.program().signal(SIGTERM);
  const Ended ended = serving.program().finish();
  EXPECT_THAT(ended.err,
              testing::ContainsRegex("1024 connections need 1[34][0-9][0-9] open files, and the "
                                     "limit is 200 .ulimit -Hn.: " +
                                     accepted + " connections are accepted"));
  EXPECT_EQ(ended.code, 0);
}

TEST(Serve, SaysThatALimitOfOpenFilesLeavesNoConnection) {
  Program program({"serve", "--listen", "127.0.0.1:0"},
                  Program::Files::kPipes,
                  {"/usr/bin/prlimit", "--nofile=80:80"});

  const Ended ended = program.finish();

  EXPECT_EQ(ended.code, 2);
  EXPECT_THAT(ended.err, HasSubstr("0 open files are left for connections, at least 4 are needed"));
}

TEST(Serve, SaysThatAPortIsTaken) {
  const std::uint16_t port = free_port();
  const Serving serving({at(port)});

  const Ended second = run_program({"serve", "--listen", at(port)});

  EXPECT_EQ(second.code, 3);
  EXPECT_THAT(second.err, HasSubstr("port " + std::to_string(port) + " of 127.0.0.1 is taken"));
}

TEST(Serve, RefusesAKeyFileWithoutKeys) {
  const Ended ended = run_program({"serve", "--api-key-file", "/dev/null"});

  EXPECT_EQ(ended.code, 2);
  EXPECT_EQ(ended.err,
            "troupe: --api-key-file /dev/null: cannot be read or has no key in it; one key a line "
            "is expected\n");
}

}  // namespace
}  // namespace troupe::deploy
