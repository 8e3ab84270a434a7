// Cuts text into the pieces that BPE then encodes one by one, by the regular expression a model
// brings along. PCRE2 with JIT is used because the pattern comes from a file; a hand-written
// matcher would be right for one pattern only. Immutable; any thread.
//
// SP-1: the pieces are not empty, in order, and add up to the text; what the pattern does not match
// is a piece of its own.
#pragma once

#include "runtime/base/error.h"

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

class Splitter final {
 public:
  // kInvalid: the pattern does not compile; the message says why and where.
  [[nodiscard]] static Result<std::unique_ptr<Splitter>> open(std::string_view pattern);
  ~Splitter();
  Splitter(const Splitter&) = delete;
  Splitter& operator=(const Splitter&) = delete;

  // Appends views into `text`. kInvalid: matching needed more steps than allowed (a pattern that
  // backtracks too much). REQUIRES: `text` is well-formed UTF-8.
  [[nodiscard]] Status split(std::string_view text, std::vector<std::string_view>& pieces) const;

 private:
  struct Code;
  explicit Splitter(std::unique_ptr<Code> code);

  std::unique_ptr<Code> code_;
};

}  // namespace troupe
