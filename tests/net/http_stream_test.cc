// Answers in pieces, clients that go away, readers that stall, and the end of the server.
#include "tests/net/http_client.h"
#include "tests/net/served.h"

#include <gtest/gtest.h>

#include <thread>

namespace troupe::net::test {
namespace {

HttpResponse events() {
  HttpResponse head;
  head.content_type = "text/event-stream";
  return head;
}

TEST(HttpStream, SendsEachPieceAtOnce) {
  Served served;
  Client client(served.port());
  client.send(kGetHold);
  const auto exchange = served.take();
  ASSERT_NE(exchange, nullptr);

  ASSERT_TRUE(exchange->begin_stream(events()));
  const std::string head = client.read_until("\r\n\r\n");
  EXPECT_NE(head.find("content-type: text/event-stream\r\n"), std::string::npos);
  EXPECT_NE(head.find("transfer-encoding: chunked\r\n"), std::string::npos);
  for (int i = 0; i < 50; ++i) {  // each is read before the next is written
    ASSERT_TRUE(exchange->write("piece " + std::to_string(i)));
    ASSERT_EQ(client.read_chunk(), "piece " + std::to_string(i));
  }
  exchange->end();
  EXPECT_EQ(client.read_chunk(), std::nullopt);

  client.send(kGetHello);
  EXPECT_EQ(client.read_answer().body, "hello");
}

TEST(HttpStream, DoesNotEndAtAnEmptyPiece) {
  Served served;
  Client client(served.port());
  client.send(kGetHold);
  const auto exchange = served.take();
  ASSERT_NE(exchange, nullptr);
  ASSERT_TRUE(exchange->begin_stream(events()));

  EXPECT_TRUE(exchange->write(""));
  EXPECT_TRUE(exchange->write("a"));
  exchange->end();

  const Answer answer = client.read_answer();
  EXPECT_EQ(answer.body, "a");
  EXPECT_TRUE(answer.whole);
}

TEST(HttpStream, ToAnHttp10ClientEndsWithTheConnection) {
  Served served;
  Client client(served.port());
  client.send("GET /hold HTTP/1.0\r\nconnection: keep-alive\r\n\r\n");
  const auto exchange = served.take();
  ASSERT_NE(exchange, nullptr);
  ASSERT_TRUE(exchange->begin_stream(events()));
  exchange->write("one ");
  exchange->write("two");
  exchange->end();

  const Answer answer = client.read_answer();

  EXPECT_EQ(answer.field("transfer-encoding"), "");
  EXPECT_EQ(answer.field("connection"), "close");
  EXPECT_EQ(answer.body, "one two");
  EXPECT_TRUE(answer.whole);
}

TEST(HttpStream, OfAHeadRequestHasNoBody) {
  Served served;
  Client client(served.port());
  client.send("HEAD /hold HTTP/1.1\r\nhost: x\r\n\r\n");
  const auto exchange = served.take();
  ASSERT_NE(exchange, nullptr);
  ASSERT_TRUE(exchange->begin_stream(events()));
  EXPECT_TRUE(exchange->write("one"));
  exchange->end();
  client.send(kGetHello);

  EXPECT_EQ(client.read_answer(true).status, 200U);
  EXPECT_EQ(client.read_answer().body, "hello");
}

TEST(HttpStream, IsCutWhenItsWriterLetsGo) {
  Served served;
  Client client(served.port());
  client.send(kGetHold);
  auto exchange = served.take();
  ASSERT_NE(exchange, nullptr);
  ASSERT_TRUE(exchange->begin_stream(events()));
  ASSERT_NE(client.read_until("\r\n\r\n"), "");

  exchange.reset();

  EXPECT_NE(client.read_to_end(), End::kTimedOut);
}

TEST(HttpStream, TellsOnceThatItsClientDisconnected) {
  Served served;
  Client client(served.port());
  client.send(kGetHold);
  const auto exchange = served.take();
  ASSERT_NE(exchange, nullptr);
  Counter gone;
  exchange->on_gone([&gone] { gone.add(); });
  ASSERT_TRUE(exchange->begin_stream(events()));
  ASSERT_TRUE(exchange->write("a"));

  client.close();

  ASSERT_TRUE(gone.wait_for(1));
  EXPECT_FALSE(exchange->write("b"));
  exchange->end();
  served.end();
  EXPECT_EQ(gone.now(), 1);
}

TEST(HttpExchange, TellsThatItsClientDisconnectedBeforeTheAnswer) {
  Served served;
  Client client(served.port());
  client.send(kGetHold);
  const auto exchange = served.take();
  ASSERT_NE(exchange, nullptr);
  Counter gone;
  exchange->on_gone([&gone] { gone.add(); });

  client.reset();

  EXPECT_TRUE(gone.wait_for(1));
  EXPECT_FALSE(exchange->begin_stream(events()));
}

TEST(HttpExchange, TakesAHalfCloseForADisconnect) {
  Served served;
  Client client(served.port());
  client.send(kGetHold);
  const auto exchange = served.take();
  ASSERT_NE(exchange, nullptr);
  Counter gone;
  exchange->on_gone([&gone] { gone.add(); });

  client.half_close();

  EXPECT_TRUE(gone.wait_for(1));
  EXPECT_EQ(client.read_to_end(), End::kClosed);
}

TEST(HttpExchange, TakesAHalfCloseForADisconnectOfARequestThatWaitedBehindAnother) {
  Served served;
  for (int i = 0; i < 50; ++i) {  // the end is read before or after the second one begins
    Client client(served.port());
    client.send(std::string(kGetHello) + kGetHold);
    client.half_close();
    const auto exchange = served.take();
    ASSERT_NE(exchange, nullptr);
    Counter gone;
    exchange->on_gone([&gone] { gone.add(); });

    ASSERT_TRUE(gone.wait_for(1));
  }
}

TEST(HttpExchange, TellsAtOnceWhenItsClientHasGoneAlready) {
  Served served;
  Client client(served.port());
  client.send(kGetHold);
  const auto exchange = served.take();
  ASSERT_NE(exchange, nullptr);
  Counter gone;
  exchange->on_gone([&gone] { gone.add(); });
  client.close();
  ASSERT_TRUE(gone.wait_for(1));

  bool told = false;
  exchange->on_gone([&told] { told = true; });

  EXPECT_TRUE(told);
}

TEST(HttpExchange, SaysNothingOfADisconnectAfterTheAnswer) {
  Served served;
  Client client(served.port());
  client.send(kGetHold);
  const auto exchange = served.take();
  ASSERT_NE(exchange, nullptr);
  Counter gone;
  exchange->on_gone([&gone] { gone.add(); });
  exchange->respond(text("done"));
  ASSERT_EQ(client.read_answer().body, "done");

  client.close();
  served.end();

  EXPECT_EQ(gone.now(), 0);
}

TEST(HttpExchange, MayBeHeldByItsOwnCallback) {
  Served served;
  Client client(served.port());
  client.send(kGetHold);
  auto exchange = served.take();
  ASSERT_NE(exchange, nullptr);
  const std::weak_ptr<Exchange> alive = exchange;
  exchange->on_gone([exchange] { exchange->end(); });
  exchange->respond(text("done"));
  ASSERT_EQ(client.read_answer().body, "done");

  exchange.reset();

  EXPECT_TRUE(alive.expired());
}

TEST(HttpStream, DropsAReaderThatTakesNothingOnceItsBufferIsFull) {
  HttpOptions options;
  options.limits.stream_buffer_bytes = 64U << 10U;
  Served served(options);
  Client client(served.port(), {.receive_buffer_bytes = 4096});
  client.send(kGetHold);
  const auto exchange = served.take();
  ASSERT_NE(exchange, nullptr);
  Counter gone;
  exchange->on_gone([&gone] { gone.add(); });
  ASSERT_TRUE(exchange->begin_stream(events()));

  // What the kernel holds for a socket ends too, at some megabytes.
  const std::string piece(16U << 10U, 'p');
  std::size_t written = 0;
  while (written < (256U << 20U) && exchange->write(piece)) {
    written += piece.size();
  }

  EXPECT_LT(written, 64U << 20U);
  EXPECT_TRUE(gone.wait_for(1));
  EXPECT_EQ(served.server().counts().slow_readers, 1U);
  EXPECT_EQ(client.read_to_end(), End::kReset);
}

TEST(HttpStream, DropsAReaderAlsoWhenTheServerHasLongBeenWaitingForIt) {
  HttpOptions options;
  options.limits.stream_buffer_bytes = 64U << 10U;
  Served served(options);
  Client other(served.port());
  Client client(served.port(), {.receive_buffer_bytes = 4096});
  client.send(kGetHold);
  const auto exchange = served.take();
  ASSERT_NE(exchange, nullptr);
  Counter gone;
  exchange->on_gone([&gone] { gone.add(); });
  ASSERT_TRUE(exchange->begin_stream(events()));

  const std::string piece(16U << 10U, 'p');
  for (int i = 0; i < 4096 && exchange->write(piece); ++i) {
    other.send(kGetHello);  // after its answer the server has seen the piece
    ASSERT_EQ(other.read_answer().body, "hello");
  }

  EXPECT_TRUE(gone.wait_for(1));
}

TEST(HttpStream, DropsAReaderThatTakesNothingForTheWriteDeadline) {
  HttpOptions options;
  options.limits.stream_buffer_bytes = 64U << 20U;
  options.limits.write_deadline = std::chrono::milliseconds(100);
  Served served(options);
  Client client(served.port(), {.receive_buffer_bytes = 4096});
  client.send(kGetHold);
  const auto exchange = served.take();
  ASSERT_NE(exchange, nullptr);
  Counter gone;
  exchange->on_gone([&gone] { gone.add(); });
  ASSERT_TRUE(exchange->begin_stream(events()));

  ASSERT_TRUE(exchange->write(std::string(32U << 20U, 'p')));

  EXPECT_TRUE(gone.wait_for(1));
  EXPECT_EQ(served.server().counts().slow_readers, 1U);
}

TEST(HttpStream, SendsAPieceLargerThanTheBufferWhenNothingElseWaits) {
  HttpOptions options;
  options.limits.stream_buffer_bytes = 1024;
  Served served(options);
  Client client(served.port());
  client.send(kGetHold);
  const auto exchange = served.take();
  ASSERT_NE(exchange, nullptr);
  ASSERT_TRUE(exchange->begin_stream(events()));
  ASSERT_NE(client.read_until("\r\n\r\n"), "");
  ASSERT_TRUE(exchange->write("a"));
  ASSERT_EQ(client.read_chunk(), "a");

  const std::string piece(1U << 20U, 'p');
  bool sent = exchange->write(piece);

  EXPECT_TRUE(sent);
  EXPECT_TRUE(client.read_chunk() == piece);
}

TEST(HttpServerStop, LetsOpenStreamsFinish) {
  Served served;
  Client client(served.port());
  client.send(kGetHold);
  const auto exchange = served.take();
  ASSERT_NE(exchange, nullptr);
  ASSERT_TRUE(exchange->begin_stream(events()));
  ASSERT_NE(client.read_until("\r\n\r\n"), "");

  std::thread stopper([&] { served.server().stop(std::chrono::seconds(20)); });
  while (Client(served.port()).connected()) {  // until it listens no more
  }
  EXPECT_TRUE(exchange->write("last"));
  EXPECT_EQ(client.read_chunk(), "last");
  exchange->end();
  stopper.join();

  EXPECT_EQ(client.read_chunk(), std::nullopt);
  EXPECT_EQ(client.read_to_end(), End::kClosed);
}

TEST(HttpServerStop, AnswersWhatHasBegunWithConnectionClose) {
  Served served;
  Client client(served.port());
  client.send(kGetHold);
  const auto exchange = served.take();
  ASSERT_NE(exchange, nullptr);

  std::thread stopper([&] { served.server().stop(std::chrono::seconds(20)); });
  while (Client(served.port()).connected()) {
  }
  exchange->respond(text("done"));
  const Answer answer = client.read_answer();
  stopper.join();

  EXPECT_EQ(answer.body, "done");
  EXPECT_EQ(answer.field("connection"), "close");
}

TEST(HttpServerStop, DropsWhatIsOpenWhenItsPatienceEnds) {
  Served served;
  Client client(served.port());
  client.send(kGetHold);
  const auto exchange = served.take();
  ASSERT_NE(exchange, nullptr);
  Counter gone;
  exchange->on_gone([&gone] { gone.add(); });
  ASSERT_TRUE(exchange->begin_stream(events()));

  served.server().stop(std::chrono::milliseconds(10));

  EXPECT_EQ(gone.now(), 1);
  EXPECT_FALSE(exchange->write("x"));
  EXPECT_EQ(served.server().counts().open, 0U);
  EXPECT_NE(client.read_to_end(), End::kTimedOut);
}

TEST(HttpServerStop, ClosesIdleConnectionsAtOnce) {
  Served served;
  Client client(served.port());
  client.send(kGetHello);
  ASSERT_EQ(client.read_answer().body, "hello");

  served.server().stop(std::chrono::hours(1));

  EXPECT_EQ(client.read_to_end(), End::kClosed);
}

TEST(HttpServerStop, MayComeTwiceAndBeforeTheExchangesGo) {
  Served served;
  Client client(served.port());
  client.send(kGetHold);
  const auto exchange = served.take();
  ASSERT_NE(exchange, nullptr);

  served.server().stop(Time{0});
  served.server().stop(Time{0});
  served.end();

  exchange->respond(text("late"));  // to nobody
  EXPECT_FALSE(exchange->begin_stream(events()));
}

}  // namespace
}  // namespace troupe::net::test
