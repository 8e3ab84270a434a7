#include "net/openai_json.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <utility>
#include <vector>

namespace troupe::net {

namespace {

constexpr std::size_t kShownBytesMax = 60;

// Builds the tree itself: the library's own builder looks through all members for each new one,
// which is quadratic, and takes the last of two equal keys.
class Builder final : public nlohmann::json_sax<Json> {
 public:
  explicit Builder(const JsonBounds& bounds) : bounds_(bounds) {}
  [[nodiscard]] const std::string& problem() const { return problem_; }
  [[nodiscard]] Json take() { return std::move(root_); }

  bool null() override { return add(Json(nullptr)); }
  bool boolean(bool value) override { return add(Json(value)); }
  bool number_integer(number_integer_t value) override { return add(Json(value)); }
  bool number_unsigned(number_unsigned_t value) override { return add(Json(value)); }
  bool number_float(number_float_t value, const string_t&) override { return add(Json(value)); }
  bool string(string_t& value) override { return count_text() && add(Json(std::move(value))); }
  bool binary(binary_t&) override { return false; }
  bool start_object(std::size_t) override { return open(Json::object()); }
  bool start_array(std::size_t) override { return open(Json::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }

  bool key(string_t& name) override {
    Open& object = open_.back();
    if (object.keys.size() >= bounds_.members_max) {
      return refuse("an object has more than " + std::to_string(bounds_.members_max) + " members");
    }
    if (!object.keys.insert(name).second) {
      return refuse("the key " + shown(Json(name)) + " appears twice in one object");
    }
    object.key = std::move(name);
    return count_text();
  }

  bool parse_error(std::size_t position,
                   const std::string&,
                   const nlohmann::detail::exception&) override {
    return refuse("it is not valid JSON in UTF-8 at byte " + std::to_string(position));
  }

 private:
  struct Open {
    Json value;
    std::string key;             // of the member that comes
    std::set<std::string> keys;  // of an object
  };

  bool refuse(std::string problem) {
    problem_ = std::move(problem);
    return false;
  }

  bool count_text() {
    return ++texts_ <= bounds_.texts_max ||
           refuse("there are more than " + std::to_string(bounds_.texts_max) + " keys and strings");
  }

  bool open(Json value) {
    if (open_.size() >= bounds_.depth_max) {
      return refuse("it is nested deeper than " + std::to_string(bounds_.depth_max) + " levels");
    }
    if (++containers_ > bounds_.containers_max) {
      return refuse("there are more than " + std::to_string(bounds_.containers_max) +
                    " objects and lists");
    }
    open_.push_back({std::move(value), {}, {}});
    return true;
  }

  bool close() {
    Json value = std::move(open_.back().value);
    open_.pop_back();
    return add(std::move(value));
  }

  bool add(Json value) {
    if (open_.empty()) {
      root_ = std::move(value);
      return true;
    }
    Open& parent = open_.back();
    if (parent.value.is_array()) {
      parent.value.push_back(std::move(value));
    } else {
      parent.value.get_ref<Json::object_t&>().emplace_back(std::move(parent.key), std::move(value));
    }
    return true;
  }

  const JsonBounds bounds_;
  std::vector<Open> open_;
  Json root_;
  std::size_t containers_ = 0;
  std::size_t texts_ = 0;
  std::string problem_;
};

}  // namespace

Result<Json> parse_json(std::string_view text, const JsonBounds& bounds) {
  Builder builder(bounds);
  if (!Json::sax_parse(text.begin(), text.end(), &builder)) {
    return error(Kind::kInvalid, builder.problem());
  }
  return builder.take();
}

std::string dump(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string shown(const Json& value) {
  if (value.is_object()) {
    return "an object";
  }
  if (value.is_array()) {
    return "a list";
  }
  if (value.is_string()) {
    const auto& text = value.get_ref<const std::string&>();
    if (text.size() > kShownBytesMax) {
      return dump(Json(text.substr(0, kShownBytesMax))) + "...";
    }
  }
  return dump(value);
}

std::int64_t as_int64(const Json& number) {
  constexpr auto kMax = std::numeric_limits<std::int64_t>::max();
  constexpr auto kMin = std::numeric_limits<std::int64_t>::min();
  if (number.is_number_unsigned()) {
    return static_cast<std::int64_t>(
        std::min(number.get<std::uint64_t>(), static_cast<std::uint64_t>(kMax)));
  }
  if (number.is_number_integer()) {
    return number.get<std::int64_t>();
  }
  const double value = number.get<double>();
  if (value >= -static_cast<double>(kMin)) {
    return kMax;
  }
  return value <= static_cast<double>(kMin) ? kMin : static_cast<std::int64_t>(value);
}

}  // namespace troupe::net
