// Private to net/: every parameter that a body may have, in one table: for which routes, its
// schema, and what it does. The table checks requests and is what /openapi.json shows. Immutable;
// any thread.
//
// PA-1: a row either changes the Draft, or is in the table as one that changes nothing about the
//       answer. What has no row is refused.
#pragma once

#include "net/openai.h"
#include "net/openai_error.h"
#include "net/openai_json.h"
#include "net/openai_schema.h"

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace troupe::net {

enum class Endpoint : std::uint8_t { kCompletion, kChat, kTokenize, kDetokenize };
inline constexpr std::size_t kBodies = 4;

// What a body asks for, before prompts are made of it. Pointers are into the body.
struct Draft {
  Request request;  // begins as the model's defaults
  const Json* prompt = nullptr;
  const Json* messages = nullptr;
  const Json* tools = nullptr;
  const Json* tokens = nullptr;  // to be detokenised
  std::optional<std::string> tool_choice;
  std::string template_variables;
  std::optional<bool> add_generation_prompt;
  bool return_token_texts = false;
  std::optional<std::uint32_t> max_tokens;
  std::optional<std::uint32_t> max_completion_tokens;
  std::uint32_t n = 1;
  std::optional<std::uint32_t> best_of;
  std::optional<std::uint32_t> logprobs;  // of a completion
  bool chat_logprobs = false;
  std::optional<std::uint32_t> top_logprobs;
  std::vector<std::uint32_t> stop_token_ids;
  bool ignore_eos = false;
  bool echo = false;
  bool stream = false;
  bool has_stream_options = false;
  bool include_usage = false;
  bool continuous_usage = false;
  std::vector<std::pair<std::string, double>> biases;  // logit_bias as sent
};

class Parameters final {
 public:
  Parameters(const ModelCard& card, const ApiOptions& options);

  [[nodiscard]] const Json& schema(Endpoint body) const { return forms_[index(body)].json; }
  // Types, ranges and what can be said of one parameter alone. `json` outlives the Draft.
  [[nodiscard]] Answer<Draft> read(Endpoint body, const Json& json, Request defaults) const;

 private:
  using Apply = void (*)(const Json& value, Draft& draft);
  struct Row;
  struct Form {
    Json json;
    std::unique_ptr<const Schema> schema;
    std::vector<std::pair<std::string, Apply>> rows;
  };

  static std::size_t index(Endpoint body) { return static_cast<std::size_t>(body); }
  static std::vector<Row> rows_for_all(const ModelCard& card);
  static std::vector<Row> rows_of_sampling();
  static std::vector<Row> rows_of_answers(const ModelCard& card, const ApiOptions& options);
  static std::vector<Row> rows_of_completions(const ModelCard& card, const ApiOptions& options);
  static std::vector<Row> rows_of_chat();
  static std::vector<Row> rows_of_tokenizer(const ModelCard& card);
  void add(std::vector<Row> rows);

  std::array<Form, kBodies> forms_;
};

}  // namespace troupe::net
