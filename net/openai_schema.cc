#include "net/openai_schema.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <utility>

namespace troupe::net {

namespace schema {

namespace {

// A token id as JSON writes one: no sign, no leading zeros.
constexpr std::string_view kTokenKeyPattern = "^(0|[1-9][0-9]{0,9})$";

void bound(
    Json& json, const char* low_name, const char* high_name, std::size_t low, std::size_t high) {
  if (low > 0) {
    json[low_name] = low;
  }
  if (high != kAny) {
    json[high_name] = high;
  }
}

}  // namespace

Json boolean() {
  return {{"type", "boolean"}};
}

Json integer(std::int64_t low, std::int64_t high) {
  return {{"type", "integer"}, {"minimum", low}, {"maximum", high}};
}

Json number(double low, double high) {
  return {{"type", "number"}, {"minimum", low}, {"maximum", high}};
}

Json text(std::size_t characters_min, std::size_t characters_max) {
  Json json = {{"type", "string"}};
  bound(json, "minLength", "maxLength", characters_min, characters_max);
  return json;
}

Json list(Json items, std::size_t count_min, std::size_t count_max) {
  Json json = {{"type", "array"}};
  json["items"] = std::move(items);
  bound(json, "minItems", "maxItems", count_min, count_max);
  return json;
}

Json only(std::initializer_list<Json> values) {
  Json json = Json::object();
  json["enum"] = Json::array();
  for (const auto& value : values) {
    json["enum"].push_back(value);
  }
  return json;
}

Json any_of(std::vector<Json> schemas) {
  Json json = Json::object();
  json["anyOf"] = std::move(schemas);
  return json;
}

Json object(std::initializer_list<std::pair<std::string, Json>> members,
            std::initializer_list<std::string> required) {
  Json json = {{"type", "object"}};
  json["properties"] = Json::object();
  for (const auto& [name, member] : members) {
    json["properties"][name] = member;
  }
  if (required.size() > 0) {
    json["required"] = std::vector<std::string>(required);
  }
  json["additionalProperties"] = false;
  return json;
}

Json any_object() {
  return {{"type", "object"}};
}

Json by_token_id(Json each) {
  Json json = {{"type", "object"}};
  json["propertyNames"] = {{"pattern", kTokenKeyPattern}};
  json["additionalProperties"] = std::move(each);
  return json;
}

Json or_null(Json schema) {
  if (schema.contains("anyOf")) {
    schema["anyOf"].push_back({{"type", "null"}});
  } else if (schema.contains("enum")) {
    schema["enum"].push_back(nullptr);
  } else if (schema.contains("type")) {
    schema["type"] = Json::array({schema["type"], "null"});
  }
  return schema;
}

}  // namespace schema

namespace {

constexpr std::array<std::string_view, 7> kTypes = {
    "null", "boolean", "integer", "number", "string", "array", "object"};
constexpr std::array<std::string_view, 7> kTypeWords = {
    "null", "true or false", "a whole number", "a number", "a text", "a list", "an object"};
enum TypeIndex : std::uint32_t { kNull, kBoolean, kInteger, kNumber, kString, kArray, kObject };

constexpr std::uint32_t bit(std::uint32_t type) {
  return 1U << type;
}

std::uint32_t type_bit(const Json& name) {
  const auto& text = name.get_ref<const std::string&>();
  const auto found = std::find(kTypes.begin(), kTypes.end(), text);
  TROUPE_CHECK(found != kTypes.end(), "a type of JSON Schema");
  return bit(static_cast<std::uint32_t>(found - kTypes.begin()));
}

bool is_whole(const Json& number) {
  return number.is_number_integer() || std::trunc(number.get<double>()) == number.get<double>();
}

// Exact for whole numbers; the library compares unsigned with signed ones by a cast.
bool is_less(const Json& a, const Json& b) {
  if (a.is_number_float() || b.is_number_float()) {
    return a.get<double>() < b.get<double>();
  }
  if (a.is_number_unsigned() && b.is_number_unsigned()) {
    return a.get<std::uint64_t>() < b.get<std::uint64_t>();
  }
  if (a.is_number_unsigned()) {
    return std::cmp_less(a.get<std::uint64_t>(), b.get<std::int64_t>());
  }
  return b.is_number_unsigned() ? std::cmp_less(a.get<std::int64_t>(), b.get<std::uint64_t>())
                                : a.get<std::int64_t>() < b.get<std::int64_t>();
}

std::size_t characters(const std::string& text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xc0U) != 0x80U;
  }));
}

bool is_token_key(std::string_view key) {
  if (key.empty() || key.size() > 10 || (key.size() > 1 && key[0] == '0')) {
    return false;
  }
  return std::all_of(key.begin(), key.end(), [](char c) { return c >= '0' && c <= '9'; });
}

std::string plain(const Json& number) {
  if (!number.is_number_float()) {
    return number.dump();
  }
  char text[32];
  std::snprintf(text, sizeof text, "%g", number.get<double>());
  return text;
}

std::string counted(const Json& value) {
  if (value.is_array()) {
    return "a list of " + std::to_string(value.size());
  }
  if (value.is_string()) {
    const std::size_t count = characters(value.get_ref<const std::string&>());
    if (count > 60) {
      return "a text of " + std::to_string(count) + " characters";
    }
  }
  return shown(value);
}

std::string count_words(std::size_t low, std::size_t high, std::string_view unit) {
  if (low == 0 && high == schema::kAny) {
    return "";
  }
  const std::string from = std::to_string(low);
  if (high == schema::kAny) {
    return " of at least " + from + std::string(unit);
  }
  return " of " + from + " to " + std::to_string(high) + std::string(unit);
}

// a, b or c
std::string alternatives(const std::vector<std::string>& parts) {
  std::string text;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    text += i == 0 ? "" : i + 1 == parts.size() ? " or " : ", ";
    text += parts[i];
  }
  return text;
}

}  // namespace

struct Schema::Place {
  const Place* parent = nullptr;
  std::string_view key;   // of an object's member; else
  std::size_t index = 0;  // of a list's item

  [[nodiscard]] std::string path() const {
    if (parent == nullptr) {
      return "";
    }
    std::string text = parent->path();
    if (key.data() == nullptr) {
      return text + "[" + std::to_string(index) + "]";
    }
    return (text.empty() ? "" : text + ".") + std::string(key);
  }
};

Schema::Schema(const Json& json) {
  for (const auto& [keyword, value] : json.items()) {
    if (keyword == "type") {
      for (const auto& name : value.is_array() ? value : Json::array({value})) {
        types_ |= type_bit(name);
      }
    } else if (keyword == "enum") {
      values_.assign(value.begin(), value.end());
    } else if (keyword == "minimum") {
      low_ = value;
    } else if (keyword == "maximum") {
      high_ = value;
    } else if (keyword == "minLength" || keyword == "minItems") {
      count_min_ = value.get<std::size_t>();
    } else if (keyword == "maxLength" || keyword == "maxItems") {
      count_max_ = value.get<std::size_t>();
    } else if (keyword == "anyOf") {
      for (const auto& each : value) {
        any_of_.emplace_back(each);
      }
    } else if (keyword == "items") {
      items_.emplace_back(value);
    } else if (keyword == "properties") {
      for (const auto& [name, member] : value.items()) {
        members_.emplace_back(name, Schema(member));
      }
    } else if (keyword == "required") {
      required_ = value.get<std::vector<std::string>>();
    } else if (keyword == "additionalProperties" && value.is_boolean()) {
      open_ = value.get<bool>();
    } else if (keyword == "additionalProperties") {
      others_.emplace_back(value);
    } else if (keyword == "propertyNames") {
      token_keys_ = true;
    } else {
      TROUPE_CHECK(keyword == "description" || keyword == "default", "a keyword that is checked");
    }
  }
}

std::optional<Violation> Schema::check(const Json& value) const {
  std::size_t passed = 0;
  return check_at(value, Place{}, passed);
}

bool Schema::has_type_of(const Json& value) const {
  if (types_ == 0) {
    return true;
  }
  switch (value.type()) {
    case Json::value_t::null:
      return (types_ & bit(kNull)) != 0;
    case Json::value_t::boolean:
      return (types_ & bit(kBoolean)) != 0;
    case Json::value_t::string:
      return (types_ & bit(kString)) != 0;
    case Json::value_t::array:
      return (types_ & bit(kArray)) != 0;
    case Json::value_t::object:
      return (types_ & bit(kObject)) != 0;
    default:
      return (types_ & bit(kNumber)) != 0 || ((types_ & bit(kInteger)) != 0 && is_whole(value));
  }
}

bool Schema::in_bounds(const Json& value) const {
  if (value.is_number()) {
    return (low_.is_null() || !is_less(value, low_)) && (high_.is_null() || !is_less(high_, value));
  }
  if (value.is_string() && (count_min_ > 0 || count_max_ != schema::kAny)) {
    const std::size_t count = characters(value.get_ref<const std::string&>());
    return count >= count_min_ && count <= count_max_;
  }
  return !value.is_array() || (value.size() >= count_min_ && value.size() <= count_max_);
}

std::string Schema::words() const {
  std::vector<std::string> parts;
  for (const auto& value : values_) {
    if (!value.is_null()) {
      parts.push_back(shown(value));
    }
  }
  for (const auto& schema : any_of_) {
    if (schema.types_ != bit(kNull)) {
      parts.push_back(schema.words());
    }
  }
  for (std::uint32_t type = kBoolean; type <= kObject; ++type) {
    if ((types_ & bit(type)) == 0) {
      continue;
    }
    std::string part(kTypeWords[type]);
    if (type == kString) {
      part += count_words(count_min_, count_max_, " characters");
    } else if (type == kArray) {
      part += count_words(count_min_, count_max_, "");
    } else if (!low_.is_null()) {
      part += " from " + plain(low_) + " to " + plain(high_);
    }
    parts.push_back(part);
  }
  return parts.empty() ? "null" : alternatives(parts);
}

Violation Schema::refuse(const Json& value, const Place& place, std::string_view code) const {
  const std::string path = place.path();
  return {path,
          (path.empty() ? "the body" : path) + " is " + counted(value) + "; allowed is " + words(),
          code};
}

std::optional<Violation> Schema::check_at(const Json& value,
                                          const Place& place,
                                          std::size_t& passed) const {
  if (!any_of_.empty()) {
    return check_any(value, place, passed);
  }
  const auto refusal = [&](std::string_view code) { return refuse(value, place, code); };
  if (!has_type_of(value)) {
    return refusal("invalid_type");
  }
  if (!values_.empty() && std::find(values_.begin(), values_.end(), value) == values_.end()) {
    return refusal("invalid_value");
  }
  if (!in_bounds(value)) {
    return refusal("invalid_value");
  }
  ++passed;
  if (value.is_object()) {
    return check_members(value, place, passed);
  }
  if (value.is_array() && !items_.empty()) {
    for (std::size_t i = 0; i < value.size(); ++i) {
      if (auto violation = items_.front().check_at(value[i], Place{&place, {}, i}, passed)) {
        return violation;
      }
    }
  }
  return std::nullopt;
}

// Of several refusals the one that came furthest tells most.
std::optional<Violation> Schema::check_any(const Json& value,
                                           const Place& place,
                                           std::size_t& passed) const {
  std::optional<Violation> best;
  std::size_t best_passed = 0;
  for (const auto& schema : any_of_) {
    std::size_t here = 0;
    auto violation = schema.check_at(value, place, here);
    if (!violation) {
      passed += here;
      return std::nullopt;
    }
    if (schema.has_type_of(value) && (!best || here > best_passed)) {
      best = std::move(violation);
      best_passed = here;
    }
  }
  return best ? best : refuse(value, place, "invalid_type");
}

std::optional<Violation> Schema::check_members(const Json& value,
                                               const Place& place,
                                               std::size_t& passed) const {
  for (const auto& [name, member_value] : value.items()) {
    const Place here{&place, name, 0};
    const Schema* schema = member(name);
    if ((schema == nullptr && !open_) || (token_keys_ && !is_token_key(name))) {
      const std::string path = here.path();
      return token_keys_
                 ? Violation{path, path + " is not keyed by a token id", "invalid_value"}
                 : Violation{path, path + " is not supported; leave it out", "unknown_parameter"};
    }
    if (schema == nullptr && !others_.empty()) {
      schema = &others_.front();
    }
    if (schema == nullptr) {
      continue;
    }
    if (auto violation = schema->check_at(member_value, here, passed)) {
      return violation;
    }
  }
  for (const auto& name : required_) {
    if (!value.contains(name)) {
      const std::string path = Place{&place, name, 0}.path();
      return Violation{path, path + " is missing", "missing_required_parameter"};
    }
  }
  return std::nullopt;
}

const Schema* Schema::member(std::string_view name) const {
  const auto found = std::find_if(
      members_.begin(), members_.end(), [&](const auto& member) { return member.first == name; });
  return found == members_.end() ? nullptr : &found->second;
}

}  // namespace troupe::net
