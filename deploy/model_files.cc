#include "deploy/model_files.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <system_error>

namespace troupe::deploy {
namespace {

namespace fs = std::filesystem;

constexpr std::uint32_t kMaxTokensDefault = 1024;

template <class T>
T chosen(const std::optional<T>& asked, const std::optional<T>& usual, T otherwise) {
  return asked ? *asked : usual.value_or(otherwise);
}

// The template's variables as one JSON object.
Result<std::string> variables_json(const TemplateOptions& chat) {
  auto object = nlohmann::ordered_json::object();
  for (const auto& [key, text] : chat.variables) {
    auto value = nlohmann::ordered_json::parse(text, nullptr, false);
    if (value.is_discarded()) {
      return error(Kind::kInvalid,
                   "--template-var " + key + "=" + text + ": not JSON; a text needs quotes: '\"" +
                       text + "\"'");
    }
    object[key] = std::move(value);
  }
  return object.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

Result<std::vector<std::uint32_t>> encode_messages(const ModelFiles& model,
                                                   std::vector<ChatMessage> messages,
                                                   const TemplateOptions& chat) {
  if (model.chat_template == nullptr) {
    return error(
        Kind::kInvalid,
        model.directory.string() + " has no chat template; give --prompt and --raw instead");
  }
  if (chat.system) {
    messages.insert(messages.begin(), ChatMessage{"system", *chat.system});
  }
  ChatOptions options;
  options.now_unix_s = chat.now_unix_s;
  TROUPE_ASSIGN(options.variables, variables_json(chat));
  TROUPE_ASSIGN(const auto text, model.chat_template->render(messages, options));
  return model.tokenizer->encode(text);
}

Result<std::vector<std::uint32_t>> encode_question(const ModelFiles& model,
                                                   const Question& question,
                                                   const TemplateOptions& chat) {
  if (!question.token_ids.empty()) {
    return question.token_ids;
  }
  if (model.tokenizer == nullptr) {
    return error(
        Kind::kInvalid,
        model.directory.string() + " has no tokenizer.json; give --token-ids instead of text");
  }
  if (!question.messages.empty()) {
    return encode_messages(model, question.messages, chat);
  }
  if (!chat.raw && model.chat_template != nullptr) {
    return encode_messages(model, {ChatMessage{"user", question.prompt}}, chat);
  }
  if (chat.system || !chat.variables.empty()) {
    return error(Kind::kInvalid,
                 model.directory.string() +
                     " has no chat template; --system, --no-thinking and --template-var need one");
  }
  return model.tokenizer->encode(question.prompt);
}

// Prompt and answer in numbers; an answer length that was not asked for gives way to the context.
Status fit(Request& request,
           const AnswerOptions& asked,
           const GenerationDefaults& defaults,
           std::uint32_t max_context) {
  const std::uint64_t prompt = request.prompt.size();
  const std::uint64_t room = prompt < max_context ? max_context - prompt : 0;
  if (room == 0) {
    return error(Kind::kOverloaded,
                 "the prompt has " + std::to_string(prompt) + " tokens and the context holds " +
                     std::to_string(max_context) +
                     ": nothing is left for an answer; shorten the prompt");
  }
  if (asked.max_tokens && *asked.max_tokens > room) {
    return error(Kind::kOverloaded,
                 "the prompt has " + std::to_string(prompt) + " tokens, --max-tokens is " +
                     std::to_string(*asked.max_tokens) + " and the context holds " +
                     std::to_string(max_context) + ": ask for at most " + std::to_string(room));
  }
  request.max_tokens = static_cast<std::uint32_t>(std::min<std::uint64_t>(
      chosen(asked.max_tokens, defaults.max_new_tokens, kMaxTokensDefault), room));
  return {};
}

}  // namespace

Result<ModelFiles> open_model_files(const fs::path& directory) {
  ModelFiles model;
  model.directory = directory;
  TROUPE_ASSIGN(model.config, read_model_config(directory));
  std::error_code ignored;
  if (fs::exists(directory / "tokenizer.json", ignored)) {
    TROUPE_ASSIGN(model.tokenizer, Tokenizer::open(directory));
    TROUPE_ASSIGN(model.chat_template, ChatTemplate::open(directory));
    if (!model.chat_template->exists()) {
      model.chat_template = nullptr;
    }
  }
  TROUPE_ASSIGN(model.generation, read_generation_config(directory, model.tokenizer.get()));
  return model;
}

SamplingParams sampling_params(const SamplingOptions& asked, const GenerationDefaults& defaults) {
  SamplingParams params;
  const bool greedy = !defaults.do_sample.value_or(defaults.temperature.has_value());
  params.temperature = static_cast<float>(
      chosen(asked.temperature, greedy ? std::optional(0.0) : defaults.temperature, 1.0));
  params.top_k = chosen(asked.top_k, defaults.top_k, 0U);
  params.top_p = static_cast<float>(chosen(asked.top_p, defaults.top_p, 1.0));
  params.min_p = static_cast<float>(chosen(asked.min_p, defaults.min_p, 0.0));
  params.repetition_penalty =
      static_cast<float>(chosen(asked.repetition_penalty, defaults.repetition_penalty, 1.0));
  params.presence_penalty = static_cast<float>(asked.presence_penalty.value_or(0));
  params.frequency_penalty = static_cast<float>(asked.frequency_penalty.value_or(0));
  for (const auto& [token, value] : asked.logit_bias) {
    params.logit_bias.emplace_back(token, static_cast<float>(value));
  }
  params.seed = asked.seed;
  return params;
}

Result<Request> make_request(const ModelFiles& model,
                             const Question& question,
                             const TemplateOptions& chat,
                             std::uint32_t max_context) {
  const auto& asked = question.answer;
  if (!asked.stop.empty() && model.tokenizer == nullptr) {
    return error(Kind::kInvalid,
                 model.directory.string() + " has no tokenizer.json, which --stop needs");
  }
  Request request;
  TROUPE_ASSIGN(request.prompt, encode_question(model, question, chat));
  if (request.prompt.empty()) {
    return error(Kind::kInvalid, "the prompt has no tokens; give some text");
  }
  TROUPE_TRY(fit(request, asked, model.generation.defaults, max_context));
  request.sampling = sampling_params(asked.sampling, model.generation.defaults);
  request.stop_tokens = model.generation.stop_ids;
  request.stop_strings = asked.stop;
  request.ignore_stop_tokens = asked.ignore_eos;
  request.logprobs = asked.logprobs;
  return request;
}

}  // namespace troupe::deploy
