// Private to net/: JSON Schema, as much of it as our API needs. The schema that checks a request is
// the one that /openapi.json shows, so the document cannot differ from what the server does.
// Immutable; any thread.
#pragma once

#include "net/openai_json.h"

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace troupe::net {

// Schemas as JSON. Objects refuse members that they do not name.
namespace schema {

inline constexpr std::size_t kAny = std::numeric_limits<std::size_t>::max();

[[nodiscard]] Json boolean();
[[nodiscard]] Json integer(std::int64_t low, std::int64_t high);
[[nodiscard]] Json number(double low, double high);
[[nodiscard]] Json text(std::size_t characters_min = 0, std::size_t characters_max = kAny);
[[nodiscard]] Json list(Json items, std::size_t count_min = 0, std::size_t count_max = kAny);
[[nodiscard]] Json only(std::initializer_list<Json> values);
[[nodiscard]] Json any_of(std::vector<Json> schemas);
[[nodiscard]] Json object(std::initializer_list<std::pair<std::string, Json>> members,
                          std::initializer_list<std::string> required = {});
[[nodiscard]] Json any_object();            // with any members
[[nodiscard]] Json by_token_id(Json each);  // an object whose keys are token ids as text
[[nodiscard]] Json or_null(Json schema);

}  // namespace schema

struct Violation {
  std::string path;  // "messages[0].content"; empty: the whole value
  std::string message;
  std::string_view code;  // OpenAI's: "invalid_type", "invalid_value", "unknown_parameter", ...
};

class Schema final {
 public:
  explicit Schema(const Json& json);  // REQUIRES: made by the functions above

  // Empty: `value` fits.
  [[nodiscard]] std::optional<Violation> check(const Json& value) const;

 private:
  struct Place;  // where a value stands in the whole
  struct Member;

  [[nodiscard]] bool has_type_of(const Json& value) const;
  [[nodiscard]] bool in_bounds(const Json& value) const;
  [[nodiscard]] std::string words() const;
  [[nodiscard]] Violation refuse(const Json& value,
                                 const Place& place,
                                 std::string_view code) const;
  [[nodiscard]] std::optional<Violation> check_at(const Json& value,
                                                  const Place& place,
                                                  std::size_t& passed) const;
  [[nodiscard]] std::optional<Violation> check_any(const Json& value,
                                                   const Place& place,
                                                   std::size_t& passed) const;
  [[nodiscard]] std::optional<Violation> check_members(const Json& value,
                                                       const Place& place,
                                                       std::size_t& passed) const;
  [[nodiscard]] const Schema* member(std::string_view name) const;

  std::uint32_t types_ = 0;  // a bit for each; 0: any
  std::vector<Json> values_;
  Json low_, high_;  // numbers, or null
  std::size_t count_min_ = 0;
  std::size_t count_max_ = schema::kAny;  // characters or items
  std::vector<Schema> any_of_;
  std::vector<Schema> items_;  // none or one
  std::vector<std::pair<std::string, Schema>> members_;
  std::vector<std::string> required_;
  bool open_ = true;            // members that are not named are allowed
  std::vector<Schema> others_;  // none or one: what those must fit
  bool token_keys_ = false;
};

}  // namespace troupe::net
