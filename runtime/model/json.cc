#include "runtime/model/json.h"

#include "runtime/model/message.h"

#include <nlohmann/json.hpp>

#include <array>
#include <charconv>
#include <fstream>
#include <system_error>
#include <unordered_set>

namespace troupe {
namespace {

using Json = nlohmann::json;

const Json& tree(const void* node) {
  return *static_cast<const Json*>(node);
}

struct Scope {
  bool object = false;
  std::unordered_set<std::string_view> keys;
};

bool is_space(char c) {
  return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

// The index after the closing quote of the string that starts at `at`, or the end of the text.
std::size_t string_end(std::string_view text, std::size_t at) {
  for (std::size_t i = at + 1; i < text.size(); ++i) {
    if (text[i] == '\\') {
      ++i;
    } else if (text[i] == '"') {
      return i + 1;
    }
  }
  return text.size();
}

bool is_key(std::string_view text, std::size_t after_string) {
  while (after_string < text.size() && is_space(text[after_string])) {
    ++after_string;
  }
  return after_string < text.size() && text[after_string] == ':';
}

// Nesting and repeated keys only; the parser checks the rest of the grammar.
Status check_text(std::string_view text, std::string_view file_name) {
  std::vector<Scope> open;
  for (std::size_t i = 0; i < text.size();) {
    const char c = text[i];
    if (c == '"') {
      const std::size_t end = string_end(text, i);
      if (!open.empty() && open.back().object && is_key(text, end)) {
        const std::string_view key = text.substr(i + 1, end - i - 2);
        if (!open.back().keys.insert(key).second) {
          return error(Kind::kInvalid,
                       message(file_name, ": key \"", key, "\" appears twice in one object"));
        }
      }
      i = end;
      continue;
    }
    if (c == '{' || c == '[') {
      open.push_back({.object = c == '{', .keys = {}});
      if (open.size() > kMaxJsonDepth) {
        return error(
            Kind::kInvalid,
            message(file_name, ": JSON nested deeper than ", kMaxJsonDepth, " levels at byte ", i));
      }
    } else if ((c == '}' || c == ']') && !open.empty()) {
      open.pop_back();
    }
    ++i;
  }
  return {};
}

}  // namespace

bool JsonValue::is_object() const {
  return exists() && tree(node_).is_object();
}

bool JsonValue::is_array() const {
  return exists() && tree(node_).is_array();
}

bool JsonValue::is_string() const {
  return exists() && tree(node_).is_string();
}

bool JsonValue::is(std::string_view text) const {
  return is_string() && tree(node_).get_ref<const std::string&>() == text;
}

std::optional<std::uint64_t> JsonValue::integer() const {
  if (!exists() || !tree(node_).is_number_unsigned()) {
    return std::nullopt;
  }
  return tree(node_).get<std::uint64_t>();
}

std::optional<double> JsonValue::number() const {
  if (!exists() || !tree(node_).is_number()) {
    return std::nullopt;
  }
  return tree(node_).get<double>();
}

std::optional<bool> JsonValue::flag() const {
  if (!exists() || !tree(node_).is_boolean()) {
    return std::nullopt;
  }
  return tree(node_).get<bool>();
}

std::string JsonValue::string() const {
  return is_string() ? tree(node_).get<std::string>() : "";
}

JsonValue JsonValue::find(std::string_view key) const {
  if (!is_object()) {
    return {};
  }
  const auto found = tree(node_).find(key);
  return found == tree(node_).end() || found->is_null() ? JsonValue() : JsonValue(&*found);
}

std::vector<std::pair<std::string, JsonValue>> JsonValue::members() const {
  std::vector<std::pair<std::string, JsonValue>> out;
  if (is_object()) {
    for (const auto& [key, value] : tree(node_).items()) {
      out.emplace_back(key, JsonValue(&value));
    }
  }
  return out;
}

std::vector<JsonValue> JsonValue::elements() const {
  std::vector<JsonValue> out;
  if (is_array()) {
    for (const Json& value : tree(node_)) {
      out.push_back(JsonValue(&value));
    }
  }
  return out;
}

std::string JsonValue::shown() const {
  if (!exists()) {
    return "missing";
  }
  std::string text = tree(node_).dump(-1, ' ', true, Json::error_handler_t::replace);
  constexpr std::size_t kLongest = 60;
  if (text.size() > kLongest) {
    text.resize(kLongest);
    text += "...";
  }
  return text;
}

Result<ModelJson> ModelJson::parse(std::string_view text, std::string_view file_name) {
  TROUPE_TRY(check_text(text, file_name));
  auto parsed = std::make_shared<const Json>(Json::parse(text, nullptr, false));
  if (!parsed->is_object()) {
    return error(Kind::kInvalid, message(file_name, ": not a JSON object"));
  }
  ModelJson document;
  document.tree_ = std::move(parsed);
  return document;
}

Result<ModelJson> ModelJson::read(const std::filesystem::path& path,
                                  std::string_view file_name,
                                  std::uint64_t limit) {
  std::error_code failure;
  const std::uintmax_t size = std::filesystem::file_size(path, failure);
  if (failure) {
    return error(Kind::kInvalid, message(file_name, ": can't be read: ", failure.message()));
  }
  if (size > limit) {
    return error(Kind::kInvalid,
                 message(file_name, ": ", size, " bytes, expected at most ", limit));
  }
  std::string text(static_cast<std::size_t>(size), '\0');
  std::ifstream stream(path, std::ios::binary);
  stream.read(text.data(), static_cast<std::streamsize>(size));
  if (!stream) {
    return error(
        Kind::kInvalid,
        message(file_name, ": can't be read: ", stream.gcount(), " of ", size, " bytes came"));
  }
  return parse(text, file_name);
}

std::string number_text(double number) {
  std::array<char, 32> digits{};
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), number).ptr;
  return {digits.data(), end};
}

}  // namespace troupe
