// Private to net/: tokens with their log probabilities in the shapes of the two routes, and the
// text of a token that may be a part of a character.
#pragma once

#include "net/openai.h"
#include "net/openai_json.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace troupe::net {

// Counts the characters of a text that comes in pieces of any size, as a decoder would give them
// out: one for each broken sequence.
class CharacterCount final {
 public:
  void feed(std::string_view bytes);
  [[nodiscard]] std::size_t complete() const { return complete_; }  // characters that have ended
  [[nodiscard]] bool whole() const { return missing_ == 0 && !broken_; }  // all was valid UTF-8

 private:
  void feed(std::uint8_t byte);

  std::size_t complete_ = 0;
  int missing_ = 0;          // bytes of the character that has begun
  std::uint8_t low_ = 0x80;  // what its next byte may be
  std::uint8_t high_ = 0xbf;
  bool broken_ = false;
};

// {"tokens", "token_logprobs", "top_logprobs", "text_offset"} of a completion. A token that is not
// whole characters is shown as "bytes:\xe2\x80", OpenAI's form: so two of them stay two keys.
class CompletionLogprobs final {
 public:
  // The first token of a prompt has none: null.
  void add(const TokenOutput& token, const ModelBackend& backend, bool has_logprob);
  [[nodiscard]] bool empty() const { return tokens_.empty(); }
  [[nodiscard]] Json take();  // what was added since the last time

 private:
  CharacterCount text_;
  Json tokens_ = Json::array();
  Json logprobs_ = Json::array();
  Json tops_ = Json::array();
  Json offsets_ = Json::array();
};

// An entry of a chat's logprobs.content.
[[nodiscard]] Json chat_logprob(const TokenOutput& token, const ModelBackend& backend);

}  // namespace troupe::net
