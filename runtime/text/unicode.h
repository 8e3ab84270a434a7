// UTF-8 as the tokenizer and the detokeniser need it: one rule for broken bytes (U+FFFD per maximal
// subpart, as in Unicode 3.9), composition (NFC), and the printable alphabet in which byte-level
// BPE files spell bytes. Pure functions; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace troupe {

inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";

struct Utf8Step {
  enum class Kind : std::uint8_t {
    kComplete,    // one well-formed code point
    kInvalid,     // a maximal subpart that no following byte can repair
    kIncomplete,  // well-formed so far, but the bytes end
  };
  Kind kind = Kind::kComplete;
  std::size_t length = 0;   // bytes that belong to it, 1 to 4
  char32_t code_point = 0;  // kComplete only
};

// Looks at the start of `bytes`. REQUIRES: not empty.
[[nodiscard]] Utf8Step utf8_step(std::string_view bytes);

// True if `bytes` is well-formed UTF-8.
[[nodiscard]] bool is_utf8(std::string_view bytes);

// `bytes` with every maximal subpart that is not well-formed (also one at the end) replaced by
// U+FFFD.
[[nodiscard]] std::string replace_invalid_utf8(std::string_view bytes);

void append_utf8(std::string& out, char32_t code_point);

// Normalization form C. n log n in the worst case, however many combining marks follow each other.
// REQUIRES: well-formed UTF-8.
[[nodiscard]] std::string compose_nfc(std::string_view text);

// The bytes that a vocabulary entry stands for: each of its characters is one byte's stand-in (a
// printable byte is itself, the others are U+0100 and up in order). nullopt if some character is no
// stand-in.
[[nodiscard]] std::optional<std::string> bytes_of_alphabet(std::string_view text);

// The stand-in of a byte, as UTF-8.
[[nodiscard]] std::string alphabet_of_byte(std::uint8_t byte);

}  // namespace troupe
