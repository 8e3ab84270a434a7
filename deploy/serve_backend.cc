#include "deploy/serve_backend.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace troupe::deploy {
namespace {

constexpr std::size_t kFingerprintDigits = 16;

}  // namespace

NodeBackend::NodeBackend(const ModelFiles& files,
                         Node& node,
                         const Clock& clock,
                         const StageInfo& stage,
                         std::string name,
                         std::int64_t now_unix_s)
    : files_(files), node_(node), clock_(clock), started_(clock.now()) {
  card_.id = std::move(name);
  card_.created_unix_s = now_unix_s;
  card_.max_context = stage.max_context;
  card_.vocab = stage.vocab;
  card_.fingerprint = "fp_" + stage.arithmetic_digest.substr(0, kFingerprintDigits);
  card_.has_tokenizer = files.tokenizer != nullptr;
  card_.has_chat_template = files.chat_template != nullptr;
  if (files.chat_template != nullptr) {
    tokenizer_.eos_token = files.chat_template->special_token("eos_token");
    tokenizer_.bos_token = files.chat_template->special_token("bos_token");
    tokenizer_.pad_token = files.chat_template->special_token("pad_token");
    tokenizer_.chat_template = files.chat_template->source();
  }
}

Result<std::vector<std::uint32_t>> NodeBackend::encode(std::string_view text,
                                                       bool parse_special) const {
  if (files_.tokenizer == nullptr) {
    return error(Kind::kInvalid,
                 "the model has no tokenizer.json: give the prompt as a list of token ids");
  }
  return files_.tokenizer->encode(text, {.parse_special = parse_special});
}

std::string NodeBackend::decode(const std::vector<std::uint32_t>& tokens) const {
  return files_.tokenizer == nullptr ? std::string() : files_.tokenizer->decode(tokens);
}

std::string NodeBackend::token_bytes(std::uint32_t token) const {
  return files_.tokenizer == nullptr ? std::string() : std::string(files_.tokenizer->bytes(token));
}

Result<std::vector<std::uint32_t>> NodeBackend::encode_chat(const net::ChatPrompt& prompt) const {
  if (files_.chat_template == nullptr) {
    return error(Kind::kInvalid,
                 "the model has no chat template: use /v1/completions with the prompt as it is");
  }
  ChatOptions options;
  options.add_generation_prompt = prompt.add_generation_prompt;
  options.variables = prompt.variables;
  options.now_unix_s =
      card_.created_unix_s +
      std::chrono::duration_cast<std::chrono::seconds>(clock_.now() - started_).count();
  std::string text;
  {
    const std::lock_guard lock(template_mutex_);
    TROUPE_ASSIGN(text, files_.chat_template->render(prompt.messages, prompt.tools, options));
  }
  return files_.tokenizer->encode(text);
}

Request NodeBackend::defaults() const {
  Request request;
  request.sampling = sampling_params({}, files_.generation.defaults);
  request.stop_tokens = files_.generation.stop_ids;
  return request;
}

Result<RequestId> NodeBackend::submit(Request request, RequestSink sink) {
  if (closed_) {
    return error(Kind::kDisconnected, "the server is shutting down: ask another one");
  }
  return node_.submit(std::move(request), std::move(sink));
}

}  // namespace troupe::deploy
