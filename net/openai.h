// OpenAiApi: OpenAI's HTTP API over a model that answers Requests: paths, JSON, server-sent events,
// errors. Pure translation: what it needs of the model comes through ModelBackend, so that it is
// tested without one. Thread-safe.
//
// OA-1: a parameter is honoured or refused with a 400 that names it; none is ignored in silence
//       but those that change nothing about the answer (user, metadata, store: false, ...; the list
//       is in the source).
// OA-2: every admitted request is finished, or cancelled when its client has gone.
// OA-3: no client's input makes a 500.
#pragma once

#include "net/http.h"
#include "runtime/base/error.h"
#include "runtime/base/ids.h"
#include "runtime/base/sources.h"
#include "runtime/serve/request.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::net {

struct ModelCard {
  std::string id;                   // what clients name it
  std::int64_t created_unix_s = 0;  // when the server started: `created` of answers counts from it
  std::string fingerprint;          // what the answers' bits depend on; empty: null
  std::uint32_t max_context = 0;    // tokens of prompt and answer
  std::uint32_t vocab = 0;
  bool has_tokenizer = false;
  bool has_chat_template = false;
};

struct TokenizerCard {  // GET /tokenizer_info
  std::string eos_token;
  std::string bos_token;
  std::string pad_token;
  std::string chat_template;
};

// One conversation as the template wants it.
struct ChatPrompt {
  std::string messages;   // a JSON list; contents are texts
  std::string tools;      // a JSON list, or empty
  std::string variables;  // a JSON object (chat_template_kwargs), or empty
  bool add_generation_prompt = true;
};

// What the API needs of a model. Any thread; nothing here waits for the device.
class ModelBackend {
 public:
  virtual ~ModelBackend() = default;
  [[nodiscard]] virtual const ModelCard& card() const = 0;
  [[nodiscard]] virtual const TokenizerCard& tokenizer_card() const = 0;

  // kInvalid: too long, or no tokenizer.
  [[nodiscard]] virtual Result<std::vector<std::uint32_t>> encode(std::string_view text,
                                                                  bool parse_special) const = 0;
  [[nodiscard]] virtual std::string decode(const std::vector<std::uint32_t>& tokens) const = 0;
  // The bytes of one token, possibly a part of a character.
  [[nodiscard]] virtual std::string token_bytes(std::uint32_t token) const = 0;
  [[nodiscard]] virtual Result<std::vector<std::uint32_t>> encode_chat(
      const ChatPrompt& prompt) const = 0;

  // The model's defaults: sampling, stop tokens; the rest empty.
  [[nodiscard]] virtual Request defaults() const = 0;

  // kInvalid: a parameter or a length, with the numbers. kOverloaded: the queue is full.
  // kDisconnected: the server drains or the engine is gone. `sink` must not block.
  [[nodiscard]] virtual Result<RequestId> submit(Request request, RequestSink sink) = 0;
  virtual void cancel(RequestId id) = 0;
};

// What came of an HTTP request, for metrics and the log; called once each, any thread.
struct ApiOutcome {
  std::string route;       // "/v1/chat/completions", or "other": few values
  unsigned status = 0;     // HTTP; 499: the client went away
  std::string error_code;  // "queue_full", "model_not_found", ...; empty: none
  std::string request_id;  // x-request-id of the client, or ours
  std::string remote;
  Time duration{0};
  std::uint32_t prompt_tokens = 0;
  std::uint32_t completion_tokens = 0;
  std::string finish_reason;  // of the first choice; "cancelled": the client went away
  bool streamed = false;
};

struct ApiOptions {
  std::vector<std::string> api_keys;  // empty: no key is asked for
  std::uint32_t prompts_max = 256;    // prompts in one request
  std::uint32_t choices_max = 128;    // prompts x n
  std::string more_paths;  // what the server answers beside the API: an object of OpenAPI's path
                           // items, for /openapi.json; may be empty
  std::function<void(const ApiOutcome&)> on_outcome;  // may be empty
};

class OpenAiApi {
 public:
  // `backend` and `clock` outlive the API and every Exchange it was given. Made when the server
  // starts. `seed`: of request ids.
  [[nodiscard]] static std::unique_ptr<OpenAiApi> make(ModelBackend& backend,
                                                       const Clock& clock,
                                                       std::uint64_t seed,
                                                       ApiOptions options);
  virtual ~OpenAiApi() = default;

  // Answers /v1/models, /v1/completions, /v1/chat/completions, /tokenize, /detokenize,
  // /tokenizer_info and /openapi.json, and 404 for what else begins with /v1/. False: the path is
  // none of them and nothing was done.
  virtual bool handle(const std::shared_ptr<Exchange>& exchange) = 0;
  // Whether the request has a key of this server, or none is asked for. In constant time.
  [[nodiscard]] virtual bool admits(const HttpRequest& request) const = 0;
};

// An error as OpenAI's clients read it: {"error": {"message", "type", "param", "code"}}.
[[nodiscard]] HttpResponse error_response(unsigned status,
                                          std::string_view type,
                                          std::string_view message,
                                          std::string_view param,
                                          std::string_view code);

}  // namespace troupe::net
