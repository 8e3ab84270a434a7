#include "runtime/text/unicode.h"

#include "runtime/base/error.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <vector>

namespace troupe {
namespace {

// What a lead byte announces: how many bytes, and which second bytes are allowed (Unicode table
// 3-7).
struct Lead {
  std::size_t length = 0;  // 0: no lead byte
  std::uint8_t second_min = 0x80;
  std::uint8_t second_max = 0xBF;
};

Lead lead_of(std::uint8_t byte) {
  if (byte < 0x80) {
    return {1};
  }
  if (byte >= 0xC2 && byte <= 0xDF) {
    return {2};
  }
  if (byte >= 0xE0 && byte <= 0xEF) {
    const std::uint8_t low = byte == 0xE0 ? 0xA0 : 0x80;   // overlong
    const std::uint8_t high = byte == 0xED ? 0x9F : 0xBF;  // surrogates
    return {3, low, high};
  }
  if (byte >= 0xF0 && byte <= 0xF4) {
    const std::uint8_t low = byte == 0xF0 ? 0x90 : 0x80;   // overlong
    const std::uint8_t high = byte == 0xF4 ? 0x8F : 0xBF;  // above U+10FFFF
    return {4, low, high};
  }
  return {0};
}

bool is_ascii(std::string_view text) {
  return std::all_of(
      text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

bool is_printable_byte(std::uint32_t byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

// The alphabet in both directions. Bytes that are not printable take U+0100, U+0101, ... in
// ascending order.
struct Alphabet {
  std::array<char32_t, 256> code_points{};
  std::array<std::int16_t, 512> bytes{};

  constexpr Alphabet() { bytes.fill(-1); }
};

Alphabet make_alphabet() {
  Alphabet alphabet;
  char32_t next = 0x100;
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    const char32_t code_point = is_printable_byte(byte) ? static_cast<char32_t>(byte) : next++;
    alphabet.code_points[byte] = code_point;
    alphabet.bytes[code_point] = static_cast<std::int16_t>(byte);
  }
  return alphabet;
}

const Alphabet& alphabet() {
  static const Alphabet table = make_alphabet();
  return table;
}

// Canonical decomposition, marks not yet in order.
std::vector<utf8proc_int32_t> decompose(std::string_view text) {
  std::vector<utf8proc_int32_t> out;
  out.reserve(text.size());
  std::array<utf8proc_int32_t, 32> parts{};
  int boundary = 0;
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Step step = utf8_step(text.substr(at));
    const auto count = utf8proc_decompose_char(
        static_cast<utf8proc_int32_t>(step.code_point),
        parts.data(),
        static_cast<utf8proc_ssize_t>(parts.size()),
        static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE),
        &boundary);
    TROUPE_CHECK(count >= 1 && static_cast<std::size_t>(count) <= parts.size(),
                 "a code point decomposes into few");
    out.insert(out.end(), parts.begin(), parts.begin() + count);
    at += step.length;
  }
  return out;
}

}  // namespace

Utf8Step utf8_step(std::string_view bytes) {
  using Is = Utf8Step::Kind;
  const auto at = [bytes](std::size_t i) { return static_cast<std::uint8_t>(bytes[i]); };
  const Lead lead = lead_of(at(0));
  if (lead.length == 0) {
    return {Is::kInvalid, 1, 0};
  }
  if (lead.length == 1) {
    return {Is::kComplete, 1, at(0)};
  }
  char32_t code_point = at(0) & (0x7FU >> lead.length);
  for (std::size_t i = 1; i < lead.length; ++i) {
    if (i == bytes.size()) {
      return {Is::kIncomplete, i, 0};
    }
    const std::uint8_t low = i == 1 ? lead.second_min : 0x80;
    const std::uint8_t high = i == 1 ? lead.second_max : 0xBF;
    if (at(i) < low || at(i) > high) {
      return {Is::kInvalid, i, 0};
    }
    code_point = (code_point << 6U) | (at(i) & 0x3FU);
  }
  return {Is::kComplete, lead.length, code_point};
}

bool is_utf8(std::string_view bytes) {
  for (std::size_t at = 0; at < bytes.size();) {
    const Utf8Step step = utf8_step(bytes.substr(at));
    if (step.kind != Utf8Step::Kind::kComplete) {
      return false;
    }
    at += step.length;
  }
  return true;
}

std::string replace_invalid_utf8(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size());
  for (std::size_t at = 0; at < bytes.size();) {
    const Utf8Step step = utf8_step(bytes.substr(at));
    out += step.kind == Utf8Step::Kind::kComplete ? bytes.substr(at, step.length)
                                                  : kReplacementCharacter;
    at += step.length;
  }
  return out;
}

void append_utf8(std::string& out, char32_t code_point) {
  std::array<utf8proc_uint8_t, 4> bytes{};
  const auto length = utf8proc_encode_char(static_cast<utf8proc_int32_t>(code_point), bytes.data());
  for (utf8proc_ssize_t i = 0; i < length; ++i) {
    out.push_back(static_cast<char>(bytes[static_cast<std::size_t>(i)]));
  }
}

std::string compose_nfc(std::string_view text) {
  if (is_ascii(text)) {
    return std::string(text);
  }
  std::vector<utf8proc_int32_t> points = decompose(text);

  // utf8proc orders marks by exchanging neighbours, which is quadratic in a run of marks; so runs
  // are sorted here.
  const auto mark_class = [](utf8proc_int32_t point) {
    return utf8proc_get_property(point)->combining_class;
  };
  const auto by_class = [&mark_class](utf8proc_int32_t a, utf8proc_int32_t b) {
    return mark_class(a) < mark_class(b);
  };
  const auto is_mark = [&mark_class](utf8proc_int32_t point) { return mark_class(point) != 0; };
  for (auto run = points.begin(); run != points.end();) {
    run = std::find_if(run, points.end(), is_mark);
    const auto end = std::find_if_not(run, points.end(), is_mark);
    std::stable_sort(run, end, by_class);
    run = end;
  }

  const auto length =
      utf8proc_normalize_utf32(points.data(),
                               static_cast<utf8proc_ssize_t>(points.size()),
                               static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  TROUPE_CHECK(length >= 0, "composing well-formed text succeeds");
  std::string out;
  out.reserve(text.size());
  for (utf8proc_ssize_t i = 0; i < length; ++i) {
    append_utf8(out, static_cast<char32_t>(points[static_cast<std::size_t>(i)]));
  }
  return out;
}

std::optional<std::string> bytes_of_alphabet(std::string_view text) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Step step = utf8_step(text.substr(at));
    if (step.kind != Utf8Step::Kind::kComplete || step.code_point >= alphabet().bytes.size() ||
        alphabet().bytes[step.code_point] < 0) {
      return std::nullopt;
    }
    out.push_back(static_cast<char>(alphabet().bytes[step.code_point]));
    at += step.length;
  }
  return out;
}

std::string alphabet_of_byte(std::uint8_t byte) {
  std::string out;
  append_utf8(out, alphabet().code_points[byte]);
  return out;
}

}  // namespace troupe
