// Token ids to text, one at a time, for streaming: tells what can be shown now. Owned by the
// sequence it serves; one thread.
//
// DT-1: every returned text is whole UTF-8; a character is never split over two of them.
// DT-2: all returned texts together, with flush(), equal Tokenizer::decode of all ids.
// DT-3: at most 3 bytes are held back.
#pragma once

#include "runtime/text/tokenizer.h"

#include <cstdint>
#include <memory>
#include <string>

namespace troupe {

class Detokenizer final {
 public:
  explicit Detokenizer(std::shared_ptr<const Tokenizer> tokenizer, bool skip_special = false);

  // What this token completes, possibly nothing.
  [[nodiscard]] std::string push(std::uint32_t id);

  // At the end of the sequence: U+FFFD for a character that was left incomplete, else nothing. Then
  // the object is as new.
  [[nodiscard]] std::string flush();

 private:
  std::shared_ptr<const Tokenizer> tokenizer_;
  bool skip_special_;
  std::string held_;  // the start of a character
};

}  // namespace troupe
