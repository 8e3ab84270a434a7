#include "net/openai_job.h"

#include <algorithm>
#include <charconv>
#include <utility>

namespace troupe::net {

namespace {

using Tokens = std::vector<std::uint32_t>;

constexpr std::uint32_t kCompletionTokens = 16;  // OpenAI's default

// The model's refusal in the name of the parameter it is about.
tl::unexpected<ApiError> refuse_as(std::string param, const Error& error) {
  ApiError refusal = api_error(error);
  refusal.param = std::move(param);
  return tl::unexpected<ApiError>(std::move(refusal));
}

// ---- messages

// The text of a content; parts are joined by line ends.
std::string text_of(const Json& content) {
  if (content.is_string()) {
    return content.get<std::string>();
  }
  std::string text;
  for (std::size_t i = 0; i < content.size(); ++i) {
    text += i == 0 ? "" : "\n";
    text += content[i]["text"].get_ref<const std::string&>();
  }
  return text;
}

// What the template gets of a message; `at` names it.
Answer<Json> plain_message(const Json& message, const std::string& at) {
  const auto& role = message["role"].get_ref<const std::string&>();
  const auto content = message.find("content");
  const bool has_content = content != message.end() && !content->is_null();
  if (!has_content && role != "assistant") {
    return refuse(at + ".content",
                  at + ".content is missing; only an assistant's may be",
                  "missing_required_parameter");
  }
  Json plain = {{"role", role == "developer" ? "system" : role},
                {"content", has_content ? text_of(*content) : ""}};
  for (const auto& [name, value] : message.items()) {
    const bool is_assistants = name == "tool_calls" || name == "reasoning_content";
    const bool is_tools = name == "tool_call_id";
    if (value.is_null() || !(is_assistants || is_tools || name == "name")) {
      continue;  // seen to above, or empty by its schema
    }
    if ((is_assistants && role != "assistant") || (is_tools && role != "tool")) {
      const std::string owner = is_tools ? "a tool" : "an assistant";
      return refuse(at + "." + name, at + "." + name + " is only for the message of " + owner);
    }
    if (!value.empty()) {
      plain[name] = value;
    }
  }
  return plain;
}

Status check_tools(const Draft& draft, std::string& param) {
  const std::string choice = draft.tool_choice.value_or("auto");
  if (draft.tools != nullptr && !draft.tools->empty() && choice != "none") {
    param = "tools";
    return error(Kind::kUnsupported,
                 "tools are not supported yet; leave them out, or set tool_choice to \"none\"");
  }
  if (choice == "required") {
    param = "tool_choice";
    return error(Kind::kUnsupported,
                 "tool_choice asks for a call of a tool, which is not supported yet; allowed is "
                 "\"none\", and \"auto\" without tools");
  }
  return {};
}

// ---- lengths, sampling

// What the context leaves for an answer to this prompt, or the refusal with the numbers.
Answer<std::uint32_t> room(const Tokens& prompt,
                           std::optional<std::uint32_t> asked,
                           const ModelCard& card,
                           const std::string& param) {
  const std::string context = std::to_string(card.max_context);
  const std::uint64_t answer = asked.value_or(1);
  if (prompt.empty()) {
    return refuse(param, param + " has no tokens; at least one is needed");
  }
  if (prompt.size() + answer > card.max_context) {
    const std::string asks = asked ? std::to_string(answer) + " for the answer"
                                   : std::string("at least one for the answer");
    return refuse(param,
                  "the context holds " + context + " tokens, but " + std::to_string(prompt.size()) +
                      " in " + param + " and " + asks + " make " +
                      std::to_string(prompt.size() + answer) + "; shorten " + param +
                      (asked && answer > 1 ? " or lower max_tokens" : ""),
                  "context_length_exceeded");
  }
  return card.max_context - static_cast<std::uint32_t>(prompt.size());
}

std::optional<ApiError> set_biases(Draft& draft, const ModelCard& card) {
  for (const auto& [key, bias] : draft.biases) {
    std::uint64_t id = 0;
    std::from_chars(key.data(), key.data() + key.size(), id);
    if (id >= card.vocab) {
      return refuse("logit_bias." + key,
                    "logit_bias names token " + key + "; the vocabulary has ids 0 to " +
                        std::to_string(card.vocab - 1))
          .value();
    }
    draft.request.sampling.logit_bias.emplace_back(static_cast<std::uint32_t>(id),
                                                   static_cast<float>(bias));
  }
  return std::nullopt;
}

// What both routes check between parameters.
std::optional<ApiError> finish(Draft& draft, const ModelBackend& backend) {
  if (draft.has_stream_options && !draft.stream) {
    return refuse("stream_options", "stream_options is only allowed when stream is true").value();
  }
  if (!draft.request.stop_strings.empty() && !backend.card().has_tokenizer) {
    return refuse("stop",
                  "stop needs a tokenizer, which this model does not have; use stop_token_ids")
        .value();
  }
  if (draft.ignore_eos) {
    draft.request.stop_tokens.clear();
  }
  auto& stops = draft.request.stop_tokens;
  for (const std::uint32_t id : draft.stop_token_ids) {
    if (std::find(stops.begin(), stops.end(), id) == stops.end()) {
      stops.push_back(id);
    }
  }
  return set_biases(draft, backend.card());
}

Job job_of(const Draft& draft) {
  return {.n = draft.n,
          .stream = draft.stream,
          .include_usage = draft.include_usage,
          .continuous_usage = draft.continuous_usage};
}

// One request for each of the n choices.
void add_choices(Job& job, const Request& request) {
  for (std::uint32_t choice = 0; choice < job.n; ++choice) {
    job.requests.push_back(request);
    job.requests.back().choice = choice;
  }
}

// ---- prompts of completions

// Each is a text or a list of token ids.
std::vector<const Json*> prompts_of(const Json& prompt) {
  if (prompt.is_string() || prompt[0].is_number()) {
    return {&prompt};
  }
  std::vector<const Json*> prompts;
  for (const auto& each : prompt) {
    prompts.push_back(&each);
  }
  return prompts;
}

Answer<Tokens> tokens_of(const Json& prompt, const ModelBackend& backend) {
  if (prompt.is_string()) {
    return text_prompt(prompt.get_ref<const std::string&>(), backend);
  }
  Tokens tokens;
  tokens.reserve(prompt.size());
  for (const auto& id : prompt) {
    tokens.push_back(static_cast<std::uint32_t>(as_int64(id)));
  }
  return tokens;
}

std::optional<ApiError> check_completion(const Draft& draft,
                                         std::size_t prompts,
                                         const ApiOptions& options) {
  if (draft.best_of && *draft.best_of != draft.n) {
    return refuse("best_of",
                  "best_of is " + std::to_string(*draft.best_of) + " and n is " +
                      std::to_string(draft.n) + "; only best_of equal to n is supported")
        .value();
  }
  if (prompts * draft.n > options.choices_max) {
    return refuse(prompts > 1 ? "prompt" : "n",
                  std::to_string(prompts) + " prompts and n " + std::to_string(draft.n) + " make " +
                      std::to_string(prompts * draft.n) + " choices; at most " +
                      std::to_string(options.choices_max) + " are allowed in one request")
        .value();
  }
  if (draft.max_tokens == 0U && !draft.echo) {
    return refuse("max_tokens", "max_tokens is 0; without echo at least 1 is needed").value();
  }
  return std::nullopt;
}

}  // namespace

Answer<std::vector<std::uint32_t>> text_prompt(const std::string& text,
                                               const ModelBackend& backend) {
  if (!backend.card().has_tokenizer) {
    return refuse("prompt", "this model has no tokenizer: send the prompt as token ids");
  }
  auto tokens = backend.encode(text, true);
  if (!tokens) {
    return refuse_as("prompt", tokens.error());
  }
  return std::move(*tokens);
}

Answer<std::vector<std::uint32_t>> chat_prompt(const Draft& draft, const ModelBackend& backend) {
  if (!backend.card().has_chat_template) {
    return refuse("messages", "this model has no chat template: use /v1/completions");
  }
  Json messages = Json::array();
  for (std::size_t i = 0; i < draft.messages->size(); ++i) {
    TROUPE_ASSIGN(Json message,
                  plain_message((*draft.messages)[i], "messages[" + std::to_string(i) + "]"));
    messages.push_back(std::move(message));
  }
  auto tokens =
      backend.encode_chat({.messages = dump(messages),
                           .tools = {},
                           .variables = draft.template_variables,
                           .add_generation_prompt = draft.add_generation_prompt.value_or(true)});
  if (!tokens) {
    return refuse_as("messages", tokens.error());
  }
  return std::move(*tokens);
}

Answer<Job> completion_job(Draft draft, const ModelBackend& backend, const ApiOptions& options) {
  const auto prompts = prompts_of(*draft.prompt);
  if (auto refusal = check_completion(draft, prompts.size(), options)) {
    return tl::unexpected(*std::move(refusal));
  }
  if (auto refusal = finish(draft, backend)) {
    return tl::unexpected(*std::move(refusal));
  }
  Job job = job_of(draft);
  job.echo = draft.echo;
  job.no_answer = draft.max_tokens == 0U;
  job.logprobs = draft.logprobs;
  draft.request.logprobs = draft.logprobs;
  if (draft.echo) {
    draft.request.prompt_logprobs = draft.logprobs;
  }
  if (draft.max_tokens) {
    draft.max_tokens = std::max(*draft.max_tokens, 1U);
  }
  for (const Json* prompt : prompts) {
    TROUPE_ASSIGN(Tokens tokens, tokens_of(*prompt, backend));
    TROUPE_ASSIGN(const std::uint32_t rest,
                  room(tokens, draft.max_tokens, backend.card(), "prompt"));
    if (draft.echo) {
      job.echoes.push_back(prompt->is_string() ? prompt->get<std::string>()
                                               : backend.decode(tokens));
    }
    Request request = draft.request;
    request.prompt = std::move(tokens);
    request.max_tokens = draft.max_tokens.value_or(std::min(kCompletionTokens, rest));
    add_choices(job, request);
  }
  return job;
}

Answer<Job> chat_job(Draft draft, const ModelBackend& backend) {
  std::string param;
  if (const auto tools = check_tools(draft, param); !tools) {
    return refuse_as(param, tools.error());
  }
  if (draft.top_logprobs && !draft.chat_logprobs) {
    return refuse("top_logprobs", "top_logprobs is only allowed when logprobs is true");
  }
  if (draft.max_tokens && draft.max_completion_tokens &&
      *draft.max_tokens != *draft.max_completion_tokens) {
    return refuse("max_tokens",
                  "max_tokens is " + std::to_string(*draft.max_tokens) +
                      " and max_completion_tokens is " +
                      std::to_string(*draft.max_completion_tokens) + "; they mean the same");
  }
  if (auto refusal = finish(draft, backend)) {
    return tl::unexpected(*std::move(refusal));
  }
  const auto asked = draft.max_completion_tokens ? draft.max_completion_tokens : draft.max_tokens;
  Job job = job_of(draft);
  job.chat = true;
  if (draft.chat_logprobs) {
    job.logprobs = draft.top_logprobs.value_or(0);
    draft.request.logprobs = job.logprobs;
  }
  TROUPE_ASSIGN(draft.request.prompt, chat_prompt(draft, backend));
  TROUPE_ASSIGN(const std::uint32_t rest,
                room(draft.request.prompt, asked, backend.card(), "messages"));
  draft.request.max_tokens = asked.value_or(rest);
  add_choices(job, draft.request);
  return job;
}

}  // namespace troupe::net
