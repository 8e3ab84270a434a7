// Many threads and clients at once; what the thread sanitiser is for.
#include "runtime/base/sources.h"
#include "tests/net/http_client.h"
#include "tests/net/served.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

namespace troupe::net::test {
namespace {

// Reads some chunks of a stream and then leaves: rudely, politely, or after the last.
void read_and_leave(std::uint16_t port, std::uint64_t seed) {
  Rng rng(seed);
  for (int request = 0; request < 6; ++request) {
    Client client(port);
    client.send(kGetHold);
    if (client.read_until("\r\n\r\n").empty()) {
      continue;
    }
    bool open = true;
    for (std::uint64_t chunks = rng.below(12); open && chunks > 0; --chunks) {
      open = client.read_chunk().has_value();
    }
    switch (rng.below(3)) {
      case 0:
        client.reset();
        break;
      case 1:
        client.half_close();
        EXPECT_NE(client.read_to_end(), End::kTimedOut);
        break;
      default:
        while (open) {
          open = client.read_chunk().has_value();
        }
    }
  }
}

TEST(HttpRace, SixtyFourWritersAndClientsThatLeaveAtRandom) {
  HttpOptions options;
  options.threads = 2;
  Served served(options);
  std::atomic<bool> stopping = false;
  std::atomic<int> streams = 0;
  std::atomic<int> gone = 0;
  std::atomic<int> told_twice = 0;
  std::vector<std::thread> writers;
  writers.reserve(64);
  for (int w = 0; w < 64; ++w) {
    writers.emplace_back([&] {
      while (!stopping) {
        const auto exchange = served.take_or_stop(stopping);
        if (exchange == nullptr) {
          return;
        }
        ++streams;
        auto told = std::make_shared<std::atomic<int>>(0);
        exchange->on_gone([&gone, &told_twice, told] {
          ++gone;
          told_twice += told->fetch_add(1) == 0 ? 0 : 1;
        });
        bool open = exchange->begin_stream({});
        for (int i = 0; i < 10 && open; ++i) {
          open = exchange->write("data: a token of the answer\n\n");
        }
        exchange->end();
      }
    });
  }

  std::vector<std::thread> clients;
  clients.reserve(24);
  for (std::uint64_t c = 0; c < 24; ++c) {
    clients.emplace_back([&, c] { read_and_leave(served.port(), c); });
  }
  for (auto& client : clients) {
    client.join();
  }
  stopping = true;
  served.wake_takers();
  for (auto& writer : writers) {
    writer.join();
  }
  const bool serves = ask(served.port(), kGetHello).status == 200;
  served.end();

  EXPECT_TRUE(serves);
  EXPECT_EQ(streams, 24 * 6);
  EXPECT_EQ(told_twice, 0);
  EXPECT_LE(gone, streams);
}

TEST(HttpRace, OneStreamIsWrittenByManyThreads) {
  Served served;
  Client client(served.port());
  client.send(kGetHold);
  const auto exchange = served.take();
  ASSERT_NE(exchange, nullptr);
  ASSERT_TRUE(exchange->begin_stream({}));

  std::vector<std::thread> writers;
  writers.reserve(64);
  for (int w = 0; w < 64; ++w) {
    writers.emplace_back([&exchange] {
      for (int i = 0; i < 50; ++i) {
        exchange->write("0123456789");
      }
    });
  }
  for (auto& writer : writers) {
    writer.join();
  }
  exchange->end();

  const Answer answer = client.read_answer();
  EXPECT_TRUE(answer.whole);
  EXPECT_EQ(answer.body.size(), 64U * 50U * 10U);
}

TEST(HttpRace, TheServerStopsWhileStreamsAreWritten) {
  for (std::uint64_t round = 0; round < 10; ++round) {
    HttpOptions options;
    options.threads = 2;
    Served served(options);
    std::vector<std::unique_ptr<Client>> clients;
    std::vector<std::thread> writers;
    std::atomic<int> gone = 0;
    for (int i = 0; i < 8; ++i) {
      clients.push_back(std::make_unique<Client>(served.port()));
      clients.back()->send(kGetHold);
      const auto exchange = served.take();
      ASSERT_NE(exchange, nullptr);
      exchange->on_gone([&gone] { ++gone; });
      writers.emplace_back([exchange] {
        bool open = exchange->begin_stream({});
        while (open) {
          open = exchange->write("data: a token of the answer\n\n");
        }
      });
    }

    served.end();  // while all of them write

    EXPECT_EQ(gone, 8);
    for (auto& writer : writers) {
      writer.join();
    }
  }
}

TEST(HttpRace, ClientsComeAndGoWhileTheServerStops) {
  for (std::uint64_t round = 0; round < 10; ++round) {
    Served served;
    std::atomic<bool> stopping = false;
    std::vector<std::thread> clients;
    clients.reserve(8);
    Counter answered;
    for (int c = 0; c < 8; ++c) {
      clients.emplace_back([&] {
        while (!stopping) {
          if (ask(served.port(), kGetHello).status == 200) {
            answered.add();
          }
        }
      });
    }
    ASSERT_TRUE(answered.wait_for(20));

    served.server().stop(std::chrono::seconds(20));

    EXPECT_EQ(served.server().counts().open, 0U);
    stopping = true;
    for (auto& client : clients) {
      client.join();
    }
  }
}

}  // namespace
}  // namespace troupe::net::test
