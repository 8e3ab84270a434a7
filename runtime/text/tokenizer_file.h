// tokenizer.json and tokenizer_config.json of a Hugging Face model, checked and brought into the
// form that encoding needs. A plain value, made once at load.
//
// TF-1: ids are unique, tokens[id] is empty exactly for an id that names no token, merges and
//       byte_ids name existing tokens.
// TF-2: whatever the files ask for that we would do differently is refused, never ignored.
#pragma once

#include "runtime/base/error.h"
#include "runtime/text/added_tokens.h"
#include "runtime/text/bpe.h"

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

inline constexpr std::uint32_t kTokenIdMax =
    (1U << 22U) - 1;  // 16 times the largest vocabulary known
inline constexpr std::size_t kAddedTokenBytesMax = 1024;

class JsonDocument;

struct TokenizerFile {
  std::vector<std::string> tokens;            // by id: the bytes it decodes to
  std::array<std::uint32_t, 256> byte_ids{};  // by byte: the id BPE starts from
  std::vector<Merge> merges;                  // by rank
  std::vector<AddedToken> added;              // by id, ascending; also in `tokens`
  std::string pattern;                        // the pre-tokenizer's
  bool nfc = false;
};

// `config` (tokenizer_config.json) may be null. kInvalid: malformed. kUnsupported: a tokenizer of
// another kind.
[[nodiscard]] Result<TokenizerFile> read_tokenizer_file(const JsonDocument& tokenizer,
                                                        const JsonDocument* config);

}  // namespace troupe
