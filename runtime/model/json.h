// The JSON of a checkpoint's files, read without exceptions and hostile-safe: limited in size and
// depth, no key twice in an object. A ModelJson owns the tree; a JsonValue borrows a node of it.
// Private to runtime/model. Immutable; any thread.
//
// JS-1: a question put to a value of another type, or to an absent value, answers "no" or nothing;
// it never ends the
//       process.
#pragma once

#include "runtime/base/error.h"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace troupe {

inline constexpr std::uint32_t kMaxJsonDepth = 64;

class JsonValue final {
 public:
  JsonValue() = default;  // absent

  [[nodiscard]] bool exists() const { return node_ != nullptr; }
  [[nodiscard]] bool is_object() const;
  [[nodiscard]] bool is_array() const;
  [[nodiscard]] bool is_string() const;
  [[nodiscard]] bool is(std::string_view text) const;  // this very string

  [[nodiscard]] std::optional<std::uint64_t> integer()
      const;  // written as an integer, not negative, at most 64 bits
  [[nodiscard]] std::optional<double> number() const;
  [[nodiscard]] std::optional<bool> flag() const;
  [[nodiscard]] std::string string() const;  // empty for other types

  [[nodiscard]] JsonValue find(
      std::string_view key) const;  // a member that is null counts as absent
  [[nodiscard]] std::vector<std::pair<std::string, JsonValue>> members() const;  // by key
  [[nodiscard]] std::vector<JsonValue> elements() const;
  [[nodiscard]] std::string shown() const;  // as a message shows it: ASCII, at most 63 characters

 private:
  friend class ModelJson;
  explicit JsonValue(const void* node) : node_(node) {}

  const void* node_ = nullptr;  // of the parser's type, which only json.cc knows
};

class ModelJson final {
 public:
  // kInvalid: `file_name` is not an object in JSON, nests deeper than kMaxJsonDepth or repeats a
  // key (by spelling).
  [[nodiscard]] static Result<ModelJson> parse(std::string_view text, std::string_view file_name);
  // The same for a whole file of at most `limit` bytes.
  [[nodiscard]] static Result<ModelJson> read(const std::filesystem::path& path,
                                              std::string_view file_name,
                                              std::uint64_t limit);

  [[nodiscard]] JsonValue root() const { return JsonValue(tree_.get()); }

 private:
  std::shared_ptr<const void>
      tree_;  // shared only because it knows how to delete what it does not name
};

// The shortest decimal that reads back as `number`.
[[nodiscard]] std::string number_text(double number);

}  // namespace troupe
