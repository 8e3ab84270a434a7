// A conversation to the prompt text a model was trained on: the Jinja template beside the model,
// rendered. Owned by the gateway; one thread.
//
// CT-1: loading renders a small conversation, so a template that needs what the engine lacks is
//       refused with the model, not at the first request.
// CT-2: client JSON is bounded (depth, members of an object) before anything is built from it.
// CT-3: the order of members is kept from the client's JSON to the prompt.
#pragma once

#include "runtime/base/error.h"

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace troupe {

struct ChatMessage {
  std::string role;
  std::string content;
};

struct ChatOptions {
  bool add_generation_prompt = true;
  std::string variables;        // a JSON object of more variables (enable_thinking ...), or empty
  std::int64_t now_unix_s = 0;  // what strftime_now() shows, in UTC
};

class ChatTemplate final {
 public:
  // Where the template is looked for: chat_template.jinja, tokenizer_config.json (a text, or a list
  // of named ones: "default", and "tool_use" when tools are given), chat_template.json. A model
  // without any can be opened; only render() then fails.
  //
  // kInvalid: a malformed file. kUnsupported: a template the engine cannot parse or render.
  [[nodiscard]] static Result<std::unique_ptr<const ChatTemplate>> open(
      const std::filesystem::path& directory);
  // From the text of one template; `name` is what messages call it.
  [[nodiscard]] static Result<std::unique_ptr<const ChatTemplate>> parse(std::string_view source,
                                                                         std::string name);
  ~ChatTemplate();
  ChatTemplate(const ChatTemplate&) = delete;
  ChatTemplate& operator=(const ChatTemplate&) = delete;

  // False: the model has no template.
  [[nodiscard]] bool exists() const;
  // The text of the template that is used without tools; empty: none.
  [[nodiscard]] const std::string& source() const;
  // "eos_token", "bos_token", "pad_token" or "unk_token" of tokenizer_config.json; empty: none.
  [[nodiscard]] std::string special_token(const std::string& name) const;

  // `messages`: a JSON list of objects with a role. `tools`: a JSON list, or empty. Arguments of
  // tool calls that are JSON in a text, as in OpenAI's API, are parsed before rendering.
  //
  // kInvalid: malformed input, or the template refuses it (its own words are in the message).
  // kUnsupported: no template.
  [[nodiscard]] Result<std::string> render(std::string_view messages,
                                           std::string_view tools = {},
                                           const ChatOptions& options = {}) const;
  [[nodiscard]] Result<std::string> render(std::span<const ChatMessage> messages,
                                           const ChatOptions& options = {}) const;

 private:
  struct Parts;
  explicit ChatTemplate(std::unique_ptr<Parts> parts);

  std::unique_ptr<Parts> parts_;
};

}  // namespace troupe
