#include "net/openai_openapi.h"

#include <limits>
#include <optional>
#include <utility>

namespace troupe::net {

namespace {

using schema::any_object;
using schema::integer;
using schema::list;
using schema::number;
using schema::object;
using schema::only;
using schema::or_null;
using schema::text;

Json whole_number() {
  return integer(0, std::numeric_limits<std::int64_t>::max());
}

Json logprob() {
  return number(-9999, 1);
}

Json error_schema() {
  return object({{"error",
                  object({{"message", text()},
                          {"type", text()},
                          {"param", or_null(text())},
                          {"code", or_null(text())}},
                         {"message", "type", "param", "code"})}},
                {"error"});
}

Json usage_schema() {
  return object({{"prompt_tokens", whole_number()},
                 {"completion_tokens", whole_number()},
                 {"total_tokens", whole_number()}},
                {"prompt_tokens", "completion_tokens", "total_tokens"});
}

Json answer_schema(const char* kind, Json choice) {
  return object({{"id", text(1)},
                 {"object", only({kind})},
                 {"created", whole_number()},
                 {"model", text(1)},
                 {"system_fingerprint", or_null(text(1))},
                 {"choices", list(std::move(choice), 1)},
                 {"usage", usage_schema()}},
                {"id", "object", "created", "model", "system_fingerprint", "choices", "usage"});
}

Json completion_schema() {
  Json top = any_object();
  top["additionalProperties"] = logprob();
  const Json logprobs = object({{"tokens", list(text())},
                                {"token_logprobs", list(or_null(logprob()))},
                                {"top_logprobs", list(or_null(std::move(top)))},
                                {"text_offset", list(whole_number())}},
                               {"tokens", "token_logprobs", "top_logprobs", "text_offset"});
  return answer_schema("text_completion",
                       object({{"index", whole_number()},
                               {"text", text()},
                               {"logprobs", or_null(logprobs)},
                               {"finish_reason", only({"stop", "length"})}},
                              {"index", "text", "logprobs", "finish_reason"}));
}

Json chat_token_schema(std::optional<Json> top) {
  Json token = object({{"token", text()}, {"logprob", logprob()}, {"bytes", list(integer(0, 255))}},
                      {"token", "logprob", "bytes"});
  if (top) {
    token["properties"]["top_logprobs"] = list(*std::move(top), 0, kTopLogprobs);
    token["required"].push_back("top_logprobs");
  }
  return token;
}

Json chat_schema() {
  const Json message = object({{"role", only({"assistant"})},
                               {"content", text()},
                               {"refusal", only({nullptr})},
                               {"annotations", list(any_object(), 0, 0)}},
                              {"role", "content", "refusal", "annotations"});
  const Json logprobs = object(
      {{"content", list(chat_token_schema(chat_token_schema({})))}, {"refusal", only({nullptr})}},
      {"content", "refusal"});
  return answer_schema("chat.completion",
                       object({{"index", whole_number()},
                               {"message", message},
                               {"logprobs", or_null(logprobs)},
                               {"finish_reason", only({"stop", "length"})}},
                              {"index", "message", "logprobs", "finish_reason"}));
}

Json model_schema() {
  return object({{"id", text(1)},
                 {"object", only({"model"})},
                 {"created", whole_number()},
                 {"owned_by", text(1)},
                 {"max_model_len", whole_number()}},
                {"id", "object", "created", "owned_by", "max_model_len"});
}

Json models_schema() {
  return object({{"object", only({"list"})}, {"data", list(model_schema())}}, {"object", "data"});
}

Json tokens_schema() {
  return object({{"count", whole_number()},
                 {"max_model_len", whole_number()},
                 {"tokens", list(whole_number())},
                 {"token_strs", or_null(list(text()))}},
                {"count", "max_model_len", "tokens", "token_strs"});
}

Json tokenizer_schema() {
  return object({{"eos_token", or_null(text())},
                 {"bos_token", or_null(text())},
                 {"pad_token", or_null(text())},
                 {"chat_template", or_null(text())}},
                {"eos_token", "bos_token", "pad_token", "chat_template"});
}

Json content(const char* type, Json schema) {
  Json json;
  json[type]["schema"] = std::move(schema);
  return json;
}

struct Operation {
  const char* id;
  const char* summary;
  Json answer;
  std::optional<Endpoint> body;
  bool streams = false;
  bool needs_key = true;
};

class Document final {
 public:
  Document(const Parameters& parameters, bool needs_key)
      : parameters_(parameters), needs_key_(needs_key) {}

  void add(const char* path, const char* method, Operation operation) {
    Json json = {{"operationId", operation.id}, {"summary", operation.summary}};
    if (operation.body) {
      json["requestBody"] = {
          {"required", true},
          {"content", content("application/json", parameters_.schema(*operation.body))}};
    }
    Json good = {{"description", "The answer."},
                 {"content", content("application/json", std::move(operation.answer))}};
    if (operation.streams) {
      good["description"] =
          "The answer; with stream, events of which each has a chunk of it, and a last one [DONE].";
      good["content"]["text/event-stream"] = Json::object();  // 3.1 can't describe single events
    }
    json["responses"] = {{"200", std::move(good)}};
    const auto may_fail = [&](const char* status, const char* why) {
      json["responses"][status] = {{"description", why},
                                   {"content", content("application/json", error_schema())}};
    };
    if (operation.body) {
      may_fail("400", "A parameter is wrong or not supported; error.param names it.");
      may_fail("404", "There is no such model.");
      may_fail("413", "The body is too long.");
      may_fail("415", "The body is not application/json.");
    }
    if (operation.streams) {
      may_fail("429", "The queue is full; Retry-After says when to try again.");
      may_fail("503", "The server stops, or has no room for the body.");
    }
    if (needs_key_ && operation.needs_key) {
      may_fail("401", "The API key is missing or wrong.");
      json["security"] = Json::array({{{"key", Json::array()}}});
    }
    may_fail("default", "Any other error.");
    paths_[path][method] = std::move(json);
  }

  // Path items as JSON.
  void add_items(const std::string& items) {
    const auto json = parse_json(items);
    TROUPE_CHECK(json && json->is_object(), "more paths are an object of path items");
    paths_.update(*json);
  }

  // A part of the path.
  void add_path_parameter(const char* path, const char* name, const char* description) {
    paths_[path]["parameters"] = Json::array({{{"name", name},
                                               {"in", "path"},
                                               {"required", true},
                                               {"description", description},
                                               {"schema", text(1)}}});
  }

  [[nodiscard]] Json take() {
    Json json = {
        {"openapi", "3.1.0"},
        {"info",
         {{"title", "Troupe"},
          {"version", "1"},
          {"description",
           "OpenAI's API. A parameter is honoured, or refused with a 400 that names it."}}},
        {"paths", std::move(paths_)}};
    if (needs_key_) {
      json["components"]["securitySchemes"]["key"] = {{"type", "http"}, {"scheme", "bearer"}};
    }
    return json;
  }

 private:
  const Parameters& parameters_;
  const bool needs_key_;
  Json paths_ = Json::object();
};

}  // namespace

std::string openapi_document(const Parameters& parameters,
                             const ModelCard& card,
                             bool needs_key,
                             const std::string& more_paths) {
  Document document(parameters, needs_key);
  document.add("/v1/models", "get", {"listModels", "The models that are served", models_schema()});
  document.add_path_parameter(
      "/v1/models/{model}", "model", "Its name, such as that of this server");
  document.add("/v1/models/{model}", "get", {"getModel", "One of them", model_schema()});
  document.add("/v1/completions",
               "post",
               {"createCompletion",
                "Text that goes on after a prompt",
                completion_schema(),
                Endpoint::kCompletion,
                true});
  if (card.has_chat_template) {
    document.add("/v1/chat/completions",
                 "post",
                 {"createChatCompletion",
                  "An answer in a conversation",
                  chat_schema(),
                  Endpoint::kChat,
                  true});
  }
  if (card.has_tokenizer) {
    document.add(
        "/tokenize",
        "post",
        {"tokenize", "The tokens of a text or conversation", tokens_schema(), Endpoint::kTokenize});
    document.add("/detokenize",
                 "post",
                 {"detokenize",
                  "The text of tokens",
                  object({{"prompt", text()}}, {"prompt"}),
                  Endpoint::kDetokenize});
    document.add("/tokenizer_info",
                 "get",
                 {"getTokenizer", "The tokenizer's special tokens", tokenizer_schema()});
  }
  document.add("/openapi.json",
               "get",
               {"getOpenApi", "This document", any_object(), std::nullopt, false, false});
  if (!more_paths.empty()) {
    document.add_items(more_paths);
  }
  return dump(document.take());
}

}  // namespace troupe::net
