#include "runtime/text/splitter.h"

#include <pcre2.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace troupe {
namespace {

constexpr std::size_t kPatternBytesMax = 16384;
constexpr std::size_t kJitStackBytesMin = 32UL << 10U;
constexpr std::size_t kJitStackBytesMax = 64UL << 20U;
constexpr std::uint32_t kHeapKibMax = 1U << 20U;
constexpr std::uint32_t kMatchStepsMax =
    50'000'000;  // one megabyte in one piece takes about a million

struct Free {
  void operator()(pcre2_code* p) const { pcre2_code_free(p); }
  void operator()(pcre2_match_data* p) const { pcre2_match_data_free(p); }
  void operator()(pcre2_match_context* p) const { pcre2_match_context_free(p); }
  void operator()(pcre2_jit_stack* p) const { pcre2_jit_stack_free(p); }
};
template <class T>
using Owned = std::unique_ptr<T, Free>;

std::string message_of(int code) {
  std::array<PCRE2_UCHAR, 256> text{};
  pcre2_get_error_message(code, text.data(), text.size());
  return reinterpret_cast<const char*>(text.data());
}

// Writes \s and \S out as Unicode White_Space. PCRE2's own \s also takes U+180E, which stopped
// being a space in Unicode 6.3 and which the tokenizers that made the vocabulary treat as a
// letter-like mark. \S inside a class stays PCRE2's.
std::string with_unicode_spaces(std::string_view pattern) {
  constexpr std::string_view kSpaces = R"(\x{9}-\x{d}\x{85}\p{Z})";
  std::string out;
  bool in_class = false;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    const char c = pattern[i];
    if (c == '\\' && i + 1 < pattern.size()) {
      const char escaped = pattern[++i];
      if (escaped == 's') {
        out += in_class ? std::string(kSpaces) : "[" + std::string(kSpaces) + "]";
      } else if (escaped == 'S' && !in_class) {
        out += "[^" + std::string(kSpaces) + "]";
      } else {
        out += {c, escaped};
      }
      continue;
    }
    if (c == '[' && !in_class) {
      in_class = true;
    } else if (c == ']') {
      in_class = false;
    }
    out.push_back(c);
  }
  return out;
}

}  // namespace

struct Splitter::Code {
  Owned<pcre2_code> code;
};

Splitter::Splitter(std::unique_ptr<Code> code) : code_(std::move(code)) {}
Splitter::~Splitter() = default;

Result<std::unique_ptr<Splitter>> Splitter::open(std::string_view pattern) {
  if (pattern.empty() || pattern.size() > kPatternBytesMax) {
    return error(Kind::kInvalid,
                 "a pattern of " + std::to_string(pattern.size()) + " bytes; expected 1 to " +
                     std::to_string(kPatternBytesMax));
  }
  const std::string written = with_unicode_spaces(pattern);
  int code = 0;
  std::size_t at = 0;
  auto compiled = std::make_unique<Code>();
  compiled->code.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(written.data()),
                                     written.size(),
                                     PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C,
                                     &code,
                                     &at,
                                     nullptr));
  if (compiled->code == nullptr) {
    return error(Kind::kInvalid,
                 message_of(code) + ", near \"" +
                     written.substr(at > 8 ? at - 8 : 0, at > 8 ? 8 : at) + "\"");
  }
  // Without JIT (forbidden on some systems) the interpreter does the same, slower.
  (void)pcre2_jit_compile(compiled->code.get(), PCRE2_JIT_COMPLETE);
  return std::unique_ptr<Splitter>(new Splitter(std::move(compiled)));
}

Status Splitter::split(std::string_view text, std::vector<std::string_view>& pieces) const {
  const Owned<pcre2_match_data> data(pcre2_match_data_create(1, nullptr));
  const Owned<pcre2_match_context> context(pcre2_match_context_create(nullptr));
  const Owned<pcre2_jit_stack> stack(
      pcre2_jit_stack_create(kJitStackBytesMin, kJitStackBytesMax, nullptr));
  TROUPE_CHECK(data != nullptr && context != nullptr, "memory for matching");
  pcre2_set_match_limit(context.get(), kMatchStepsMax);
  pcre2_set_heap_limit(context.get(), kHeapKibMax);
  if (stack != nullptr) {  // null where PCRE2 was built without JIT
    pcre2_jit_stack_assign(context.get(), nullptr, stack.get());
  }

  std::size_t done = 0;
  while (done < text.size()) {
    // An empty match would not advance, so it is no match.
    const int found = pcre2_match(code_->code.get(),
                                  reinterpret_cast<PCRE2_SPTR>(text.data()),
                                  text.size(),
                                  done,
                                  PCRE2_NO_UTF_CHECK | PCRE2_NOTEMPTY,
                                  data.get(),
                                  context.get());
    if (found == PCRE2_ERROR_NOMATCH) {
      break;
    }
    const std::size_t* range = pcre2_get_ovector_pointer(data.get());
    if (found < 0 || range[0] < done || range[1] <= range[0]) {
      const std::string reason = found < 0 ? message_of(found) : "a match outside of its range";
      return error(Kind::kInvalid,
                   "splitting " + std::to_string(text.size()) + " bytes of text failed at byte " +
                       std::to_string(done) + ": " + reason +
                       "; the model's pre-tokenizer pattern is at fault");
    }
    if (range[0] > done) {
      pieces.push_back(text.substr(done, range[0] - done));
    }
    pieces.push_back(text.substr(range[0], range[1] - range[0]));
    done = range[1];
  }
  if (done < text.size()) {
    pieces.push_back(text.substr(done));
  }
  return {};
}

}  // namespace troupe
