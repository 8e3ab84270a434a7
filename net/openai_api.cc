#include "net/openai.h"
#include "net/openai_openapi.h"
#include "net/openai_session.h"
#include "runtime/base/sha256.h"

#include <algorithm>
#include <array>
#include <mutex>
#include <utility>

namespace troupe::net {

namespace {

constexpr std::size_t kRequestIdMax = 128;

std::string lower(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  return out;
}

// What a log line and a header can carry.
bool is_request_id(std::string_view text) {
  return !text.empty() && text.size() <= kRequestIdMax &&
         std::all_of(text.begin(), text.end(), [](char c) { return c > ' ' && c < '\x7f'; });
}

bool is_json_type(std::string_view content_type) {
  const auto end = content_type.find_first_of("; \t");
  return lower(content_type.substr(0, end)) == "application/json";
}

// Digests have one length; how long this takes does not depend on where they differ.
bool equal_in_constant_time(std::string_view a, std::string_view b) {
  unsigned difference = a.size() == b.size() ? 0 : 1;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    difference |= static_cast<unsigned char>(a[i]) ^ static_cast<unsigned char>(b[i]);
  }
  return difference == 0;
}

Json text_or_null(const std::string& text) {
  return text.empty() ? Json(nullptr) : Json(text);
}

HttpResponse ok(const Json& json) {
  return {.body = dump(json)};
}

enum class Route : std::uint8_t {
  kModels,
  kModel,
  kCompletions,
  kChat,
  kTokenize,
  kDetokenize,
  kTokenizerInfo,
  kOpenApi,
  kNone,
};

struct RouteRow {
  Route route;
  std::string_view name;  // the path, but for kModel and kNone
  bool posts;
};

constexpr std::string_view kModelPrefix = "/v1/models/";
constexpr std::array kRoutes = {
    RouteRow{Route::kModels, "/v1/models", false},
    RouteRow{Route::kModel, "/v1/models/{model}", false},
    RouteRow{Route::kCompletions, "/v1/completions", true},
    RouteRow{Route::kChat, "/v1/chat/completions", true},
    RouteRow{Route::kTokenize, "/tokenize", true},
    RouteRow{Route::kDetokenize, "/detokenize", true},
    RouteRow{Route::kTokenizerInfo, "/tokenizer_info", false},
    RouteRow{Route::kOpenApi, "/openapi.json", false},
};
constexpr RouteRow kNoRoute = {Route::kNone, "other", false};

// Null: no path of this API.
const RouteRow* route_of(std::string_view path) {
  for (const auto& row : kRoutes) {
    const bool is_it = row.route == Route::kModel
                           ? path.starts_with(kModelPrefix) && path.size() > kModelPrefix.size()
                           : path == row.name;
    if (is_it) {
      return &row;
    }
  }
  return path == "/v1" || path.starts_with("/v1/") ? &kNoRoute : nullptr;
}

ApiError not_found(std::string message, std::string code, std::string param = {}) {
  return {.status = 404,
          .type = "invalid_request_error",
          .message = std::move(message),
          .param = std::move(param),
          .code = std::move(code)};
}

class Api final : public OpenAiApi {
 public:
  Api(ModelBackend& backend, const Clock& clock, std::uint64_t seed, ApiOptions options)
      : backend_(backend),
        clock_(clock),
        options_(std::move(options)),
        parameters_(backend.card(), options_),
        document_(openapi_document(
            parameters_, backend.card(), !options_.api_keys.empty(), options_.more_paths)),
        made_(clock.now()),
        rng_(seed) {
    for (const auto& key : options_.api_keys) {
      key_digests_.push_back(sha256_hex(key));
    }
  }

  bool handle(const std::shared_ptr<Exchange>& exchange) override {
    const HttpRequest& request = exchange->request();
    const RouteRow* row = route_of(request.path);
    if (row == nullptr) {
      return false;
    }
    Call call{.exchange = exchange,
              .clock = &clock_,
              .began = clock_.now(),
              .tell = options_.on_outcome,
              .outcome = {}};
    call.outcome.route = row->name;
    call.outcome.remote = request.remote;
    const std::string_view id = request.field("x-request-id");
    call.outcome.request_id = is_request_id(id) ? std::string(id) : new_id("req-");
    if (check(call, *row)) {
      dispatch(std::move(call), row->route);
    }
    return true;
  }

  // Looks at every key, whichever fits.
  [[nodiscard]] bool admits(const HttpRequest& request) const override {
    if (key_digests_.empty()) {
      return true;
    }
    constexpr std::string_view kScheme = "bearer ";
    const std::string_view sent = request.field("authorization");
    if (lower(sent.substr(0, kScheme.size())) != kScheme) {
      return false;
    }
    const std::string digest = sha256_hex(sent.substr(kScheme.size()));
    bool found = false;
    for (const auto& each : key_digests_) {
      found |= equal_in_constant_time(each, digest);
    }
    return found;
  }

 private:
  // Key, path, method and type of the body. False: it was answered.
  bool check(Call& call, const RouteRow& row) const {
    const HttpRequest& request = call.exchange->request();
    if (row.route != Route::kOpenApi && !admits(request)) {
      call.refuse({.status = 401,
                   .type = "invalid_request_error",
                   .message = request.field("authorization").empty()
                                  ? "an API key is needed: send Authorization: Bearer KEY"
                                  : "the API key is not one of this server's",
                   .param = {},
                   .code = "invalid_api_key"},
                  {{"www-authenticate", "Bearer"}});
      return false;
    }
    if (row.route == Route::kNone) {
      call.refuse(not_found("there is no " + request.path + " here", "not_found"));
      return false;
    }
    const bool fits =
        row.posts ? request.method == "POST" : request.method == "GET" || request.method == "HEAD";
    if (!fits) {
      const std::string allowed = row.posts ? "POST" : "GET, HEAD";
      call.refuse(
          {.status = 405,
           .type = "invalid_request_error",
           .message = request.method + " is not for " + request.path + ", which takes " + allowed,
           .param = {},
           .code = "method_not_allowed"},
          {{"allow", allowed}});
      return false;
    }
    if (row.posts && !is_json_type(request.field("content-type"))) {
      call.refuse({.status = 415,
                   .type = "invalid_request_error",
                   .message = "the body must be JSON: send Content-Type: application/json",
                   .param = {},
                   .code = "unsupported_media_type"});
      return false;
    }
    return true;
  }

  void dispatch(Call call, Route route) {
    switch (route) {
      case Route::kModels:
        return call.answer(ok({{"object", "list"}, {"data", Json::array({model_json()})}}));
      case Route::kModel:
        return model(std::move(call));
      case Route::kCompletions:
        return post(std::move(call), Endpoint::kCompletion);
      case Route::kChat:
        return post(std::move(call), Endpoint::kChat);
      case Route::kTokenize:
        return post(std::move(call), Endpoint::kTokenize);
      case Route::kDetokenize:
        return post(std::move(call), Endpoint::kDetokenize);
      case Route::kTokenizerInfo:
        return tokenizer_info(std::move(call));
      case Route::kOpenApi:
        return call.answer({.body = document_});
      case Route::kNone:
        break;
    }
  }

  [[nodiscard]] Json model_json() const {
    return {{"id", backend_.card().id},
            {"object", "model"},
            {"created", backend_.card().created_unix_s},
            {"owned_by", "troupe"},
            {"max_model_len", backend_.card().max_context}};
  }

  [[nodiscard]] ApiError no_model(const std::string& id) const {
    return not_found("there is no model " + shown(Json(id)) + "; this server has " +
                         shown(Json(backend_.card().id)),
                     "model_not_found",
                     "model");
  }

  void model(Call call) const {
    const std::string id = call.exchange->request().path.substr(kModelPrefix.size());
    if (id != backend_.card().id) {
      return call.refuse(no_model(id));
    }
    call.answer(ok(model_json()));
  }

  void tokenizer_info(Call call) const {
    if (!backend_.card().has_tokenizer) {
      return call.refuse(not_found("this model has no tokenizer", "not_found"));
    }
    const TokenizerCard& card = backend_.tokenizer_card();
    call.answer(ok({{"eos_token", text_or_null(card.eos_token)},
                    {"bos_token", text_or_null(card.bos_token)},
                    {"pad_token", text_or_null(card.pad_token)},
                    {"chat_template", text_or_null(card.chat_template)}}));
  }

  void post(Call call, Endpoint body) {
    const auto json = parse_json(call.exchange->take_body());
    if (!json) {
      return call.refuse(
          {.message = "the body can't be used: " + json.error().message, .code = "invalid_json"});
    }
    if (json->is_object() && json->contains("model")) {
      const Json& id = (*json)["model"];
      if (id.is_string() && id != backend_.card().id) {
        return call.refuse(no_model(id.get<std::string>()));
      }
    }
    auto draft = parameters_.read(body, *json, backend_.defaults());
    if (!draft) {
      return call.refuse(draft.error());
    }
    switch (body) {
      case Endpoint::kCompletion:
        return run(std::move(call), completion_job(std::move(*draft), backend_, options_));
      case Endpoint::kChat:
        return run(std::move(call), chat_job(std::move(*draft), backend_));
      case Endpoint::kTokenize:
        return tokenize(std::move(call), *draft);
      case Endpoint::kDetokenize:
        return detokenize(std::move(call), *draft);
    }
  }

  void run(Call call, Answer<Job> job) {
    if (!job) {
      return call.refuse(job.error());
    }
    ReplyHead head{.id = new_id(job->chat ? "chatcmpl-" : "cmpl-"),
                   .model = backend_.card().id,
                   .fingerprint = backend_.card().fingerprint,
                   .created_unix_s = now_unix_s()};
    const auto session =
        std::make_shared<Session>(std::move(call), backend_, *job, std::move(head));
    session->start(std::move(job->requests));
  }

  Answer<std::vector<std::uint32_t>> tokens_of(const Draft& draft) const {
    if ((draft.prompt == nullptr) == (draft.messages == nullptr)) {
      return refuse("prompt",
                    draft.prompt == nullptr ? "prompt or messages is missing"
                                            : "prompt and messages: only one can be tokenized",
                    "missing_required_parameter");
    }
    if (draft.messages != nullptr) {
      return chat_prompt(draft, backend_);
    }
    if (draft.add_generation_prompt || !draft.template_variables.empty()) {
      return refuse(draft.add_generation_prompt ? "add_generation_prompt" : "chat_template_kwargs",
                    "a prompt is not put into the chat template; send messages");
    }
    return text_prompt(draft.prompt->get<std::string>(), backend_);
  }

  void tokenize(Call call, const Draft& draft) const {
    const auto tokens = tokens_of(draft);
    if (!tokens) {
      return call.refuse(tokens.error());
    }
    Json texts = nullptr;
    if (draft.return_token_texts) {
      texts = Json::array();
      for (const std::uint32_t token : *tokens) {
        texts.push_back(backend_.token_bytes(token));
      }
    }
    call.outcome.prompt_tokens = static_cast<std::uint32_t>(tokens->size());
    call.answer(ok({{"count", tokens->size()},
                    {"max_model_len", backend_.card().max_context},
                    {"tokens", *tokens},
                    {"token_strs", std::move(texts)}}));
  }

  void detokenize(Call call, const Draft& draft) const {
    if (!backend_.card().has_tokenizer) {
      return call.refuse({.message = "this model has no tokenizer", .code = "unsupported"});
    }
    std::vector<std::uint32_t> tokens;
    for (const auto& id : *draft.tokens) {
      tokens.push_back(static_cast<std::uint32_t>(as_int64(id)));
    }
    call.answer(ok({{"prompt", backend_.decode(tokens)}}));
  }

  [[nodiscard]] std::int64_t now_unix_s() const {
    return backend_.card().created_unix_s +
           std::chrono::duration_cast<std::chrono::seconds>(clock_.now() - made_).count();
  }

  [[nodiscard]] std::string new_id(std::string_view prefix) {
    constexpr std::string_view kDigits = "0123456789abcdef";
    constexpr int kWords = 2;  // 128 bits
    std::string id(prefix);
    const std::lock_guard lock(rng_mutex_);
    for (int word = 0; word < kWords; ++word) {
      const std::uint64_t bits = rng_.next();
      for (unsigned shift = 0; shift < 64; shift += 4) {
        id.push_back(kDigits[(bits >> shift) & 15U]);
      }
    }
    return id;
  }

  ModelBackend& backend_;
  const Clock& clock_;
  const ApiOptions options_;
  const Parameters parameters_;
  const std::string document_;
  const Time made_;
  std::vector<std::string> key_digests_;
  std::mutex rng_mutex_;
  Rng rng_;
};

}  // namespace

std::unique_ptr<OpenAiApi> OpenAiApi::make(ModelBackend& backend,
                                           const Clock& clock,
                                           std::uint64_t seed,
                                           ApiOptions options) {
  return std::make_unique<Api>(backend, clock, seed, std::move(options));
}

}  // namespace troupe::net
