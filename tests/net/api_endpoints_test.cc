// /v1/models, /tokenize, /detokenize, /tokenizer_info and /openapi.json.
#include "net/openai_schema.h"
#include "tests/net/api_fixture.h"

namespace troupe::net {
namespace {

using Endpoints = ApiTest;

TEST_F(Endpoints, ModelsAreListedAndFoundByName) {
  const std::string model =
      R"({"id":"org/model","object":"model","created":1700000000,"owned_by":"troupe",)"
      R"("max_model_len":64})";

  EXPECT_EQ(get("/v1/models")->json().dump(), R"({"object":"list","data":[)" + model + "]}");
  EXPECT_EQ(get("/v1/models/org/model")->json().dump(), model);
  EXPECT_EQ(
      refusal(*get("/v1/models/other")),
      "404 model model_not_found: there is no model \"other\"; this server has \"org/model\"");
  EXPECT_EQ(outcomes.at(1).route, "/v1/models/{model}");
}

TEST_F(Endpoints, ATextIsTokenized) {
  EXPECT_EQ(post("/tokenize", Json{{"prompt", "ab"}})->json().dump(),
            R"({"count":2,"max_model_len":64,"tokens":[97,98],"token_strs":null})");
  EXPECT_EQ(post("/tokenize",
                 Json{{"model", "org/model"},
                      {"prompt", "ä"},
                      {"add_special_tokens", false},
                      {"return_token_strs", true}})
                ->json()
                .dump(),
            R"({"count":2,"max_model_len":64,"tokens":[195,164],"token_strs":["�","�"]})");
  EXPECT_EQ(post("/tokenize", Json{{"prompt", ""}})->json()["count"], 0);
}

TEST_F(Endpoints, AConversationIsTokenized) {
  const Json messages = Json::array({{{"role", "user"}, {"content", "x"}}});

  EXPECT_EQ(post("/tokenize", Json{{"messages", messages}})->json()["count"], 8);
  EXPECT_EQ(post("/tokenize", Json{{"messages", messages}, {"add_generation_prompt", false}})
                ->json()["count"],
            7);
}

TEST_F(Endpoints, WhatCanNotBeTokenizedIsNamed) {
  const auto why = [this](const Json& body) { return refusal(*post("/tokenize", body)); };
  const Json messages = Json::array({{{"role", "user"}, {"content", "x"}}});

  EXPECT_EQ(why(Json::object()),
            "400 prompt missing_required_parameter: prompt or messages is missing");
  EXPECT_EQ(
      why({{"prompt", "a"}, {"messages", messages}}),
      "400 prompt missing_required_parameter: prompt and messages: only one can be tokenized");
  EXPECT_EQ(why({{"prompt", "a"}, {"add_generation_prompt", true}}),
            "400 add_generation_prompt invalid_value: a prompt is not put into the chat template; "
            "send messages");
  EXPECT_EQ(why({{"prompt", "a"}, {"model", "x"}}).substr(0, 3), "404");
  EXPECT_EQ(why({{"prompt", "a"}, {"n", 1}}),
            "400 n unknown_parameter: n is not supported; leave it out");
  backend.card_.has_tokenizer = false;
  EXPECT_EQ(why({{"prompt", "a"}}),
            "400 prompt invalid_value: this model has no tokenizer: send the prompt as token ids");
}

TEST_F(Endpoints, TokensAreDetokenized) {
  const auto answer = [this](const Json& body) { return post("/detokenize", body); };

  EXPECT_EQ(answer({{"tokens", {97, 98}}})->json().dump(), R"({"prompt":"ab"})");
  EXPECT_EQ(answer({{"tokens", Json::array()}})->json().dump(), R"({"prompt":""})");
  EXPECT_EQ(answer({{"tokens", {195}}})->json().dump(), R"({"prompt":"�"})");
  EXPECT_EQ(
      refusal(*answer({{"tokens", {97, 300}}})),
      "400 tokens[1] invalid_value: tokens[1] is 300; allowed is a whole number from 0 to 299");
  EXPECT_EQ(refusal(*answer(Json::object())),
            "400 tokens missing_required_parameter: tokens is missing");
  backend.card_.has_tokenizer = false;
  EXPECT_EQ(refusal(*answer({{"tokens", {97}}})),
            "400 null unsupported: this model has no tokenizer");
}

TEST_F(Endpoints, TheTokenizerIsDescribed) {
  EXPECT_EQ(get("/tokenizer_info")->json().dump(),
            R"({"eos_token":"<end>","bos_token":null,"pad_token":null,)"
            R"("chat_template":"{{ messages }}"})");
  backend.card_.has_tokenizer = false;
  EXPECT_EQ(refusal(*get("/tokenizer_info")), "404 null not_found: this model has no tokenizer");
}

class OpenApi : public ApiTest {
 protected:
  Json document() { return get("/openapi.json")->json(); }
  // What the document says of the answer 200.
  Schema answer_schema(const char* path, const char* method) {
    return Schema(document()["paths"][path][method]["responses"]["200"]["content"]
                            ["application/json"]["schema"]);
  }
  static std::string violation(const Schema& schema, const Json& value) {
    const auto found = schema.check(value);
    return found ? found->message : "";
  }
};

TEST_F(OpenApi, NamesEveryPath) {
  std::vector<std::string> paths;
  const Json all = document();
  for (const auto& [path, operations] : all["paths"].items()) {
    for (const auto& [method, operation] : operations.items()) {
      if (method != "parameters") {
        paths.push_back(method);
        paths.back() += " " + path;
      }
    }
  }

  EXPECT_EQ(all["openapi"], "3.1.0");
  EXPECT_EQ(paths,
            (std::vector<std::string>{"get /v1/models",
                                      "get /v1/models/{model}",
                                      "post /v1/completions",
                                      "post /v1/chat/completions",
                                      "post /tokenize",
                                      "post /detokenize",
                                      "get /tokenizer_info",
                                      "get /openapi.json"}));
}

TEST_F(OpenApi, ABodysSchemaIsClosedAndDescribesEachParameter) {
  const Json all = document();
  for (const char* path : {"/v1/completions", "/v1/chat/completions", "/tokenize", "/detokenize"}) {
    const Json schema =
        all["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"];
    EXPECT_EQ(schema["additionalProperties"], false) << path;
    for (const auto& [name, member] : schema["properties"].items()) {
      EXPECT_TRUE(member.contains("description")) << path << " " << name;
      EXPECT_TRUE(member.contains("type") || member.contains("anyOf") || member.contains("enum"))
          << path << " " << name;
    }
  }
}

TEST_F(OpenApi, RealAnswersFitIt) {
  EXPECT_EQ(violation(answer_schema("/v1/models", "get"), get("/v1/models")->json()), "");
  EXPECT_EQ(
      violation(answer_schema("/v1/models/{model}", "get"), get("/v1/models/org/model")->json()),
      "");
  EXPECT_EQ(violation(answer_schema("/tokenizer_info", "get"), get("/tokenizer_info")->json()), "");
  EXPECT_EQ(
      violation(answer_schema("/tokenize", "post"),
                post("/tokenize", Json{{"prompt", "a"}, {"return_token_strs", true}})->json()),
      "");
  EXPECT_EQ(violation(answer_schema("/detokenize", "post"),
                      post("/detokenize", Json{{"tokens", {97}}})->json()),
            "");
}

TEST_F(OpenApi, RealAnswersOfTheModelFitIt) {
  const auto completion = complete({{"logprobs", 1}, {"echo", true}});
  RequestEvent event;
  event.prompt = {{'a', 0, {}}, {'b', -1, {{'x', -0.5F}}}};
  event.tokens = {{0xc3, -1, {{'x', -0.5F}}}};
  event.finished = true;
  event.reason = FinishReason::kLength;
  backend.say(0, event);
  const auto chat_answer = chat({{"logprobs", true}, {"top_logprobs", 1}});
  event.prompt.clear();
  backend.say(1, event);

  EXPECT_EQ(violation(answer_schema("/v1/completions", "post"), completion->json()), "");
  EXPECT_EQ(violation(answer_schema("/v1/chat/completions", "post"), chat_answer->json()), "");
}

TEST_F(OpenApi, ErrorsFitIt) {
  const Json responses = document()["paths"]["/v1/completions"]["post"]["responses"];
  const Schema schema(responses["400"]["content"]["application/json"]["schema"]);

  EXPECT_EQ(violation(schema, complete({{"n", 0}})->json()), "");
  EXPECT_EQ(violation(schema, complete({{"model", "x"}})->json()), "");
}

TEST(OpenApiOf, AServerHasItsOwnPathsToo) {
  FakeBackend backend;
  const ManualClock clock;
  const auto api =
      OpenAiApi::make(backend, clock, 1, {.more_paths = R"({"/health":{"get":{"summary":"x"}}})"});
  const auto exchange =
      std::make_shared<FakeExchange>(HttpRequest{.method = "GET", .path = "/openapi.json"});
  EXPECT_TRUE(api->handle(exchange));

  const Json paths = exchange->json()["paths"];
  EXPECT_EQ(paths["/health"]["get"]["summary"], "x");
  EXPECT_TRUE(paths.contains("/v1/completions"));
}

TEST(OpenApiOf, AModelWithoutTextLeavesThosePathsOut) {
  FakeBackend backend;
  backend.card_.has_tokenizer = false;
  backend.card_.has_chat_template = false;
  const ManualClock clock;
  const auto api = OpenAiApi::make(backend, clock, 1, {});
  const auto exchange =
      std::make_shared<FakeExchange>(HttpRequest{.method = "GET", .path = "/openapi.json"});
  EXPECT_TRUE(api->handle(exchange));

  const Json paths = exchange->json()["paths"];
  EXPECT_TRUE(paths.contains("/v1/completions"));
  EXPECT_FALSE(paths.contains("/tokenize"));
  EXPECT_FALSE(paths.contains("/v1/chat/completions"));
}

}  // namespace
}  // namespace troupe::net
