#include "runtime/text/detokenizer.h"

#include "runtime/text/unicode.h"

#include <string_view>
#include <utility>

namespace troupe {
namespace {

// ED A0..BF can only become an (invalid) surrogate. It could be given up at once; Python's
// incremental decoder, with which other engines stream, looks at one more byte first, and streams
// are compared text by text.
bool starts_surrogate(std::string_view bytes) {
  return bytes.size() == 2 && bytes[0] == '\xED' && static_cast<std::uint8_t>(bytes[1]) >= 0xA0 &&
         static_cast<std::uint8_t>(bytes[1]) <= 0xBF;
}

}  // namespace

Detokenizer::Detokenizer(std::shared_ptr<const Tokenizer> tokenizer, bool skip_special)
    : tokenizer_(std::move(tokenizer)), skip_special_(skip_special) {
  TROUPE_CHECK(tokenizer_ != nullptr, "a tokenizer");
}

std::string Detokenizer::push(std::uint32_t id) {
  if (skip_special_ && tokenizer_->is_special(id)) {
    return {};
  }
  held_ += tokenizer_->bytes(id);
  std::string out;
  std::size_t at = 0;
  while (at < held_.size()) {
    const std::string_view rest = std::string_view(held_).substr(at);
    const Utf8Step step = utf8_step(rest);
    if (step.kind == Utf8Step::Kind::kIncomplete || starts_surrogate(rest)) {
      break;
    }
    out += step.kind == Utf8Step::Kind::kComplete ? rest.substr(0, step.length)
                                                  : kReplacementCharacter;
    at += step.length;
  }
  held_.erase(0, at);
  return out;
}

std::string Detokenizer::flush() {
  return replace_invalid_utf8(std::exchange(held_, {}));
}

}  // namespace troupe
