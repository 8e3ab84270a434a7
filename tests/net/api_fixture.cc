#include "tests/net/api_fixture.h"

namespace troupe::net {

FakeBackend::FakeBackend() {
  card_.id = "org/model";
  card_.created_unix_s = 1'700'000'000;
  card_.fingerprint = "abc";
  card_.max_context = 64;
  card_.vocab = kFakeVocab;
  card_.has_tokenizer = true;
  card_.has_chat_template = true;
  tokenizer_.eos_token = "<end>";
  tokenizer_.chat_template = "{{ messages }}";
}

Result<std::vector<std::uint32_t>> FakeBackend::encode(std::string_view text, bool) const {
  std::vector<std::uint32_t> tokens;
  for (const char c : text) {
    tokens.push_back(static_cast<unsigned char>(c));
  }
  return tokens;
}

std::string FakeBackend::decode(const std::vector<std::uint32_t>& tokens) const {
  std::string text;
  for (const std::uint32_t token : tokens) {
    text += token_bytes(token);
  }
  return text;
}

std::string FakeBackend::token_bytes(std::uint32_t token) const {
  if (token == kFakeEnd) {
    return "<end>";
  }
  return token < 256 ? std::string(1, static_cast<char>(token)) : std::string();
}

Result<std::vector<std::uint32_t>> FakeBackend::encode_chat(const ChatPrompt& prompt) const {
  asked_ = prompt;
  std::string text;
  for (const auto& message : Json::parse(prompt.messages, nullptr, false)) {
    if (message["content"] == "refuse me") {
      return error(Kind::kInvalid, "the template refuses this");
    }
    text += message["role"].get<std::string>() + ":" + message["content"].get<std::string>() + "|";
  }
  return encode(text + (prompt.add_generation_prompt ? ">" : ""), true);
}

Request FakeBackend::defaults() const {
  Request request;
  request.sampling.temperature = 0.5F;
  request.sampling.top_p = 0.75F;
  request.stop_tokens = {kFakeEnd};
  return request;
}

Result<RequestId> FakeBackend::submit(Request request, RequestSink sink) {
  if (refuse && submitted.size() == refuse_at) {
    return tl::unexpected(*refuse);
  }
  const RequestId id{100 + submitted.size()};
  submitted.push_back({id, std::move(request), std::move(sink)});
  if (on_submit) {
    on_submit(submitted.size() - 1);
  }
  return id;
}

void FakeBackend::cancel(RequestId id) {
  for (auto& each : submitted) {
    if (each.id == id) {
      EXPECT_FALSE(each.cancelled) << "cancelled twice";
      each.cancelled = true;
    }
  }
  if (on_cancel) {
    on_cancel(id);
  }
}

void FakeBackend::say(std::size_t index, std::string_view text) {
  RequestEvent event;
  event.text = text;
  for (const char c : text) {
    event.tokens.push_back({static_cast<unsigned char>(c), -0.5F, {}});
  }
  say(index, std::move(event));
}

void FakeBackend::say(std::size_t index, RequestEvent event) {
  event.id = submitted[index].id;
  const RequestSink sink = submitted[index].sink;
  if (event.finished) {
    submitted[index].sink = nullptr;
  }
  sink(event);
}

void FakeBackend::finish(std::size_t index, std::string_view text, FinishReason reason) {
  RequestEvent event;
  event.text = text;
  for (const char c : text) {
    event.tokens.push_back({static_cast<unsigned char>(c), -0.5F, {}});
  }
  if (reason == FinishReason::kStop) {
    event.tokens.push_back({kFakeEnd, -0.25F, {}});
  }
  event.finished = true;
  event.reason = reason;
  say(index, std::move(event));
}

void FakeBackend::fail(std::size_t index, Error error) {
  RequestEvent event;
  event.finished = true;
  event.reason = FinishReason::kError;
  event.failure = std::move(error);
  say(index, std::move(event));
}

void FakeExchange::respond(HttpResponse answer) {
  EXPECT_FALSE(head.has_value()) << "a stream is no whole answer";
  ++answers;
  if (!left_) {
    response = std::move(answer);
  }
}

bool FakeExchange::begin_stream(HttpResponse answer) {
  EXPECT_FALSE(head.has_value() || response.has_value()) << "answered before";
  head = std::move(answer);
  return !left_ && !broken_;
}

bool FakeExchange::write(std::string piece) {
  EXPECT_TRUE(head.has_value()) << "the stream has not begun";
  EXPECT_FALSE(ended) << "the stream has ended";
  if (broken_) {
    leave();
  }
  if (left_) {
    return false;
  }
  body += piece;
  return true;
}

void FakeExchange::end() {
  EXPECT_TRUE(head.has_value()) << "the stream has not begun";
  ++answers;
  ended = true;
}

void FakeExchange::on_gone(std::function<void()> callback) {
  if (left_) {
    callback();
    return;
  }
  gone_ = std::move(callback);
}

void FakeExchange::leave() {
  left_ = true;
  if (const auto callback = std::exchange(gone_, nullptr); callback && !answered()) {
    callback();
  }
}

unsigned FakeExchange::status() const {
  const auto& answer = response ? response : head;
  return answer ? answer->status : 0;
}

std::string FakeExchange::field(std::string_view name) const {
  const auto& answer = response ? response : head;
  for (const auto& [key, value] : answer ? answer->fields : HttpFields()) {
    if (key == name) {
      return value;
    }
  }
  return {};
}

Json FakeExchange::json() const {
  return response ? Json::parse(response->body, nullptr, false) : Json();
}

std::vector<Json> FakeExchange::events() const {
  constexpr std::string_view kBegin = "data: ";
  constexpr std::string_view kEnd = "\n\n";
  std::vector<Json> events;
  std::string_view rest = body;
  while (!rest.empty()) {
    const auto end = rest.find(kEnd);
    EXPECT_TRUE(rest.starts_with(kBegin) && end != std::string_view::npos) << rest;
    if (end == std::string_view::npos) {
      break;
    }
    const auto data = rest.substr(kBegin.size(), end - kBegin.size());
    rest.remove_prefix(end + kEnd.size());
    if (data == "[DONE]") {
      EXPECT_EQ(rest, "");
      break;
    }
    events.push_back(Json::parse(data, nullptr, false));
    EXPECT_FALSE(events.back().is_discarded()) << data;
  }
  return events;
}

ApiTest::ApiTest(ApiOptions options) {
  options.on_outcome = [this](const ApiOutcome& outcome) { outcomes.push_back(outcome); };
  api = OpenAiApi::make(backend, clock, 7, std::move(options));
}

std::shared_ptr<FakeExchange> ApiTest::send(HttpRequest request) {
  request.remote = "127.0.0.1:50123";
  auto exchange = std::make_shared<FakeExchange>(std::move(request));
  EXPECT_TRUE(api->handle(exchange));
  return exchange;
}

std::shared_ptr<FakeExchange> ApiTest::get(std::string path) {
  return send({.method = "GET", .path = std::move(path)});
}

std::shared_ptr<FakeExchange> ApiTest::post(std::string path, std::string body) {
  return send({.method = "POST",
               .path = std::move(path),
               .fields = {{"content-type", "application/json"}},
               .body = std::move(body)});
}

std::shared_ptr<FakeExchange> ApiTest::post(std::string path, const Json& body) {
  return post(std::move(path), body.dump());
}

std::shared_ptr<FakeExchange> ApiTest::complete(const Json& more) {
  Json body = {{"model", "org/model"}, {"prompt", "ab"}};
  body.update(more);
  return post("/v1/completions", body);
}

std::shared_ptr<FakeExchange> ApiTest::chat(const Json& more) {
  Json body = {{"model", "org/model"},
               {"messages", Json::array({{{"role", "user"}, {"content", "hi"}}})}};
  body.update(more);
  return post("/v1/chat/completions", body);
}

std::string refusal(const FakeExchange& exchange) {
  if (!exchange.response) {
    return "no answer";
  }
  const Json error = exchange.json()["error"];
  const auto text = [](const Json& value) {
    return value.is_string() ? value.get<std::string>() : value.dump();
  };
  return std::to_string(exchange.response->status) + " " + text(error["param"]) + " " +
         text(error["code"]) + ": " + text(error["message"]);
}

}  // namespace troupe::net
