// Typed, checked access to the keys of a config.json. Private to runtime/model; borrows the
// document; one thread.
//
// KE-1: a key is looked for in the text part, then at the top level; null counts as absent (MODEL
// rule for nested
//       configs).
#pragma once

#include "runtime/base/error.h"
#include "runtime/model/config.h"
#include "runtime/model/json.h"
#include "runtime/model/message.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace troupe {

// Far above every known model, low enough that no product of two of them overflows where rows are
// counted in 32 bits.
inline constexpr std::uint32_t kMaxVocabulary = 1U << 24;
inline constexpr std::uint32_t kMaxWidth = 1U << 17;
inline constexpr std::uint32_t kMaxLayers = 1024;
inline constexpr std::uint32_t kMaxHeads = 1024;
inline constexpr std::uint32_t kMaxHeadDim = 4096;
inline constexpr std::uint32_t kMaxExperts = 8192;
inline constexpr std::uint32_t kMaxContext = 1U << 30;

struct Range {
  std::uint32_t low = 0;
  std::uint32_t high = 0;
};

class ConfigKeys final {
 public:
  ConfigKeys(JsonValue top, JsonValue text, std::string_view file)
      : top_(top), text_(text), file_(file) {}

  [[nodiscard]] JsonValue top() const { return top_; }
  [[nodiscard]] JsonValue text() const { return text_; }
  [[nodiscard]] JsonValue find(std::string_view key) const {
    const JsonValue inner = text_.find(key);
    return inner.exists() ? inner : top_.find(key);
  }

  template <class... Parts>
  [[nodiscard]] tl::unexpected<Error> fail(Kind kind, const Parts&... parts) const {
    return error(kind, message(file_, ": ", parts...));
  }
  [[nodiscard]] tl::unexpected<Error> missing(std::string_view key) const {
    return fail(Kind::kInvalid, key, " is missing");
  }
  [[nodiscard]] tl::unexpected<Error> wrong(std::string_view key,
                                            JsonValue value,
                                            std::string_view expected) const {
    return fail(Kind::kInvalid, key, " is ", value.shown(), ", expected ", expected);
  }

  // The value as a T in the range, or kInvalid under the name `key`.
  [[nodiscard]] Result<std::uint32_t> integer_of(std::string_view key,
                                                 JsonValue value,
                                                 Range range) const {
    const auto number = value.integer();
    if (number && *number >= range.low && *number <= range.high) {
      return static_cast<std::uint32_t>(*number);
    }
    return wrong(key, value, message("an integer from ", range.low, " to ", range.high));
  }
  [[nodiscard]] Result<double> number_of(std::string_view key,
                                         JsonValue value,
                                         double low,
                                         double high) const {
    const auto number = value.number();
    if (number && *number >= low && *number <= high) {  // false for NaN
      return *number;
    }
    return wrong(
        key, value, message("a number from ", number_text(low), " to ", number_text(high)));
  }
  [[nodiscard]] Result<bool> flag_of(std::string_view key, JsonValue value) const {
    if (const auto flag = value.flag()) {
      return *flag;
    }
    return wrong(key, value, "true or false");
  }

  // The key's value; `fallback` where the key is absent, kInvalid where there is no fallback.
  [[nodiscard]] Result<std::uint32_t> integer(
      std::string_view key,
      Range range,
      std::optional<std::uint32_t> fallback = std::nullopt) const {
    const JsonValue value = find(key);
    if (value.exists()) {
      return integer_of(key, value, range);
    }
    return fallback ? Result<std::uint32_t>(*fallback) : missing(key);
  }
  [[nodiscard]] Result<bool> flag(std::string_view key, bool fallback) const {
    const JsonValue value = find(key);
    return value.exists() ? flag_of(key, value) : fallback;
  }

 private:
  JsonValue top_;
  JsonValue text_;
  std::string_view file_;
};

// Fills config.rope and stretches config.max_position_embeddings where YaRN promises more
// (rope.cc).
[[nodiscard]] Status read_rope(const ConfigKeys& keys, ModelConfig& config);

}  // namespace troupe
