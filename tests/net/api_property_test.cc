// Random requests: whatever a client sends, it gets exactly one answer, and never a 500.
#include "runtime/base/sources.h"
#include "tests/net/api_fixture.h"

#include <algorithm>
#include <array>
#include <string_view>

namespace troupe::net {
namespace {

constexpr int kRounds = 3000;
constexpr std::uint64_t kSeed = 20;

class AnyRequest : public ApiTest {
 protected:
  std::uint64_t below(std::uint64_t bound) { return rng.below(bound); }
  bool one_in(std::uint64_t n) { return below(n) == 0; }

  Json number() {
    static constexpr std::array<double, 8> kReals = {0, 1, -1, 0.5, 1e-60, 1e60, 2.5, -9.3e18};
    switch (below(4)) {
      case 0:
        return kReals[below(kReals.size())];
      case 1:
        return rng.next();
      case 2:
        return static_cast<std::int64_t>(rng.next());
      default:
        return below(400);
    }
  }

  Json value(int depth) {
    static constexpr std::array<std::string_view, 12> kTexts = {
        "",
        "a",
        "user",
        "text",
        "none",
        "ä€😀",
        "org/model",
        "7",
        "assistant",
        "\0x",
        "refuse me",
        "0123456789012345678901234567890123456789012345678901234567890123456789"};
    const std::uint64_t kind = below(depth > 0 ? 7 : 5);
    if (kind == 0) {
      return nullptr;
    }
    if (kind == 1) {
      return one_in(2);
    }
    if (kind < 4) {
      return one_in(2) ? number() : Json(kTexts[below(kTexts.size())]);
    }
    if (kind == 4) {
      return below(300);
    }
    Json json = kind == 5 ? Json::array() : Json::object();
    for (std::uint64_t i = below(4); i > 0; --i) {
      if (kind == 5) {
        json.push_back(value(depth - 1));
      } else {
        json[std::string(kTexts[below(kTexts.size())])] = value(depth - 1);
      }
    }
    return json;
  }

  // A value that may fit the schema, so that requests get past the first check.
  Json fitting(const Json& schema) {
    if (schema.contains("anyOf")) {
      return fitting(schema["anyOf"][below(schema["anyOf"].size())]);
    }
    if (schema.contains("enum")) {
      return schema["enum"][below(schema["enum"].size())];
    }
    std::string type = schema["type"].is_array() ? schema["type"][0] : schema["type"];
    if (type == "boolean") {
      return one_in(2);
    }
    if (type == "integer" || type == "number") {
      return schema["minimum"].get<std::int64_t>() >= 0 ? Json(below(3)) : Json(-1);
    }
    if (type == "string") {
      return std::string(1 + below(3), static_cast<char>('a' + below(26)));
    }
    Json json = type == "array" ? Json::array() : Json::object();
    if (type == "array") {
      for (std::uint64_t i = below(3); i > 0; --i) {
        json.push_back(fitting(schema["items"]));
      }
      return json;
    }
    if (!schema.contains("properties")) {
      return json;
    }
    const Json required = schema.value("required", Json::array());
    for (const auto& [name, member] : schema["properties"].items()) {
      const bool needed = std::find(required.begin(), required.end(), name) != required.end();
      if (needed || one_in(5)) {
        json[name] = fitting(member);
      }
    }
    return json;
  }

  // Changes, drops or adds something.
  void disturb(Json& body) {
    if (!body.is_object() || body.empty()) {
      body = value(3);
      return;
    }
    auto member = body.begin();
    for (std::uint64_t i = below(body.size()); i > 0; --i) {
      ++member;
    }
    if (one_in(3)) {
      body.erase(member);
    } else if (one_in(2) && member->is_structured() && !member->empty()) {
      member->begin().value() = value(2);
    } else {
      member.value() = value(3);
    }
  }

  // Lets the model do something to each request, some more than once.
  void run_model() {
    for (std::size_t i = 0; i < backend.submitted.size(); ++i) {
      const auto& each = backend.submitted[i];
      if (!each.sink || each.cancelled) {
        continue;
      }
      if (one_in(2)) {
        backend.say(i, "ab");
      }
      switch (below(8)) {
        case 0:
          backend.fail(i, {Kind::kDisconnected, "gone", {}});
          break;
        case 1:
          backend.finish(i, "", FinishReason::kCancelled);
          break;
        case 2:
          backend.finish(i, "c", FinishReason::kLength);
          break;
        default:
          backend.finish(i, "d");
      }
    }
  }

  Rng rng{kSeed};
};

TEST_F(AnyRequest, HasExactlyOneAnswerAndNoServerError) {
  const Json paths = get("/openapi.json")->json()["paths"];
  int accepted = 0;
  for (int round = 0; round < kRounds; ++round) {
    outcomes.clear();
    backend.submitted.clear();
    static constexpr std::array<const char*, 4> kPaths = {
        "/v1/completions", "/v1/chat/completions", "/tokenize", "/detokenize"};
    const char* path = kPaths[below(kPaths.size())];
    Json body =
        one_in(8)
            ? value(4)
            : fitting(paths[path]["post"]["requestBody"]["content"]["application/json"]["schema"]);
    for (std::uint64_t changes = below(3); changes > 0; --changes) {
      disturb(body);
    }
    std::string text = body.dump();
    if (one_in(10)) {
      text[below(text.size())] = static_cast<char>(rng.next());
    }
    const auto exchange = post(path, text);
    const bool leaves = !exchange->answered() && one_in(6);
    if (leaves) {
      exchange->leave();
    }
    run_model();

    const std::string what = "seed " + std::to_string(kSeed) + ", round " + std::to_string(round) +
                             ": " + path + " " + text;
    ASSERT_EQ(outcomes.size(), 1U) << what;
    ASSERT_NE(outcomes[0].status, 500U) << what;
    if (leaves) {
      ASSERT_EQ(outcomes[0].status, 499U) << what;
      continue;
    }
    ASSERT_EQ(exchange->answers, 1) << what;
    if (exchange->response) {
      ASSERT_EQ(exchange->response->status, outcomes[0].status) << what;
      ASSERT_FALSE(exchange->json().is_discarded()) << what;
      ASSERT_NE(exchange->response->status != 200, exchange->json()["error"].is_null()) << what;
    } else {
      ASSERT_TRUE(exchange->body.ends_with("data: [DONE]\n\n")) << what;
      ASSERT_FALSE(exchange->events().empty()) << what;
    }
    accepted += outcomes[0].status == 200 ? 1 : 0;
  }
  EXPECT_GT(accepted, kRounds / 10) << "too few requests reach the model to mean anything";
}

}  // namespace
}  // namespace troupe::net
