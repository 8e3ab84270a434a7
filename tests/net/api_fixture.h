// For the tests of OpenAiApi: a model that answers what a test tells it to, a client that keeps
// what it was sent, and both together with an API.
#pragma once

#include "net/openai.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace troupe::net {

using Json = nlohmann::ordered_json;

inline constexpr std::uint32_t kFakeVocab = 300;  // ids below 256 are bytes
inline constexpr std::uint32_t kFakeEnd = 256;    // "<end>"

// Tokens are bytes; nothing runs by itself.
class FakeBackend final : public ModelBackend {
 public:
  struct Submitted {
    RequestId id;
    Request request;
    RequestSink sink;
    bool cancelled = false;
  };

  FakeBackend();
  [[nodiscard]] const ModelCard& card() const override { return card_; }
  [[nodiscard]] const TokenizerCard& tokenizer_card() const override { return tokenizer_; }
  [[nodiscard]] Result<std::vector<std::uint32_t>> encode(std::string_view text,
                                                          bool parse_special) const override;
  [[nodiscard]] std::string decode(const std::vector<std::uint32_t>& tokens) const override;
  [[nodiscard]] std::string token_bytes(std::uint32_t token) const override;
  // "role:content|" of each message, ">" to begin the answer; the conversation is kept.
  [[nodiscard]] Result<std::vector<std::uint32_t>> encode_chat(
      const ChatPrompt& prompt) const override;
  [[nodiscard]] Request defaults() const override;
  [[nodiscard]] Result<RequestId> submit(Request request, RequestSink sink) override;
  void cancel(RequestId id) override;

  // The event that an answer with these tokens would bring; a whole text is made of whole tokens.
  void say(std::size_t index, std::string_view text);
  void say(std::size_t index, RequestEvent event);
  void finish(std::size_t index, std::string_view text, FinishReason reason = FinishReason::kStop);
  void fail(std::size_t index, Error error);

  ModelCard card_;
  TokenizerCard tokenizer_;
  mutable ChatPrompt asked_;
  std::vector<Submitted> submitted;
  std::optional<Error> refuse;  // the submit number refuse_at
  std::size_t refuse_at = 0;
  std::function<void(std::size_t)> on_submit;  // called within submit, with the index
  std::function<void(RequestId)> on_cancel;
};

class FakeExchange final : public Exchange {
 public:
  explicit FakeExchange(HttpRequest request) : request_(std::move(request)) {}
  [[nodiscard]] const HttpRequest& request() const override { return request_; }
  [[nodiscard]] std::string take_body() override { return std::exchange(request_.body, {}); }
  void respond(HttpResponse response) override;
  bool begin_stream(HttpResponse head) override;
  bool write(std::string piece) override;
  void end() override;
  void on_gone(std::function<void()> callback) override;

  void leave();                             // the client
  void refuse_writes() { broken_ = true; }  // the next one finds that the client is gone

  [[nodiscard]] unsigned status() const;  // 0: no answer
  [[nodiscard]] bool answered() const { return response.has_value() || ended; }
  [[nodiscard]] std::string field(std::string_view name) const;  // of the answer
  [[nodiscard]] Json json() const;                               // the whole answer
  [[nodiscard]] std::vector<Json> events() const;  // of the stream, without the last "[DONE]"

  std::optional<HttpResponse> response;  // of respond()
  std::optional<HttpResponse> head;      // of begin_stream()
  std::string body;                      // of the stream
  bool ended = false;
  int answers = 0;  // respond() and end()

 private:
  HttpRequest request_;
  std::function<void()> gone_;
  bool left_ = false;
  bool broken_ = false;
};

class ApiTest : public testing::Test {
 protected:
  explicit ApiTest(ApiOptions options = {});

  std::shared_ptr<FakeExchange> send(HttpRequest request);
  std::shared_ptr<FakeExchange> get(std::string path);
  std::shared_ptr<FakeExchange> post(std::string path, std::string body);
  std::shared_ptr<FakeExchange> post(std::string path, const Json& body);
  // A body with what every one needs, and more.
  std::shared_ptr<FakeExchange> complete(const Json& more = Json::object());
  std::shared_ptr<FakeExchange> chat(const Json& more = Json::object());

  FakeBackend backend;
  ManualClock clock;
  std::vector<ApiOutcome> outcomes;
  std::unique_ptr<OpenAiApi> api;
};

// "400 param code: message" of an answer that is an error.
[[nodiscard]] std::string refusal(const FakeExchange& exchange);

}  // namespace troupe::net
