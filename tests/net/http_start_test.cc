// What keeps a server from starting, and TLS.
#include "tests/net/http_client.h"
#include "tests/net/served.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <unistd.h>

namespace troupe::net::test {
namespace {

Error refusal(const HttpOptions& options) {
  auto started = HttpServer::start(options, [](const std::shared_ptr<Exchange>&) {});
  return started ? Error{Kind::kInternal, "it started", {}} : started.error();
}

// Files of this test, gone with it.
class Folder final {
 public:
  Folder()
      : path_(std::filesystem::temp_directory_path() /
              ("troupe_tls_" + std::to_string(::getpid()) + "_" +
               testing::UnitTest::GetInstance()->current_test_info()->name())) {
    std::filesystem::create_directories(path_);
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  [[nodiscard]] std::string write(const std::string& name, const std::string& content) const {
    std::ofstream(path_ / name) << content;
    return at(name);
  }
  [[nodiscard]] std::string at(const std::string& name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

TEST(HttpServerStart, RefusesAPortThatIsTaken) {
  Served first;
  HttpOptions options;
  options.port = first.port();

  const Error error = refusal(options);

  EXPECT_EQ(error.kind, Kind::kOverloaded);
  EXPECT_EQ(error.message,
            "port " + std::to_string(first.port()) +
                " of 127.0.0.1 is taken: stop the program that listens there, or choose another "
                "port");
}

TEST(HttpServerStart, TakesAPortAgainAtOnceAfterAStop) {
  HttpOptions options;
  {
    Served first;
    options.port = first.port();
    ASSERT_EQ(ask(first.port(), kGetHello).status, 200U);
  }

  EXPECT_TRUE(HttpServer::start(options, [](const std::shared_ptr<Exchange>&) {}));
}

TEST(HttpServerStart, RefusesAHostThatIsNone) {
  HttpOptions options;
  options.host = "no such host";

  EXPECT_EQ(refusal(options).kind, Kind::kInvalid);
  EXPECT_EQ(refusal(options).message,
            "host 'no such host' is neither an address nor a name that is known here: give "
            "127.0.0.1, 0.0.0.0, [::1] or the like");
}

TEST(HttpServerStart, RefusesAnAddressOfAnotherMachine) {
  HttpOptions options;
  options.host = "192.0.2.1";

  EXPECT_EQ(refusal(options).kind, Kind::kInvalid);
  EXPECT_EQ(refusal(options).message,
            "host 192.0.2.1 is no address of this machine: choose one of its own, 127.0.0.1 or "
            "0.0.0.0");
}

TEST(HttpServerStart, RefusesLimitsThatLetNothingThrough) {
  HttpOptions no_threads;
  no_threads.threads = 0;
  HttpOptions no_header;
  no_header.limits.header_bytes = 0;
  HttpOptions no_time;
  no_time.limits.read_deadline = Time{0};
  HttpOptions no_body;
  no_body.limits.bodies_bytes = no_body.limits.body_bytes - 1;

  EXPECT_EQ(refusal(no_threads).message,
            "an HTTP server needs at least one thread and one connection");
  EXPECT_EQ(refusal(no_header).message,
            "the limit of an HTTP header is 0 bytes; it must be from 1 to 1048576");
  EXPECT_EQ(refusal(no_time).message,
            "the deadlines of an HTTP server must be longer than nothing");
  EXPECT_EQ(refusal(no_body).message,
            "the limit of all requests' bodies is 16777215 bytes; it must be at least that of one, "
            "16777216");
}

TEST(HttpServerStart, RefusesACertificateWithoutAKey) {
  HttpOptions options;
  options.tls_certificate_file = "certificate.pem";

  EXPECT_EQ(refusal(options).message,
            "TLS needs a certificate file and a key file; there is no key file");
}

TEST(HttpServerStart, RefusesACertificateThatCannotBeRead) {
  const Folder folder;
  HttpOptions options;
  options.tls_certificate_file = folder.at("absent.pem");
  options.tls_key_file = folder.at("absent.pem");

  EXPECT_EQ(refusal(options).kind, Kind::kInvalid);
  EXPECT_EQ(refusal(options).message,
            "cannot read the TLS certificate file " + options.tls_certificate_file +
                ": No such file or directory");
}

TEST(HttpServerStart, RefusesADirectoryAndAnEmptyFile) {
  const Folder folder;
  HttpOptions options;
  options.tls_certificate_file = folder.at("");
  options.tls_key_file = folder.write("key.pem", "");

  EXPECT_EQ(refusal(options).message,
            "cannot read the TLS certificate file " + folder.at("") + ": Is a directory");
  options.tls_certificate_file = options.tls_key_file;
  EXPECT_EQ(refusal(options).message,
            "cannot read the TLS certificate file " + options.tls_key_file + ": it is empty");
}

TEST(HttpServerStart, RefusesFilesThatAreNoPem) {
  const Folder folder;
  const Certificate good = make_certificate();
  HttpOptions options;
  options.tls_certificate_file = folder.write("certificate.pem", "rubbish\n");
  options.tls_key_file = folder.write("key.pem", good.key);

  EXPECT_EQ(refusal(options).message,
            "the TLS certificate file " + options.tls_certificate_file +
                " holds no certificate in PEM form");
  options.tls_certificate_file = folder.write("certificate.pem", good.certificate);
  options.tls_key_file = folder.write("key.pem", "rubbish\n");
  EXPECT_EQ(
      refusal(options).message,
      "the TLS key file " + options.tls_key_file + " holds no unencrypted private key in PEM form");
}

TEST(HttpServerStart, RefusesAKeyOfAnotherCertificate) {
  const Folder folder;
  HttpOptions options;
  options.tls_certificate_file = folder.write("certificate.pem", make_certificate().certificate);
  options.tls_key_file = folder.write("key.pem", make_certificate().key);

  EXPECT_EQ(refusal(options).message,
            "the key in " + options.tls_key_file + " does not belong to the certificate in " +
                options.tls_certificate_file);
}

class HttpTls : public testing::Test {
 protected:
  HttpOptions options() {
    HttpOptions options;
    const Certificate certificate = make_certificate();
    options.tls_certificate_file = folder_.write("certificate.pem", certificate.certificate);
    options.tls_key_file = folder_.write("key.pem", certificate.key);
    return options;
  }

 private:
  Folder folder_;
};

TEST_F(HttpTls, AnswersAndKeepsTheConnection) {
  Served served(options());
  Client client(served.port(), {.tls = true});
  ASSERT_TRUE(client.connected());

  client.send(kGetHello);
  EXPECT_EQ(client.read_answer().body, "hello");
  client.send("GET /hello HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
  EXPECT_EQ(client.read_answer().body, "hello");
  EXPECT_EQ(client.read_to_end(), End::kClosed);  // with close_notify
}

TEST_F(HttpTls, StreamsAndNoticesADisconnect) {
  Served served(options());
  Client client(served.port(), {.tls = true});
  client.send(kGetHold);
  const auto exchange = served.take();
  ASSERT_NE(exchange, nullptr);
  Counter gone;
  exchange->on_gone([&gone] { gone.add(); });
  ASSERT_TRUE(exchange->begin_stream({}));
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(exchange->write("piece " + std::to_string(i)));
  }
  ASSERT_NE(client.read_until("piece 19\r\n"), "");

  client.close();

  EXPECT_TRUE(gone.wait_for(1));
}

TEST_F(HttpTls, SendsALargeAnswerWhole) {
  Served served(options());
  Client client(served.port(), {.tls = true});
  client.send(kGetHold);
  const auto exchange = served.take();
  ASSERT_NE(exchange, nullptr);
  const std::string body(5U << 20U, 'b');

  exchange->respond(text(body));

  EXPECT_TRUE(client.read_answer().body == body);
}

TEST_F(HttpTls, ClosesOnAClientThatSpeaksNoTls) {
  Served served(options());
  Client client(served.port());
  client.send(kGetHello);

  EXPECT_EQ(client.read_answer().status, 0U);
  EXPECT_NE(client.read_to_end(), End::kTimedOut);
}

TEST_F(HttpTls, EndsAHandshakeThatStalls) {
  HttpOptions slow = options();
  slow.limits.read_deadline = std::chrono::milliseconds(50);
  Served served(slow);
  Client client(served.port());

  EXPECT_EQ(client.read_to_end(), End::kClosed);
}

TEST_F(HttpTls, SaysTooManyConnectionsTooAndStops) {
  HttpOptions one = options();
  one.limits.connections = 1;
  Served served(one);
  Client first(served.port(), {.tls = true});
  first.send(kGetHold);
  const auto exchange = served.take();
  ASSERT_NE(exchange, nullptr);
  Client second(served.port(), {.tls = true});
  second.send(kGetHello);

  EXPECT_EQ(second.read_answer().status, 503U);
  served.server().stop(Time{0});
  EXPECT_FALSE(exchange->begin_stream({}));
}

}  // namespace
}  // namespace troupe::net::test
