// Text to token ids and back, as the tokenizer.json of a Hugging Face model says: byte-level BPE
// behind added tokens, NFC and a splitting pattern. Immutable after loading and shared:
// `shared_ptr<const Tokenizer>` may be used from any thread.
//
// TK-1: added tokens are cut out of the raw text; the rest is composed, split, spelled and merged.
// TK-2: any bytes can be encoded; what is not UTF-8 becomes U+FFFD, one per maximal subpart.
// TK-3: with the patterns of the Qwen family, encoding n bytes of any text costs O(n log n).
#pragma once

#include "runtime/base/error.h"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

// How Qwen2, Qwen3 and Qwen3-Next split, and how Qwen3.5 and later do (combining marks stay with
// their letters).
inline constexpr std::string_view kQwen2Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
inline constexpr std::string_view kQwen35Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

class JsonDocument;

struct TokenizerOptions {
  std::string pattern;  // instead of the files'; empty: the files'
};

struct EncodeOptions {
  bool parse_special = true;  // false: "<|im_end|>" in the text is plain text like any other
};

class Tokenizer final {
 public:
  static constexpr std::size_t kTextBytesMax = 256UL << 20U;

  // Reads tokenizer.json, tokenizer_config.json (may be absent) and, to know the family,
  // config.json (may be absent): folders of Qwen3.5 that were saved again with the Qwen2 pattern
  // get the Qwen3.5 one, as in Hugging Face's own class. kInvalid: missing or malformed.
  // kUnsupported: a tokenizer of another kind.
  [[nodiscard]] static Result<std::shared_ptr<const Tokenizer>> open(
      const std::filesystem::path& directory, const TokenizerOptions& options = {});
  // The same from texts; an empty config stands for none.
  [[nodiscard]] static Result<std::shared_ptr<const Tokenizer>> parse(
      std::string_view tokenizer_json,
      std::string_view tokenizer_config_json = {},
      const TokenizerOptions& options = {});
  ~Tokenizer();
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  // kInvalid: more than kTextBytesMax bytes, or a pattern that backtracks without end on this text.
  [[nodiscard]] Result<std::vector<std::uint32_t>> encode(std::string_view text,
                                                          const EncodeOptions& options = {}) const;

  // Always UTF-8: broken bytes become U+FFFD. Ids without a token (models have more rows than
  // tokens) give nothing.
  [[nodiscard]] std::string decode(std::span<const std::uint32_t> ids,
                                   bool skip_special = false) const;

  // The bytes of one token, possibly a part of a character; empty for an id without a token.
  [[nodiscard]] std::string_view bytes(std::uint32_t id) const;

  [[nodiscard]] std::uint32_t vocab_size() const;  // the highest id + 1
  // The id of an added token with this content, else of the BPE token with these bytes.
  [[nodiscard]] std::optional<std::uint32_t> id_of(std::string_view text) const;
  [[nodiscard]] bool is_added(std::uint32_t id) const;
  // An added control token; "<think>" is added, but not special.
  [[nodiscard]] bool is_special(std::uint32_t id) const;
  [[nodiscard]] const std::string& pattern() const;

 private:
  struct Parts;
  [[nodiscard]] static Result<std::shared_ptr<const Tokenizer>> make(
      const JsonDocument& tokenizer,
      const JsonDocument* config,
      const TokenizerOptions& options,
      bool qwen35);
  explicit Tokenizer(std::unique_ptr<const Parts> parts);

  std::unique_ptr<const Parts> parts_;
};

}  // namespace troupe
