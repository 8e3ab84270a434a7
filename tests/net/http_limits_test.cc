// What is refused: malformed requests, and what is too large, too slow or too much.
#include "tests/net/http_client.h"
#include "tests/net/served.h"

#include <gtest/gtest.h>

#include <list>
#include <sys/resource.h>
#include <unistd.h>

namespace troupe::net::test {
namespace {

const std::string kPost = "POST /echo HTTP/1.1\r\nhost: x\r\n";

struct Malformed {
  const char* name;
  std::string bytes;
  unsigned status = 400;
};

class HttpMalformed : public testing::TestWithParam<Malformed> {};

TEST_P(HttpMalformed, IsRefusedWithAReasonAndTheConnectionCloses) {
  Served served;
  Client client(served.port());
  client.send(GetParam().bytes);

  const Answer answer = client.read_answer();

  EXPECT_EQ(answer.status, GetParam().status);
  EXPECT_EQ(answer.field("content-type"), "application/json");
  EXPECT_EQ(answer.field("connection"), "close");
  EXPECT_TRUE(answer.body.starts_with(R"({"error":{"message":")")) << answer.body;
  EXPECT_EQ(client.read_to_end(), End::kClosed);
}

INSTANTIATE_TEST_SUITE_P(
    Requests,
    HttpMalformed,
    testing::Values(
        Malformed{"Binary",
                  std::string("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 15)},
        Malformed{"NoVersion", "GET /\r\n\r\n"},
        Malformed{"Http2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"},
        Malformed{"BareLineFeeds", "GET / HTTP/1.1\nhost: x\n\n"},
        Malformed{"NoHost", "GET /hello HTTP/1.1\r\n\r\n"},
        Malformed{"TwoHosts", "GET /hello HTTP/1.1\r\nhost: x\r\nhost: y\r\n\r\n"},
        Malformed{"SpaceBeforeColon", "GET /hello HTTP/1.1\r\nhost : x\r\n\r\n"},
        Malformed{"NulInField",
                  std::string("GET / HTTP/1.1\r\nhost: x\r\na: ") + '\0' + "\r\n\r\n"},
        Malformed{"BrokenPercent", "GET /%zz HTTP/1.1\r\nhost: x\r\n\r\n"},
        Malformed{"Authority", "CONNECT host:80 HTTP/1.1\r\nhost: x\r\n\r\n"},
        Malformed{"NegativeLength", kPost + "content-length: -1\r\n\r\n"},
        Malformed{"HugeLength", kPost + "content-length: 99999999999999999999\r\n\r\n"},
        Malformed{"TwoLengths", kPost + "content-length: 1\r\ncontent-length: 2\r\n\r\nab"},
        Malformed{"LengthAndChunks",
                  kPost + "content-length: 1\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n"},
        Malformed{"BrokenChunk", kPost + "transfer-encoding: chunked\r\n\r\nxyz\r\n"},
        Malformed{"ChunkWithoutItsEnd",
                  kPost + "transfer-encoding: chunked\r\n\r\n1\r\nabc\r\n0\r\n\r\n"},
        Malformed{"Http10Chunks", "POST / HTTP/1.0\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n"},
        Malformed{"Gzip", kPost + "transfer-encoding: gzip\r\n\r\n", 501},
        Malformed{"GzipChunks", kPost + "transfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 501},
        Malformed{"OddExpectation", kPost + "expect: wonders\r\n\r\n", 417}),
    [](const auto& row) { return row.param.name; });

TEST(HttpLimit, OfTheHeaderIsExact) {
  HttpOptions options;
  options.limits.header_bytes = 200;
  Served served(options);
  const std::string begin = "GET /hello HTTP/1.1\r\nhost: x\r\nlong: ";
  const std::string end = "\r\n\r\n";
  const std::string fits(200 - begin.size() - end.size(), 'a');

  EXPECT_EQ(ask(served.port(), begin + fits + end).status, 200U);
  const Answer refused = ask(served.port(), begin + fits + "a" + end);

  EXPECT_EQ(refused.status, 431U);
  EXPECT_EQ(refused.body,
            R"({"error":{"message":"the request's header is over 200 bytes",)"
            R"("type":"invalid_request_error","param":null,"code":"header_too_large"}})");
}

TEST(HttpLimit, OfTheHeaderHoldsForLinesThatComeOneByOne) {
  HttpOptions options;
  options.limits.header_bytes = 1000;
  Served served(options);
  Client client(served.port());
  client.send("GET /hello HTTP/1.1\r\nhost: x\r\n");

  int lines = 0;
  while (lines < 1000 && client.send("name: value\r\n")) {
    ++lines;
  }

  EXPECT_EQ(client.read_answer().status, 431U);
}

TEST(HttpLimit, OfTheHeaderHoldsForARequestLineWithoutEnd) {
  Served served;

  EXPECT_EQ(ask(served.port(), "GET /" + std::string(100000, 'a')).status, 431U);
}

TEST(HttpLimit, OfTheHeaderHoldsForChunkExtensionsAndTrailers) {
  HttpOptions options;
  options.limits.header_bytes = 1000;
  Served served(options);
  const std::string chunked = kPost + "transfer-encoding: chunked\r\n\r\n";

  EXPECT_EQ(ask(served.port(), chunked + "1;" + std::string(2000, 'a')).status, 400U);
  EXPECT_EQ(ask(served.port(), chunked + "0\r\na: " + std::string(2000, 'a')).status, 400U);
}

TEST(HttpLimit, OfTheBodyIsExact) {
  HttpOptions options;
  options.limits.body_bytes = 10;
  Served served(options);

  EXPECT_EQ(ask(served.port(), kPost + "content-length: 10\r\n\r\n0123456789").status, 200U);
  const Answer refused = ask(served.port(), kPost + "content-length: 11\r\n\r\n");

  EXPECT_EQ(refused.status, 413U);  // before a byte of the body was sent
  EXPECT_EQ(refused.body,
            R"({"error":{"message":"the request's body is over 10 bytes",)"
            R"("type":"invalid_request_error","param":null,"code":"body_too_large"}})");
}

TEST(HttpLimit, OfTheBodyHoldsForChunksTogether) {
  HttpOptions options;
  options.limits.body_bytes = 10;
  Served served(options);
  const std::string chunked = kPost + "transfer-encoding: chunked\r\n\r\n";

  EXPECT_EQ(ask(served.port(), chunked + "5\r\n01234\r\n5\r\n01234\r\n0\r\n\r\n").status, 200U);
  EXPECT_EQ(ask(served.port(), chunked + "5\r\n01234\r\n6\r\n").status, 413U);
  EXPECT_EQ(ask(served.port(), chunked + "ffffffffffffffff\r\n").status, 413U);
}

TEST(HttpLimit, OfTheBodyIsToldToAClientThatSendsItAllFirst) {
  HttpOptions options;
  options.limits.body_bytes = 10;
  Served served(options);

  const Answer answer =
      ask(served.port(), kPost + "content-length: 8000000\r\n\r\n" + std::string(8000000, 'b'));

  EXPECT_EQ(answer.status, 413U);
}

TEST(HttpLimit, OfTheBodyRefusesInsteadOfSayingContinue) {
  HttpOptions options;
  options.limits.body_bytes = 10;
  Served served(options);
  Client client(served.port());
  client.send(kPost + "content-length: 11\r\nexpect: 100-continue\r\n\r\n");

  EXPECT_TRUE(client.read_until("\r\n").starts_with("HTTP/1.1 413"));
}

// One body may have 100 bytes, all together 150.
HttpOptions with_few_bodies() {
  HttpOptions options;
  options.limits.body_bytes = 100;
  options.limits.bodies_bytes = 150;
  return options;
}

std::string post_of(std::string_view path, std::size_t size) {
  return "POST " + std::string(path) +
         " HTTP/1.1\r\nhost: x\r\ncontent-length: " + std::to_string(size) + "\r\n\r\n" +
         std::string(size, 'b');
}

TEST(HttpLimit, OfAllBodiesRefusesOneMoreBeforeItIsRead) {
  Served served(with_few_bodies());
  Client first(served.port());
  first.send(post_of("/hold", 100));
  auto exchange = served.take();
  ASSERT_NE(exchange, nullptr);

  const Answer refused =
      ask(served.port(), kPost + "expect: 100-continue\r\ncontent-length: 51\r\n\r\n");

  EXPECT_EQ(refused.status, 503U);
  EXPECT_EQ(refused.field("retry-after"), "1");
  EXPECT_EQ(refused.body,
            R"({"error":{"message":"the bodies of the requests that the server has now leave no )"
            R"(room for this one; all together may have 150 bytes; try again later",)"
            R"("type":"server_error","param":null,"code":"bodies_too_large"}})");
  EXPECT_EQ(ask(served.port(), post_of("/echo", 50)).status, 200U);
  EXPECT_EQ(ask(served.port(), kGetHello).status, 200U);
  EXPECT_EQ(served.server().counts().bodies_bytes, 100U);
  EXPECT_EQ(served.server().counts().bodies_refused, 1U);
  exchange->respond(text("done"));
  exchange.reset();
  ASSERT_EQ(first.read_answer().body, "done");
  first.send(post_of("/echo", 100));
  EXPECT_EQ(first.read_answer().status, 200U);
}

TEST(HttpLimit, OfAllBodiesCountsWhatHasComeOfChunks) {
  Served served(with_few_bodies());
  Client first(served.port());
  first.send(post_of("/hold", 100));
  const auto exchange = served.take();
  ASSERT_NE(exchange, nullptr);
  const std::string chunked =
      kPost + "transfer-encoding: chunked\r\n\r\n32\r\n" + std::string(50, 'c') + "\r\n";

  EXPECT_EQ(ask(served.port(), chunked + "0\r\n\r\n").status, 200U);
  EXPECT_EQ(ask(served.port(), chunked + "1\r\nd").status, 503U);
  EXPECT_EQ(served.server().counts().bodies_bytes, 100U);
}

TEST(HttpLimit, OfAllBodiesDoesNotCountOneThatWasTaken) {
  Served served(with_few_bodies());
  Client first(served.port());
  first.send(post_of("/hold", 100));
  const auto exchange = served.take();
  ASSERT_NE(exchange, nullptr);

  EXPECT_EQ(exchange->take_body(), std::string(100, 'b'));

  EXPECT_EQ(exchange->take_body(), "");
  EXPECT_EQ(exchange->request().body, "");
  EXPECT_EQ(served.server().counts().bodies_bytes, 0U);
  EXPECT_EQ(ask(served.port(), post_of("/echo", 100)).status, 200U);
}

TEST(HttpLimit, OfAllBodiesIsNotReachedByAnnouncementsAlone) {
  Served served(with_few_bodies());
  Client first(served.port());
  Client second(served.port());
  for (auto* client : {&first, &second}) {
    client->send(kPost + "expect: 100-continue\r\ncontent-length: 100\r\n\r\n");
    ASSERT_NE(client->read_until("100 Continue"), "");
  }

  EXPECT_EQ(ask(served.port(), post_of("/echo", 100)).status, 200U);
}

TEST(HttpLimit, OfAllBodiesGetsBackWhatAClientLeavesUnfinished) {
  Served served(with_few_bodies());
  Client client(served.port());
  client.send(kPost + "expect: 100-continue\r\ncontent-length: 100\r\n\r\n");
  ASSERT_NE(client.read_until("100 Continue\r\n\r\n"), "");
  client.send(std::string(99, 'b'));
  for (int tries = 0; tries < 1000 && served.server().counts().bodies_bytes != 99; ++tries) {
    ASSERT_EQ(ask(served.port(), kGetHello).status, 200U);
  }
  ASSERT_EQ(served.server().counts().bodies_bytes, 99U);
  client.reset();

  unsigned status = 503;
  for (int tries = 0; tries < 1000 && status == 503; ++tries) {
    status = ask(served.port(), post_of("/echo", 100)).status;
  }

  EXPECT_EQ(status, 200U);
}

TEST(HttpLimit, OfReadAheadHoldsWhileAnAnswerIsPending) {
  Served served;
  Client client(served.port());
  client.send(kGetHold);
  const auto exchange = served.take();
  ASSERT_NE(exchange, nullptr);

  // What the two kernels hold for a connection ends too, at some megabytes.
  EXPECT_LT(client.flood(std::string(1U << 16U, 'x'), 256U << 20U), 64U << 20U);

  exchange->respond(text("done"));
  EXPECT_EQ(client.read_answer().body, "done");
  EXPECT_EQ(client.read_answer().status, 431U);  // what it sent was no request
}

TEST(HttpDeadline, EndsARequestThatComesTooSlowly) {
  HttpOptions options;
  options.limits.read_deadline = std::chrono::milliseconds(50);
  Served served(options);
  Client client(served.port());
  client.send("GET /hello HTTP/1.1\r\n");

  const Answer answer = client.read_answer();

  EXPECT_EQ(answer.status, 408U);
  EXPECT_EQ(answer.body,
            R"({"error":{"message":"the request was not complete within 50 ms",)"
            R"("type":"invalid_request_error","param":null,"code":"request_timeout"}})");
  EXPECT_EQ(client.read_to_end(), End::kClosed);
}

TEST(HttpDeadline, IsNotMovedByBytesThatTrickle) {
  HttpOptions options;
  options.limits.read_deadline = std::chrono::milliseconds(200);
  Served served(options);
  Client client(served.port());
  client.send(kPost + "content-length: 1000000000\r\n");

  // Slow loris: always one more byte, until the server answers.
  Client other(served.port());
  int sent = 0;
  while (sent < 100000 && !client.readable()) {
    client.send(sent == 0 ? "a: " : "a");
    other.send(kGetHello);  // takes a while
    ASSERT_EQ(other.read_answer().body, "hello");
    ++sent;
  }

  EXPECT_GE(client.read_answer().status, 408U);
}

TEST(HttpDeadline, EndsABodyThatStalls) {
  HttpOptions options;
  options.limits.read_deadline = std::chrono::milliseconds(50);
  Served served(options);

  EXPECT_EQ(ask(served.port(), kPost + "content-length: 5\r\n\r\nabc").status, 408U);
}

TEST(HttpDeadline, ClosesAnIdleConnectionWithoutAWord) {
  HttpOptions options;
  options.limits.idle_deadline = std::chrono::milliseconds(50);
  Served served(options);
  Client client(served.port());
  client.send(kGetHello);
  ASSERT_EQ(client.read_answer().body, "hello");

  EXPECT_EQ(client.read_answer().status, 0U);
  EXPECT_EQ(client.read_to_end(), End::kClosed);
}

TEST(HttpDeadline, DoesNotRunWhileAnAnswerIsPending) {
  HttpOptions options;
  options.limits.idle_deadline = std::chrono::milliseconds(20);
  options.limits.read_deadline = std::chrono::milliseconds(20);
  Served served(options);
  Client client(served.port());
  client.send(kGetHold);
  const auto exchange = served.take();
  ASSERT_NE(exchange, nullptr);

  Client idle(served.port());  // its deadline passes after ours would have
  ASSERT_EQ(idle.read_to_end(), End::kClosed);
  exchange->respond(text("late"));

  EXPECT_EQ(client.read_answer().body, "late");
}

TEST(HttpLimit, OfConnectionsRefusesTheOthersWith503AndServesTheFirst) {
  HttpOptions options;
  options.limits.connections = 32;
  Served served(options);
  std::list<Client> first;
  for (int i = 0; i < 32; ++i) {
    first.emplace_back(served.port()).send(kGetHold);
    ASSERT_NE(served.take(), nullptr);  // let go: answered with 500, and the connection stays
  }
  std::list<Client> more;
  for (int i = 0; i < 168; ++i) {
    more.emplace_back(served.port()).send(kGetHello);
  }

  for (auto& client : more) {
    const Answer answer = client.read_answer();
    ASSERT_EQ(answer.status, 503U);
    ASSERT_EQ(answer.field("retry-after"), "1");
    ASSERT_EQ(client.read_to_end(), End::kClosed);
  }
  EXPECT_EQ(served.server().counts().refused, 168U);
  EXPECT_EQ(served.server().counts().open, 32U);
  for (auto& client : first) {
    ASSERT_EQ(client.read_answer().status, 500U);
    client.send(kGetHello);
    ASSERT_EQ(client.read_answer().body, "hello");
  }
}

TEST(HttpLimit, OfConnectionsIsFreeAgainWhenOneCloses) {
  HttpOptions options;
  options.limits.connections = 1;
  Served served(options);
  Client client(served.port());
  client.send("GET /hello HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
  ASSERT_EQ(client.read_answer().body, "hello");
  ASSERT_EQ(client.read_to_end(), End::kClosed);
  client.close();

  unsigned status = 503;
  for (int tries = 0; tries < 1000 && status == 503; ++tries) {
    status = ask(served.port(), kGetHello).status;
  }

  EXPECT_EQ(status, 200U);
}

TEST(HttpLimit, OfRefusedConnectionsThatStayClosesTheOthers) {
  HttpOptions options;
  options.limits.connections = 1;
  Served served(options);
  Client first(served.port());
  first.send(kGetHello);
  ASSERT_EQ(first.read_answer().body, "hello");

  std::list<Client> more;
  for (int i = 0; i < 300; ++i) {
    more.emplace_back(served.port());
  }

  int told = 0;
  for (auto& client : more) {
    told += client.read_answer().status == 503 ? 1 : 0;
  }
  EXPECT_EQ(told, 256);
  EXPECT_EQ(served.server().counts().refused, 300U);
}

TEST(HttpServer, AcceptsAgainWhenFilesThatRanOutAreFree) {
  Served served;
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const int next = ::dup(0);
  ::close(next);
  rlimit one_more = before;
  one_more.rlim_cur = static_cast<rlim_t>(next) + 1;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &one_more), 0);

  Client client(served.port());  // the last file: the server gets none
  client.send(kGetHello);
  const bool answered = client.readable(150);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);

  EXPECT_FALSE(answered);
  EXPECT_EQ(client.read_answer().body, "hello");
}

}  // namespace
}  // namespace troupe::net::test
