// Requests and answers over real sockets.
#include "tests/net/http_client.h"
#include "tests/net/served.h"

#include <gtest/gtest.h>

namespace troupe::net::test {
namespace {

TEST(HttpServer, AnswersAGet) {
  Served served;

  const Answer answer = ask(served.port(), kGetHello);

  EXPECT_EQ(answer.status, 200U);
  EXPECT_EQ(answer.body, "hello");
  EXPECT_EQ(answer.field("content-type"), "text/plain");
  EXPECT_NE(answer.field("date"), "");
}

TEST(HttpServer, HandsOverMethodPathQueryFieldsAndBody) {
  Served served;

  const Answer answer = ask(served.port(),
                            "PUT /%65cho?a=%41 HTTP/1.1\r\nHost: x\r\nX-Test:  some value \r\n"
                            "Content-Length: 4\r\n\r\nbody");

  EXPECT_EQ(answer.body, "PUT\n/echo\na=%41\nsome value\nbody");
}

TEST(HttpServer, SaysWhoAsks) {
  Served served;
  Client client(served.port());
  client.send(kGetHold);

  const auto exchange = served.take();

  ASSERT_NE(exchange, nullptr);
  EXPECT_TRUE(exchange->request().remote.starts_with("127.0.0.1:"));
  EXPECT_GT(exchange->request().remote.size(), std::string("127.0.0.1:").size());
}

TEST(HttpServer, KeepsAConnectionForManyRequests) {
  Served served;
  Client client(served.port());

  for (int i = 0; i < 100; ++i) {
    client.send(kGetHello);
    ASSERT_EQ(client.read_answer().body, "hello") << i;
  }

  EXPECT_EQ(served.server().counts().accepted, 1U);
}

TEST(HttpServer, ClosesWhenTheClientAsksForIt) {
  Served served;
  Client client(served.port());
  client.send("GET /hello HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");

  const Answer answer = client.read_answer();

  EXPECT_EQ(answer.field("connection"), "close");
  EXPECT_EQ(client.read_to_end(), End::kClosed);
}

TEST(HttpServer, AnswersPipelinedRequestsInTheirOrder) {
  Served served;
  Client client(served.port());
  client.send(std::string(kGetHold) + kGetHello + kGetHold);

  const auto first = served.take();
  ASSERT_NE(first, nullptr);
  first->respond(text("first"));

  EXPECT_EQ(client.read_answer().body, "first");
  EXPECT_EQ(client.read_answer().body, "hello");
  const auto third = served.take();
  ASSERT_NE(third, nullptr);
  third->respond(text("third"));
  EXPECT_EQ(client.read_answer().body, "third");
}

TEST(HttpServer, AnswersManyPipelinedRequestsThatFillItsReadAhead) {
  Served served;
  Client client(served.port());
  std::string all = kGetHold;
  for (int i = 0; i < 4000; ++i) {
    all += kGetHello;
  }
  client.send(all);

  const auto first = served.take();
  ASSERT_NE(first, nullptr);
  first->respond(text("first"));

  EXPECT_EQ(client.read_answer().body, "first");
  int answered = 0;
  while (answered < 4000 && client.read_answer().body == "hello") {
    ++answered;
  }
  EXPECT_EQ(answered, 4000);
}

TEST(HttpServer, ReadsARequestThatComesByteByByte) {
  Served served;
  Client client(served.port());

  for (const char c :
       std::string("POST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: 3\r\n\r\nabc")) {
    client.send(std::string(1, c));
  }

  EXPECT_EQ(client.read_answer().body, "POST\n/echo\n\n\nabc");
}

TEST(HttpServer, ReadsAChunkedBody) {
  Served served;

  const Answer answer =
      ask(served.port(),
          "POST /echo HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n"
          "5;name=value\r\nhello\r\n1\r\n \r\n5\r\nworld\r\n0\r\nx-test: no\r\n\r\n");

  EXPECT_EQ(answer.body, "POST\n/echo\n\n\nhello world");
}

TEST(HttpServer, ReadsAChunkedBodyThatComesByteByByte) {
  Served served;
  Client client(served.port());

  for (const char c : std::string("POST /echo HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n"
                                  "\r\n3\r\nabc\r\n0\r\n\r\n")) {
    client.send(std::string(1, c));
  }
  client.send(kGetHello);

  EXPECT_EQ(client.read_answer().body, "POST\n/echo\n\n\nabc");
  EXPECT_EQ(client.read_answer().body, "hello");
}

TEST(HttpServer, SaysContinueToAClientThatWaitsForIt) {
  Served served;
  Client client(served.port());
  client.send(
      "POST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\nexpect: 100-continue\r\n\r\n");

  EXPECT_EQ(client.read_until("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  client.send("ok");

  EXPECT_EQ(client.read_answer().body, "POST\n/echo\n\n\nok");
}

TEST(HttpServer, SaysNoContinueWhenTheBodyIsThereAlready) {
  Served served;
  Client client(served.port());
  client.send(
      "POST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\nexpect: 100-continue\r\n\r\nok");

  EXPECT_TRUE(client.read_until("\r\n").starts_with("HTTP/1.1 200"));
}

TEST(HttpServer, AnswersHeadWithoutABody) {
  Served served;
  Client client(served.port());
  client.send("HEAD /hello HTTP/1.1\r\nhost: x\r\n\r\n");
  client.send(kGetHello);

  const Answer head = client.read_answer(true);

  EXPECT_EQ(head.field("content-length"), "5");
  EXPECT_EQ(client.read_answer().body, "hello");  // no byte of a body stood between
}

TEST(HttpServer, HandsOverOptionsToo) {
  Served served;

  EXPECT_EQ(ask(served.port(), "OPTIONS /echo HTTP/1.1\r\nhost: x\r\n\r\n").body,
            "OPTIONS\n/echo\n\n\n");
  EXPECT_EQ(ask(served.port(), "GET /nothing HTTP/1.1\r\nhost: x\r\n\r\n").status, 204U);
}

TEST(HttpServer, AnswersAnHttp10ClientAndCloses) {
  Served served;
  Client client(served.port());
  client.send("GET /hello HTTP/1.0\r\n\r\n");

  EXPECT_EQ(client.read_answer().body, "hello");
  EXPECT_EQ(client.read_to_end(), End::kClosed);
}

TEST(HttpServer, KeepsAnHttp10ConnectionThatAsksForIt) {
  Served served;
  Client client(served.port());
  client.send("GET /hello HTTP/1.0\r\nconnection: keep-alive\r\n\r\n");

  EXPECT_EQ(client.read_answer().field("connection"), "keep-alive");
  client.send("GET /hello HTTP/1.0\r\n\r\n");
  EXPECT_EQ(client.read_answer().body, "hello");
}

TEST(HttpServer, AnswersAClientThatHalfClosesWhenTheAnswerIsThereAtOnce) {
  Served served;
  Client client(served.port());
  client.send(std::string(kGetHello) + kGetHello);
  client.half_close();

  EXPECT_EQ(client.read_answer().body, "hello");
  EXPECT_EQ(client.read_answer().body, "hello");
  EXPECT_EQ(client.read_to_end(), End::kClosed);
}

TEST(HttpServer, SendsALargeAnswerWhole) {
  Served served;
  Client client(served.port());
  client.send(kGetHold);
  const auto exchange = served.take();
  ASSERT_NE(exchange, nullptr);
  const std::string body(40U << 20U, 'b');

  exchange->respond(text(body));

  EXPECT_TRUE(client.read_answer().body == body);
}

TEST(HttpServer, TakesOnlyTheFirstAnswer) {
  Served served;
  Client client(served.port());
  client.send(kGetHold);
  const auto exchange = served.take();
  ASSERT_NE(exchange, nullptr);

  exchange->respond(text("first"));
  exchange->respond(text("second"));
  EXPECT_FALSE(exchange->begin_stream({}));
  EXPECT_FALSE(exchange->write("x"));
  exchange->end();
  client.send(kGetHello);

  EXPECT_EQ(client.read_answer().body, "first");
  EXPECT_EQ(client.read_answer().body, "hello");
}

TEST(HttpServer, Answers500WhenTheHandlerLetsGo) {
  Served served;
  Client client(served.port());
  client.send("GET /drop HTTP/1.1\r\nhost: x\r\n\r\n");

  const Answer answer = client.read_answer();
  client.send(kGetHello);

  EXPECT_EQ(answer.status, 500U);
  EXPECT_EQ(answer.body,
            R"({"error":{"message":"the server has a bug: it gave no answer",)"
            R"("type":"server_error","param":null,"code":"no_answer"}})");
  EXPECT_EQ(client.read_answer().body, "hello");
}

TEST(HttpServer, IgnoresEmptyLinesBeforeARequest) {
  Served served;

  EXPECT_EQ(ask(served.port(), std::string("\r\n\r\n") + kGetHello).body, "hello");
}

TEST(HttpServer, ServesOnSeveralThreads) {
  HttpOptions options;
  options.threads = 3;
  Served served(options);
  Client clients[7] = {Client(served.port()),
                       Client(served.port()),
                       Client(served.port()),
                       Client(served.port()),
                       Client(served.port()),
                       Client(served.port()),
                       Client(served.port())};

  for (auto& client : clients) {
    client.send(kGetHello);
  }

  for (auto& client : clients) {
    EXPECT_EQ(client.read_answer().body, "hello");
  }
}

TEST(HttpServer, ListensOnIpv6) {
  HttpOptions options;
  options.host = "[::1]";
  auto started = HttpServer::start(options, [](const std::shared_ptr<Exchange>& exchange) {
    exchange->respond(text(exchange->request().remote));
  });
  if (!started) {
    GTEST_SKIP() << "no IPv6 here: " << started.error().message;
  }
  Client client((*started)->port(), {.host = "::1"});
  client.send(kGetHello);

  EXPECT_TRUE(client.read_answer().body.starts_with("[::1]:"));
}

TEST(HttpServer, ResolvesAHostName) {
  HttpOptions options;
  options.host = "localhost";

  EXPECT_TRUE(HttpServer::start(options, [](const std::shared_ptr<Exchange>&) {}));
}

}  // namespace
}  // namespace troupe::net::test
