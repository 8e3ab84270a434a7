// ModelFiles: everything about a model but its weights, read once: config, tokenizer, chat
// template, stop tokens, sampling defaults; and how a question becomes a Request. Immutable after
// open; main thread.
#pragma once

#include "deploy/options.h"
#include "runtime/base/error.h"
#include "runtime/model/config.h"
#include "runtime/serve/request.h"
#include "runtime/text/chat_template.h"
#include "runtime/text/stop_tokens.h"
#include "runtime/text/tokenizer.h"

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace troupe::deploy {

struct ModelFiles {
  std::filesystem::path directory;
  ModelConfig config;
  std::shared_ptr<const Tokenizer> tokenizer;         // null: the directory has none
  std::unique_ptr<const ChatTemplate> chat_template;  // null: the directory has none
  GenerationConfig generation;
};

// Errors: those of the readers.
[[nodiscard]] Result<ModelFiles> open_model_files(const std::filesystem::path& directory);

// One question: exactly one of the first three is given (`messages` is not empty, or `prompt` is
// set, or `token_ids` is not empty).
struct Question {
  std::vector<ChatMessage> messages;
  std::string prompt;
  std::vector<std::uint32_t> token_ids;
  AnswerOptions answer;
};

// The sampling asked for over the model's defaults. A model that says do_sample: false is greedy
// unless a temperature is given.
[[nodiscard]] SamplingParams sampling_params(const SamplingOptions& asked,
                                             const GenerationDefaults& defaults);

// Messages are rendered with the template; a prompt is one user message, or as it stands with `raw`
// or without a template. kInvalid: no tokenizer, or no template for messages. kOverloaded: prompt
// and answer do not fit `max_context` tokens.
[[nodiscard]] Result<Request> make_request(const ModelFiles& model,
                                           const Question& question,
                                           const TemplateOptions& chat,
                                           std::uint32_t max_context);

}  // namespace troupe::deploy
