// The parser alone: how a request is cut into reads, and bytes at random.
#include "net/request_parser.h"
#include "runtime/base/sources.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace troupe::net {
namespace {

constexpr HttpLimits kLimits{.header_bytes = 512, .body_bytes = 2048};

struct Outcome {
  RequestParser::State state = RequestParser::State::kNeedsMore;
  std::string request;
  unsigned refused = 0;
  std::size_t rest = 0;    // bytes after the request
  std::size_t waited = 0;  // the most that was left unconsumed
  std::size_t kept = 0;
};

// Puts `bytes` in pieces of random sizes up to `most`.
Outcome parsed(const std::string& bytes, std::size_t most, Rng& rng) {
  const auto budget = std::make_shared<BodyBudget>(kLimits.bodies_bytes);
  const auto parser = make_request_parser(kLimits, budget);
  Outcome outcome;
  std::string input;
  std::size_t at = 0;
  while (at < bytes.size() && parser->state() == RequestParser::State::kNeedsMore) {
    const std::size_t size = std::min(bytes.size() - at, 1 + rng.below(most));
    input += bytes.substr(at, size);
    at += size;
    input.erase(0, parser->put(input));
    outcome.waited = std::max(outcome.waited, input.size());
  }
  const HttpRequest& request = parser->request();
  outcome.state = parser->state();
  outcome.refused = parser->refusal().status;
  outcome.rest = input.size() + bytes.size() - at;
  outcome.request = request.method + " " + request.path + "?" + request.query + "\n";
  outcome.kept = request.body.size();
  for (const auto& [name, value] : request.fields) {
    outcome.request.append(name).append(":").append(value).append("\n");
    outcome.kept += name.size() + value.size();
  }
  outcome.request += request.body;
  return outcome;
}

const std::string kWhole =
    "POST /v1/%63ompletions?a=b HTTP/1.1\r\nHost: host\r\nUser-Agent: test\r\n"
    "Transfer-Encoding: chunked\r\nAccept: */*\r\n\r\n"
    "a;x=y\r\n0123456789\r\n1\r\n \r\n14\r\n01234567890123456789\r\n0\r\ntrailer: t\r\n\r\n";

TEST(RequestParser, ReadsTheSameHoweverTheBytesAreCut) {
  Rng rng(1);
  const Outcome once = parsed(kWhole, 100000, rng);
  ASSERT_EQ(once.state, RequestParser::State::kDone);
  EXPECT_EQ(once.request,
            "POST /v1/completions?a=b\nhost:host\nuser-agent:test\ntransfer-encoding:chunked\n"
            "accept:*/*\n0123456789 01234567890123456789");

  for (int i = 0; i < 2000; ++i) {
    const Outcome cut = parsed(kWhole, 1 + rng.below(40), rng);
    ASSERT_EQ(cut.state, RequestParser::State::kDone);
    ASSERT_EQ(cut.request, once.request);
    ASSERT_EQ(cut.rest, 0U);
  }
}

TEST(RequestParser, LeavesTheNextRequestAlone) {
  Rng rng(2);

  EXPECT_EQ(parsed(kWhole + kWhole, 100000, rng).rest, kWhole.size());
}

TEST(RequestParser, StaysBoundedOnBytesThatWereSpoilt) {
  Rng rng(3);
  int refused = 0;
  int done = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string bytes = kWhole;
    for (std::uint64_t n = 1 + rng.below(4); n > 0; --n) {
      const std::size_t at = rng.below(bytes.size());
      switch (rng.below(3)) {
        case 0:
          bytes[at] = static_cast<char>(rng.below(256));
          break;
        case 1:
          bytes.erase(at, 1 + rng.below(8));
          break;
        default:
          bytes.insert(at, bytes.substr(rng.below(bytes.size()), rng.below(60)));
      }
    }
    bytes += std::string(4096, 'z');

    const Outcome outcome = parsed(bytes, 1 + rng.below(200), rng);

    refused += outcome.state == RequestParser::State::kRefused ? 1 : 0;
    done += outcome.state == RequestParser::State::kDone ? 1 : 0;
    ASSERT_LE(outcome.kept, kLimits.header_bytes + kLimits.body_bytes);
    ASSERT_LE(outcome.waited, kLimits.header_bytes + 200);
    ASSERT_EQ(outcome.refused != 0, outcome.state == RequestParser::State::kRefused);
  }
  EXPECT_GT(refused, 1000);
  EXPECT_GT(done, 1000);
}

}  // namespace
}  // namespace troupe::net
