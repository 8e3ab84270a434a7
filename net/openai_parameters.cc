#include "net/openai_parameters.h"

#include <algorithm>
#include <cfloat>
#include <limits>

namespace troupe::net {

namespace {

using schema::any_object;
using schema::any_of;
using schema::boolean;
using schema::by_token_id;
using schema::integer;
using schema::list;
using schema::number;
using schema::object;
using schema::only;
using schema::or_null;
using schema::text;

constexpr std::int64_t kCountMax = std::numeric_limits<std::int32_t>::max();
constexpr std::size_t kStopsMax = 4;
constexpr std::size_t kStopCharactersMax = 256;
constexpr std::size_t kStopTokensMax = 128;

constexpr unsigned bit(Endpoint body) {
  return 1U << static_cast<unsigned>(body);
}
constexpr unsigned kCompletion = bit(Endpoint::kCompletion);
constexpr unsigned kChat = bit(Endpoint::kChat);
constexpr unsigned kAnswer = kCompletion | kChat;
constexpr unsigned kTokenize = bit(Endpoint::kTokenize);
constexpr unsigned kDetokenize = bit(Endpoint::kDetokenize);

float real(const Json& value) {
  return static_cast<float>(value.get<double>());
}

std::uint32_t count(const Json& value) {  // the schema bounded it
  return static_cast<std::uint32_t>(as_int64(value));
}

Json token(const ModelCard& card) {
  return integer(0, std::int64_t{card.vocab} - 1);
}

Json message() {
  const Json part = object({{"type", only({"text"})}, {"text", text()}}, {"type", "text"});
  const Json function = object({{"name", text()}, {"arguments", text()}}, {"name", "arguments"});
  const Json call =
      object({{"id", text()}, {"type", only({"function"})}, {"function", function}}, {"function"});
  return object(
      {
          {"role", only({"system", "developer", "user", "assistant", "tool"})},
          {"content", or_null(any_of({text(), list(part)}))},
          {"name", or_null(text())},
          {"tool_calls", or_null(list(call))},
          {"tool_call_id", or_null(text())},
          {"reasoning_content", or_null(text())},
          // An answer of ours may be sent back as it came.
          {"refusal", only({nullptr})},
          {"annotations", or_null(list(any_object(), 0, 0))},
          {"audio", only({nullptr})},
          {"function_call", only({nullptr})},
      },
      {"role"});
}

void set_stop(const Json& value, Draft& draft) {
  draft.request.stop_strings = value.is_string() ? std::vector{value.get<std::string>()}
                                                 : value.get<std::vector<std::string>>();
}

void set_stream_options(const Json& value, Draft& draft) {
  const auto is_set = [&](const char* name) {
    const auto found = value.find(name);
    return found != value.end() && found->is_boolean() && found->get<bool>();
  };
  draft.has_stream_options = true;
  draft.include_usage = is_set("include_usage");
  draft.continuous_usage = is_set("continuous_usage_stats");
}

void set_bias(const Json& value, Draft& draft) {
  for (const auto& [key, bias] : value.items()) {
    draft.biases.emplace_back(key, bias.get<double>());
  }
}

}  // namespace

struct Parameters::Row {
  const char* name;
  unsigned bodies;
  Json schema;
  Apply apply;  // null: changes nothing about the answer
  const char* description;
  bool required = false;
};

std::vector<Parameters::Row> Parameters::rows_for_all(const ModelCard& card) {
  const auto nothing = [](const Json&, Draft&) {};  // checked before the table is asked
  return {
      {"model", kAnswer, only({card.id}), nothing, "The model to use.", true},
      {"model", kTokenize | kDetokenize, or_null(only({card.id})), nothing, "The model to use."},
      {"user", kAnswer, text(), nullptr, "Changes nothing about the answer."},
      {"metadata", kAnswer, any_object(), nullptr, "Changes nothing about the answer."},
      {"store", kAnswer, only({false}), nullptr, "Nothing is stored."},
      {"service_tier", kAnswer, only({"auto", "default"}), nullptr, "There is one tier."},
      {"safety_identifier", kAnswer, text(), nullptr, "Changes nothing about the answer."},
      {"prompt_cache_key", kAnswer, text(), nullptr, "Changes nothing about the answer."},
  };
}

std::vector<Parameters::Row> Parameters::rows_of_sampling() {
  return {
      {"temperature",
       kAnswer,
       number(0, 2),
       [](const Json& v, Draft& d) { d.request.sampling.temperature = real(v); },
       "0: the likeliest token. Default: the model's."},
      // A nucleus of no mass still has its likeliest token.
      {"top_p",
       kAnswer,
       number(0, 1),
       [](const Json& v, Draft& d) { d.request.sampling.top_p = std::max(real(v), FLT_MIN); },
       "The smallest set of tokens with this probability. Default: the model's."},
      {"top_k",
       kAnswer,
       integer(-1, kCountMax),
       [](const Json& v, Draft& d) { d.request.sampling.top_k = as_int64(v) < 0 ? 0 : count(v); },
       "That many likeliest tokens; -1 or 0: all. Default: the model's."},
      {"min_p",
       kAnswer,
       number(0, 1),
       [](const Json& v, Draft& d) { d.request.sampling.min_p = real(v); },
       "Tokens with at least this fraction of the likeliest one's probability."},
      {"repetition_penalty",
       kAnswer,
       number(0.01, 100),
       [](const Json& v, Draft& d) { d.request.sampling.repetition_penalty = real(v); },
       "Above 1: tokens of prompt and answer become less likely."},
      {"presence_penalty",
       kAnswer,
       number(-2, 2),
       [](const Json& v, Draft& d) { d.request.sampling.presence_penalty = real(v); },
       "Subtracted from the logit of a token that the answer has."},
      {"frequency_penalty",
       kAnswer,
       number(-2, 2),
       [](const Json& v, Draft& d) { d.request.sampling.frequency_penalty = real(v); },
       "The same, for each time that the answer has it."},
      {"logit_bias",
       kAnswer,
       by_token_id(number(-100, 100)),
       set_bias,
       "Token ids and what is added to their logits."},
      {"seed",
       kAnswer,
       integer(std::numeric_limits<std::int64_t>::min(), std::numeric_limits<std::int64_t>::max()),
       [](const Json& v, Draft& d) {
         d.request.sampling.seed = static_cast<std::uint64_t>(as_int64(v));
       },
       "The same request with the same seed has the same answer. Absent: drawn."},
  };
}

std::vector<Parameters::Row> Parameters::rows_of_answers(const ModelCard& card,
                                                         const ApiOptions& options) {
  return {
      {"stop",
       kAnswer,
       any_of({text(1, kStopCharactersMax), list(text(1, kStopCharactersMax), 0, kStopsMax)}),
       set_stop,
       "The answer ends before the first of these texts."},
      {"stop_token_ids",
       kAnswer,
       list(token(card), 0, kStopTokensMax),
       [](const Json& v, Draft& d) { d.stop_token_ids = v.get<std::vector<std::uint32_t>>(); },
       "The answer ends before the first of these tokens."},
      {"ignore_eos",
       kAnswer,
       boolean(),
       [](const Json& v, Draft& d) { d.ignore_eos = v.get<bool>(); },
       "Do not end at the model's own end tokens."},
      {"include_stop_str_in_output",
       kAnswer,
       only({false}),
       nullptr,
       "A stop text is never part of the answer."},
      {"min_tokens", kAnswer, only({0}), nullptr, "A minimum is not supported."},
      {"n",
       kAnswer,
       integer(1, std::int64_t{options.choices_max}),
       [](const Json& v, Draft& d) { d.n = count(v); },
       "Answers to each prompt."},
      {"stream",
       kAnswer,
       boolean(),
       [](const Json& v, Draft& d) { d.stream = v.get<bool>(); },
       "Answer in server-sent events; the last one is [DONE]."},
      {"stream_options",
       kAnswer,
       object({{"include_usage", or_null(boolean())},
               {"continuous_usage_stats", or_null(boolean())},
               {"include_obfuscation", only({false, nullptr})}}),
       set_stream_options,
       "include_usage: a last event with the usage and no choices. continuous_usage_stats: the "
       "usage so far in every event. Only with stream."},
  };
}

std::vector<Parameters::Row> Parameters::rows_of_completions(const ModelCard& card,
                                                             const ApiOptions& options) {
  const std::size_t prompts_max = options.prompts_max;
  return {
      {"prompt",
       kCompletion,
       any_of({text(),
               list(token(card), 1),
               list(text(), 1, prompts_max),
               list(list(token(card), 1), 1, prompts_max)}),
       [](const Json& v, Draft& d) { d.prompt = &v; },
       "A text, a list of texts, a list of token ids or a list of such lists.",
       true},
      {"max_tokens",
       kCompletion,
       integer(0, kCountMax),
       [](const Json& v, Draft& d) { d.max_tokens = count(v); },
       "Tokens of the answer. Default: 16. 0 only with echo."},
      {"echo",
       kCompletion,
       boolean(),
       [](const Json& v, Draft& d) { d.echo = v.get<bool>(); },
       "The text begins with the prompt; logprobs too."},
      {"logprobs",
       kCompletion,
       integer(0, kTopLogprobs),
       [](const Json& v, Draft& d) { d.logprobs = count(v); },
       "Log probabilities of the tokens and of that many likeliest ones."},
      {"best_of",
       kCompletion,
       integer(1, std::int64_t{options.choices_max}),
       [](const Json& v, Draft& d) { d.best_of = count(v); },
       "Only equal to n."},
      {"suffix", kCompletion, only({""}), nullptr, "Text after the answer is not supported."},
  };
}

std::vector<Parameters::Row> Parameters::rows_of_chat() {
  return {
      {"messages",
       kChat,
       list(message(), 1),
       [](const Json& v, Draft& d) { d.messages = &v; },
       "The conversation. Parts of a content are joined by line ends. A developer is a system. "
       "What "
       "the model thinks before it answers stays in the content as it writes it.",
       true},
      {"max_tokens",
       kChat,
       integer(1, kCountMax),
       [](const Json& v, Draft& d) { d.max_tokens = count(v); },
       "The same as max_completion_tokens."},
      {"max_completion_tokens",
       kChat,
       integer(1, kCountMax),
       [](const Json& v, Draft& d) { d.max_completion_tokens = count(v); },
       "Tokens of the answer. Default: what the context has left."},
      {"logprobs",
       kChat,
       boolean(),
       [](const Json& v, Draft& d) { d.chat_logprobs = v.get<bool>(); },
       "Log probabilities of the tokens."},
      {"top_logprobs",
       kChat,
       integer(0, kTopLogprobs),
       [](const Json& v, Draft& d) { d.top_logprobs = count(v); },
       "That many likeliest tokens at each place. Only with logprobs."},
      {"response_format",
       kChat,
       object({{"type", only({"text"})}}, {"type"}),
       nullptr,
       "Only text."},
      {"modalities", kChat, list(only({"text"}), 1, 1), nullptr, "Only text."},
      {"tools",
       kChat,
       list(any_object()),
       [](const Json& v, Draft& d) { d.tools = &v; },
       "Calling tools is not supported: only with tool_choice \"none\", and then the model is not "
       "told of them."},
      {"tool_choice",
       kChat,
       any_of({only({"none", "auto", "required"}), any_object()}),
       [](const Json& v, Draft& d) {
         d.tool_choice = v.is_string() ? v.get<std::string>() : std::string("required");
       },
       "\"none\"; \"auto\" without tools."},
      {"parallel_tool_calls", kChat, boolean(), nullptr, "No tool is called."},
      {"chat_template_kwargs",
       kChat | kTokenize,
       any_object(),
       [](const Json& v, Draft& d) { d.template_variables = dump(v); },
       "Variables of the chat template, such as enable_thinking."},
      {"add_generation_prompt",
       kChat | kTokenize,
       boolean(),
       [](const Json& v, Draft& d) { d.add_generation_prompt = v.get<bool>(); },
       "End the prompt where the assistant's answer begins. Default: true."},
      {"continue_final_message",
       kChat | kTokenize,
       only({false}),
       nullptr,
       "An answer begins anew."},
  };
}

std::vector<Parameters::Row> Parameters::rows_of_tokenizer(const ModelCard& card) {
  return {
      {"prompt",
       kTokenize,
       text(),
       [](const Json& v, Draft& d) { d.prompt = &v; },
       "A text; or messages."},
      {"messages",
       kTokenize,
       list(message(), 1),
       [](const Json& v, Draft& d) { d.messages = &v; },
       "A conversation, made a prompt by the chat template."},
      {"add_special_tokens",
       kTokenize,
       boolean(),
       nullptr,
       "The tokenizer adds none of its own, so this changes nothing."},
      {"return_token_strs",
       kTokenize,
       boolean(),
       [](const Json& v, Draft& d) { d.return_token_texts = v.get<bool>(); },
       "Answer with the text of each token too."},
      {"tokens",
       kDetokenize,
       list(token(card)),
       [](const Json& v, Draft& d) { d.tokens = &v; },
       "Token ids.",
       true},
  };
}

Parameters::Parameters(const ModelCard& card, const ApiOptions& options) {
  for (auto& form : forms_) {
    form.json = object({});
  }
  add(rows_for_all(card));
  add(rows_of_completions(card, options));
  add(rows_of_chat());
  add(rows_of_tokenizer(card));
  add(rows_of_sampling());
  add(rows_of_answers(card, options));
  for (auto& form : forms_) {
    form.schema = std::make_unique<const Schema>(form.json);
  }
}

void Parameters::add(std::vector<Row> rows) {
  for (auto& row : rows) {
    Json member = row.required ? std::move(row.schema) : or_null(std::move(row.schema));
    member["description"] = row.description;
    for (std::size_t body = 0; body < kBodies; ++body) {
      if ((row.bodies & (1U << body)) == 0) {
        continue;
      }
      Form& form = forms_[body];
      TROUPE_CHECK(!form.json["properties"].contains(row.name), "one row for each parameter");
      form.json["properties"][row.name] = member;
      if (row.required) {
        form.json["required"].push_back(row.name);
      }
      form.rows.emplace_back(row.name, row.apply);
    }
  }
}

Answer<Draft> Parameters::read(Endpoint body, const Json& json, Request defaults) const {
  const Form& form = forms_[index(body)];
  if (auto violation = form.schema->check(json)) {
    return refuse(violation->path, violation->message, std::string(violation->code));
  }
  Draft draft;
  draft.request = std::move(defaults);
  for (const auto& [name, value] : json.items()) {
    const auto row = std::find_if(
        form.rows.begin(), form.rows.end(), [&](const auto& each) { return each.first == name; });
    if (row->second != nullptr && !value.is_null()) {
      row->second(value, draft);
    }
  }
  return draft;
}

}  // namespace troupe::net
