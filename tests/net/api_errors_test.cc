// Paths, methods, keys, and what the model refuses.
#include "tests/net/api_fixture.h"

namespace troupe::net {
namespace {

using Errors = ApiTest;

TEST_F(Errors, AFullQueueIsTooManyRequestsAndLaterMayDo) {
  backend.refuse = Error{Kind::kOverloaded, "the queue is full", {}};
  const auto exchange = chat();

  EXPECT_EQ(refusal(*exchange), "429 null queue_full: the queue is full");
  EXPECT_EQ(exchange->field("retry-after"), "1");
  EXPECT_EQ(exchange->json()["error"]["type"], "rate_limit_error");
  EXPECT_EQ(outcomes.at(0).error_code, "queue_full");
}

TEST_F(Errors, AServerThatStopsIsUnavailable) {
  backend.refuse = Error{Kind::kDisconnected, "the server is shutting down", {}};
  const auto exchange = complete({{"stream", true}});

  EXPECT_EQ(refusal(*exchange), "503 null unavailable: the server is shutting down");
  EXPECT_EQ(exchange->field("retry-after"), "1");
}

TEST_F(Errors, EachKindOfTheModelsErrorsHasItsStatus) {
  const auto answer = [this](Kind kind) {
    backend.refuse = Error{kind, "why", {}};
    return refusal(*complete());
  };

  EXPECT_EQ(answer(Kind::kInvalid), "400 null invalid_value: why");
  EXPECT_EQ(answer(Kind::kUnsupported), "400 null unsupported: why");
  EXPECT_EQ(answer(Kind::kCancelled), "503 null unavailable: why");
  EXPECT_EQ(answer(Kind::kInternal), "500 null internal_error: why");
}

TEST_F(Errors, ARefusedChoiceTakesTheEarlierOnesWithIt) {
  backend.refuse = Error{Kind::kOverloaded, "full", {}};
  backend.refuse_at = 2;
  backend.on_submit = [this](std::size_t index) { backend.say(index, "early"); };
  const auto exchange = complete({{"n", 4}, {"stream", true}});

  EXPECT_EQ(refusal(*exchange), "429 null queue_full: full");
  ASSERT_EQ(backend.submitted.size(), 2U);
  EXPECT_TRUE(backend.submitted[0].cancelled);
  EXPECT_TRUE(backend.submitted[1].cancelled);
  EXPECT_EQ(exchange->answers, 1);
  EXPECT_EQ(outcomes.size(), 1U);
}

TEST_F(Errors, AFailedAnswerIsOneError) {
  const auto exchange = complete({{"n", 2}});
  backend.say(0, "a");
  backend.fail(1, {Kind::kInternal, "broken", {}});
  backend.say(0, "b");

  EXPECT_EQ(refusal(*exchange), "500 null internal_error: broken");
  EXPECT_TRUE(backend.submitted[0].cancelled);
  EXPECT_EQ(exchange->answers, 1);
}

TEST_F(Errors, AnAnswerThatTheServerCancelsIsUnavailable) {
  const auto exchange = complete();
  RequestEvent event;
  event.finished = true;
  event.reason = FinishReason::kCancelled;
  backend.say(0, event);

  EXPECT_EQ(refusal(*exchange), "503 null unavailable: the server cancelled the request");
}

TEST_F(Errors, OtherPathsUnderV1AreNotFoundAndTheRestIsNotOurs) {
  EXPECT_EQ(refusal(*get("/v1/embeddings")), "404 null not_found: there is no /v1/embeddings here");
  EXPECT_EQ(refusal(*get("/v1/models/")), "404 null not_found: there is no /v1/models/ here");
  EXPECT_EQ(outcomes.at(0).route, "other");
  EXPECT_FALSE(api->handle(std::make_shared<FakeExchange>(HttpRequest{.path = "/health"})));
  EXPECT_FALSE(api->handle(std::make_shared<FakeExchange>(HttpRequest{.path = "/v10"})));
}

TEST_F(Errors, AWrongMethodIsToldTheRightOne) {
  const auto got = get("/v1/completions");
  EXPECT_EQ(refusal(*got),
            "405 null method_not_allowed: GET is not for /v1/completions, which takes POST");
  EXPECT_EQ(got->field("allow"), "POST");

  const auto posted = post("/v1/models", std::string("{}"));
  EXPECT_EQ(posted->status(), 405U);
  EXPECT_EQ(posted->field("allow"), "GET, HEAD");
  EXPECT_EQ(send({.method = "HEAD", .path = "/v1/models"})->status(), 200U);
}

TEST_F(Errors, ABodyMustBeJsonAndSaySo) {
  const auto typed = [this](HttpFields fields) {
    return send({.method = "POST",
                 .path = "/v1/completions",
                 .fields = std::move(fields),
                 .body = R"({"model":"org/model","prompt":"a"})"});
  };

  EXPECT_EQ(refusal(*typed({{"content-type", "text/plain"}})),
            "415 null unsupported_media_type: the body must be JSON: send Content-Type: "
            "application/json");
  EXPECT_EQ(typed({})->status(), 415U);
  EXPECT_FALSE(typed({{"content-type", "Application/JSON;charset=utf-8"}})->response);
}

TEST_F(Errors, ABrokenBodyIsToldWhatIsWrong) {
  const auto why = [this](std::string body) {
    return refusal(*post("/v1/completions", std::move(body)));
  };
  const std::string deep(65, '[');

  EXPECT_EQ(
      why("{"),
      "400 null invalid_json: the body can't be used: it is not valid JSON in UTF-8 at byte 2");
  EXPECT_EQ(
      why(""),
      "400 null invalid_json: the body can't be used: it is not valid JSON in UTF-8 at byte 1");
  EXPECT_EQ(why("{\"prompt\":\"\xff\"}").substr(0, 23), "400 null invalid_json: ");
  EXPECT_EQ(why(R"({"n":1,"n":2})"),
            "400 null invalid_json: the body can't be used: the key \"n\" appears twice in one "
            "object");
  EXPECT_EQ(why(deep),
            "400 null invalid_json: the body can't be used: it is nested deeper than 64 levels");
  EXPECT_EQ(why("[]"), "400 null invalid_type: the body is a list of 0; allowed is an object");
  EXPECT_EQ(why("7"), "400 null invalid_type: the body is 7; allowed is an object");
}

TEST_F(Errors, ARequestIdIsTakenWhenALogLineCanHoldIt) {
  const auto id_for = [this](std::string id) {
    return send(
               {.method = "GET", .path = "/v1/models", .fields = {{"x-request-id", std::move(id)}}})
        ->field("x-request-id");
  };

  EXPECT_EQ(id_for("abc-123"), "abc-123");
  EXPECT_EQ(id_for(std::string(128, 'x')), std::string(128, 'x'));
  EXPECT_TRUE(id_for(std::string(129, 'x')).starts_with("req-"));
  EXPECT_TRUE(id_for("two words").starts_with("req-"));
  EXPECT_TRUE(id_for("a\nb").starts_with("req-"));
  EXPECT_NE(get("/v1/models")->field("x-request-id"), get("/v1/models")->field("x-request-id"));
  EXPECT_TRUE(get("/v1/nothing")->field("x-request-id").starts_with("req-"));
}

class Keys : public ApiTest {
 protected:
  Keys() : ApiTest({.api_keys = {"first", "second"}}) {}
  std::string ask(HttpFields fields, std::string path = "/v1/models") {
    const auto exchange =
        send({.method = "GET", .path = std::move(path), .fields = std::move(fields)});
    if (exchange->status() == 401) {
      EXPECT_EQ(exchange->field("www-authenticate"), "Bearer");
      return refusal(*exchange);
    }
    return std::to_string(exchange->status());
  }
};

TEST_F(Keys, EachOfThemOpens) {
  EXPECT_EQ(ask({{"authorization", "Bearer first"}}), "200");
  EXPECT_EQ(ask({{"authorization", "bearer second"}}), "200");
}

TEST_F(Keys, NothingElseOpens) {
  EXPECT_EQ(ask({}),
            "401 null invalid_api_key: an API key is needed: send Authorization: Bearer KEY");
  EXPECT_EQ(ask({{"authorization", "Bearer third"}}),
            "401 null invalid_api_key: the API key is not one of this server's");
  EXPECT_EQ(ask({{"authorization", "Bearer "}}).substr(0, 3), "401");
  EXPECT_EQ(ask({{"authorization", "first"}}).substr(0, 3), "401");
  EXPECT_EQ(ask({{"authorization", "Basic first"}}).substr(0, 3), "401");
  EXPECT_EQ(ask({}, "/tokenizer_info").substr(0, 3), "401");
  EXPECT_EQ(ask({}, "/v1/nothing").substr(0, 3), "401");
  EXPECT_EQ(outcomes.at(0).error_code, "invalid_api_key");
}

TEST_F(Keys, TheDocumentIsOpenAndSaysThatOneIsNeeded) {
  EXPECT_EQ(ask({}, "/openapi.json"), "200");
  const Json document = get("/openapi.json")->json();
  EXPECT_EQ(document["components"]["securitySchemes"]["key"]["scheme"], "bearer");
  EXPECT_TRUE(document["paths"]["/v1/models"]["get"]["responses"].contains("401"));
}

}  // namespace
}  // namespace troupe::net
