#include "net/openai_logprobs.h"

#include <array>
#include <utility>

namespace troupe::net {

namespace {

constexpr double kLeastLogprob = -9999;  // JSON has no infinity; vLLM's choice too

double finite(float logprob) {
  const auto value = static_cast<double>(logprob);
  return value > kLeastLogprob ? value : kLeastLogprob;  // a NaN too
}

std::string completion_text(const std::string& bytes) {
  CharacterCount text;
  text.feed(bytes);
  if (text.whole()) {
    return bytes;
  }
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string shown = "bytes:";
  for (const char c : bytes) {
    const auto byte = static_cast<std::uint8_t>(c);
    shown += {'\\', 'x', kDigits[byte >> 4U], kDigits[byte & 15U]};
  }
  return shown;
}

Json chat_token(std::uint32_t token, float logprob, const ModelBackend& backend) {
  const std::string bytes = backend.token_bytes(token);
  Json numbers = Json::array();
  for (const char c : bytes) {
    numbers.push_back(static_cast<std::uint8_t>(c));
  }
  Json entry;
  entry["token"] = bytes;  // dump() shows U+FFFD for a part of a character
  entry["logprob"] = finite(logprob);
  entry["bytes"] = std::move(numbers);
  return entry;
}

}  // namespace

void CharacterCount::feed(std::string_view bytes) {
  for (const char c : bytes) {
    feed(static_cast<std::uint8_t>(c));
  }
}

void CharacterCount::feed(std::uint8_t byte) {
  if (missing_ > 0) {
    if (byte >= low_ && byte <= high_) {
      low_ = 0x80;
      high_ = 0xbf;
      complete_ += --missing_ == 0 ? 1 : 0;
      return;
    }
    missing_ = 0;  // the byte begins something else
    broken_ = true;
    ++complete_;
  }
  low_ = byte == 0xe0 ? 0xa0 : byte == 0xf0 ? 0x90 : 0x80;
  high_ = byte == 0xed ? 0x9f : byte == 0xf4 ? 0x8f : 0xbf;
  if (byte >= 0xc2 && byte <= 0xdf) {
    missing_ = 1;
  } else if (byte >= 0xe0 && byte <= 0xef) {
    missing_ = 2;
  } else if (byte >= 0xf0 && byte <= 0xf4) {
    missing_ = 3;
  } else {
    broken_ = broken_ || byte >= 0x80;
    ++complete_;
  }
}

void CompletionLogprobs::add(const TokenOutput& token,
                             const ModelBackend& backend,
                             bool has_logprob) {
  const std::string bytes = backend.token_bytes(token.token);
  const std::string shown = completion_text(bytes);
  offsets_.push_back(text_.complete());
  text_.feed(bytes);
  tokens_.push_back(shown);
  if (!has_logprob) {
    logprobs_.push_back(nullptr);
    tops_.push_back(nullptr);
    return;
  }
  logprobs_.push_back(finite(token.logprob));
  Json top = Json::object();
  for (const auto& [id, value] : token.top) {
    top.emplace(completion_text(backend.token_bytes(id)), finite(value));  // the likelier one stays
  }
  top.emplace(shown, finite(token.logprob));
  tops_.push_back(std::move(top));
}

Json CompletionLogprobs::take() {
  Json json;
  json["tokens"] = std::exchange(tokens_, Json::array());
  json["token_logprobs"] = std::exchange(logprobs_, Json::array());
  json["top_logprobs"] = std::exchange(tops_, Json::array());
  json["text_offset"] = std::exchange(offsets_, Json::array());
  return json;
}

Json chat_logprob(const TokenOutput& token, const ModelBackend& backend) {
  Json entry = chat_token(token.token, token.logprob, backend);
  entry["top_logprobs"] = Json::array();
  for (const auto& [id, value] : token.top) {
    entry["top_logprobs"].push_back(chat_token(id, value, backend));
  }
  return entry;
}

}  // namespace troupe::net
