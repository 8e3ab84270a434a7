// Private to net/: JSON of clients, read within bounds, and JSON for them. Values are
// ordered_json: members keep the client's order, which reaches the chat template. Any thread.
#pragma once

#include "runtime/base/error.h"

#include <nlohmann/json.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace troupe::net {

using Json = nlohmann::ordered_json;

// What keeps a small body from becoming a big tree.
struct JsonBounds {
  std::size_t depth_max = 64;
  std::size_t members_max = 4096;       // of one object
  std::size_t containers_max = 65'536;  // objects and lists in all
  std::size_t texts_max = 262'144;      // keys and strings in all
};

// Errors: kInvalid says what is wrong and at which byte: not JSON, not UTF-8, a repeated key, a
// number out of range, or one of the bounds.
[[nodiscard]] Result<Json> parse_json(std::string_view text, const JsonBounds& bounds = {});

// One line; what is not UTF-8 becomes U+FFFD.
[[nodiscard]] std::string dump(const Json& value);

// A value as a message shows it: scalars as they are (long texts cut), the others by their kind.
[[nodiscard]] std::string shown(const Json& value);

// REQUIRES: a number without a fraction. Beyond 64 bits: the nearest bound.
[[nodiscard]] std::int64_t as_int64(const Json& number);

}  // namespace troupe::net
