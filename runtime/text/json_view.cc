#include "runtime/text/json_view.h"

#include "runtime/text/unicode.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cstdio>
#include <fstream>
#include <limits>
#include <system_error>
#include <utility>
#include <vector>

namespace troupe {
namespace {

using nlohmann::json;

constexpr std::uintmax_t kFileBytesMax = 256UL << 20U;
constexpr std::size_t kExcerptBytesMax = 60;
constexpr std::string_view kPlainNameCharacters =
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_";

// Follows the parser without keeping anything; returning false ends the parse.
class Inspector final : public nlohmann::json_sax<json> {
 public:
  explicit Inspector(const JsonLimits& limits) : limits_(limits) {}
  [[nodiscard]] const std::string& problem() const { return problem_; }

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool start_object(std::size_t) override { return enter(); }
  bool start_array(std::size_t) override { return enter(); }
  bool end_object() override { return leave(); }
  bool end_array() override { return leave(); }
  bool key(string_t&) override {
    if (++members_.back() > limits_.members_max) {
      problem_ = "has an object of more than " + std::to_string(limits_.members_max) +
                 " members; use fewer";
      return false;
    }
    return true;
  }
  bool parse_error(std::size_t position,
                   const std::string&,
                   const nlohmann::detail::exception&) override {
    problem_ = "is not valid JSON at byte " + std::to_string(position);
    return false;
  }

 private:
  bool enter() {
    members_.push_back(0);
    if (members_.size() > limits_.depth_max) {
      problem_ =
          "is nested more than " + std::to_string(limits_.depth_max) + " levels deep; use fewer";
      return false;
    }
    return true;
  }
  bool leave() {
    members_.pop_back();
    return true;
  }

  JsonLimits limits_;
  std::vector<std::size_t> members_;  // of each open object or list
  std::string problem_;
};

const json& node_of(const void* node) {
  return *static_cast<const json*>(node);
}

std::string found(const json& node) {
  switch (node.type()) {
    case json::value_t::null:
      return "null";
    case json::value_t::string:
      return excerpt(node.get_ref<const std::string&>());
    case json::value_t::array:
      return "a list of " + std::to_string(node.size());
    case json::value_t::object:
      return "an object";
    default:
      return node.dump();
  }
}

std::string number_text(double value) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%g", value);
  return text.data();
}

}  // namespace

std::string excerpt(std::string_view text) {
  std::string out = "\"";
  const std::string clean = replace_invalid_utf8(text.substr(0, kExcerptBytesMax));
  for (const char c : clean) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) {
      std::array<char, 8> escape{};
      std::snprintf(escape.data(),
                    escape.size(),
                    "\\x%02x",
                    static_cast<unsigned>(static_cast<unsigned char>(c)));
      out += escape.data();
    } else {
      out.push_back(c);
    }
  }
  return out + (text.size() > kExcerptBytesMax ? "...\"" : "\"");
}

Status check_json(std::string_view text, std::string_view name, const JsonLimits& limits) {
  Inspector inspector(limits);
  if (!json::sax_parse(text.begin(), text.end(), &inspector)) {
    return error(Kind::kInvalid, std::string(name) + " " + inspector.problem());
  }
  return {};
}

Result<std::string> read_text_file(const std::filesystem::path& path) {
  std::error_code failure;
  const std::uintmax_t size = std::filesystem::file_size(path, failure);
  if (failure) {
    return error(Kind::kInvalid, path.string() + ": cannot be read: " + failure.message());
  }
  if (size > kFileBytesMax) {
    return error(Kind::kInvalid,
                 path.string() + ": has " + std::to_string(size) + " bytes; expected at most " +
                     std::to_string(kFileBytesMax));
  }
  std::ifstream file(path, std::ios::binary);
  std::string text(static_cast<std::size_t>(size), '\0');
  if (!file.read(text.data(), static_cast<std::streamsize>(size))) {
    return error(Kind::kInvalid, path.string() + ": cannot be read to its end");
  }
  return text;
}

bool JsonView::is_text() const {
  return node_of(node_).is_string();
}
bool JsonView::is_list() const {
  return node_of(node_).is_array();
}
bool JsonView::is_object() const {
  return node_of(node_).is_object();
}
std::size_t JsonView::size() const {
  return node_of(node_).is_structured() ? node_of(node_).size() : 0;
}

std::optional<JsonView> JsonView::find(std::string_view name) const {
  const json& node = node_of(node_);
  if (!node.is_object()) {
    return std::nullopt;
  }
  const auto found_member = node.find(name);
  if (found_member == node.end() || found_member->is_null()) {
    return std::nullopt;
  }
  JsonView view(&*found_member, document_);
  view.parent_ = this;
  view.name_ = found_member.key();
  return view;
}

Result<JsonView> JsonView::member(std::string_view name, std::string_view expected) const {
  if (!is_object()) {
    return refuse("an object");
  }
  if (auto view = find(name)) {
    return *view;
  }
  JsonView missing(node_, document_);
  missing.parent_ = this;
  missing.name_ = name;
  return missing.complain("is missing; expected " + std::string(expected));
}

JsonView JsonView::element(std::size_t index) const {
  TROUPE_CHECK(is_list() && index < size(), "an index within the list");
  JsonView view(&node_of(node_)[index], document_);
  view.parent_ = this;
  view.index_ = index;
  return view;
}

Status JsonView::for_each(
    const std::function<Status(std::string_view, const JsonView&)>& visit) const {
  if (!is_object()) {
    return refuse("an object");
  }
  for (auto it = node_of(node_).begin(); it != node_of(node_).end(); ++it) {
    JsonView view(&*it, document_);
    view.parent_ = this;
    view.name_ = it.key();
    TROUPE_TRY(visit(view.name_, view));
  }
  return {};
}

Result<std::string_view> JsonView::text() const {
  if (!is_text()) {
    return refuse("text");
  }
  return std::string_view(node_of(node_).get_ref<const std::string&>());
}

Result<bool> JsonView::boolean() const {
  if (!node_of(node_).is_boolean()) {
    return refuse("true or false");
  }
  return node_of(node_).get<bool>();
}

Result<std::uint32_t> JsonView::integer(std::uint32_t min, std::uint32_t max) const {
  const json& node = node_of(node_);
  // A non-negative integer literal is stored as unsigned.
  if (!node.is_number_unsigned() || node.get<std::uint64_t>() < min ||
      node.get<std::uint64_t>() > max) {
    return refuse("an integer from " + std::to_string(min) + " to " + std::to_string(max));
  }
  return static_cast<std::uint32_t>(node.get<std::uint64_t>());
}

Result<double> JsonView::number(double min, double max) const {
  const json& node = node_of(node_);
  if (!node.is_number() || !(node.get<double>() >= min && node.get<double>() <= max)) {
    return refuse("a number from " + number_text(min) + " to " + number_text(max));
  }
  return node.get<double>();
}

std::string JsonView::field() const {
  if (parent_ == nullptr) {
    return "the file";
  }
  const std::string above = parent_->parent_ == nullptr ? "" : parent_->field();
  if (name_.data() == nullptr) {
    return above + "[" + std::to_string(index_) + "]";
  }
  const std::string own = name_.find_first_not_of(kPlainNameCharacters) == std::string_view::npos
                              ? std::string(name_)
                              : "[" + excerpt(name_) + "]";
  return above.empty() || own.front() == '[' ? above + own : above + "." + own;
}

tl::unexpected<Error> JsonView::refuse(std::string_view expected, Kind kind) const {
  return error(kind,
               document_->name() + ": " + field() + " is " + found(node_of(node_)) + "; expected " +
                   std::string(expected));
}

tl::unexpected<Error> JsonView::complain(std::string_view problem) const {
  return error(Kind::kInvalid, document_->name() + ": " + field() + " " + std::string(problem));
}

struct JsonDocument::Tree {
  json root;
};

JsonDocument::JsonDocument(std::unique_ptr<Tree> tree, std::string name)
    : tree_(std::move(tree)), name_(std::move(name)) {}
JsonDocument::~JsonDocument() = default;

JsonView JsonDocument::root() const {
  return {&tree_->root, this};
}

Result<std::unique_ptr<const JsonDocument>> JsonDocument::parse(std::string_view text,
                                                                std::string name) {
  auto tree = std::make_unique<Tree>();
  tree->root = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (tree->root.is_discarded()) {
    constexpr std::size_t kAny = std::numeric_limits<std::size_t>::max();
    TROUPE_TRY(check_json(text, name + ": the file", JsonLimits{kAny, kAny}));
    return error(Kind::kInternal,
                 name + ": the file was refused by one JSON parser and accepted by another");
  }
  std::unique_ptr<const JsonDocument> document(new JsonDocument(std::move(tree), std::move(name)));
  if (!document->root().is_object()) {
    return document->root().refuse("an object");
  }
  return document;
}

Result<std::unique_ptr<const JsonDocument>> JsonDocument::open(const std::filesystem::path& path) {
  TROUPE_ASSIGN(const std::string text, read_text_file(path));
  return parse(text, path.string());
}

Result<std::unique_ptr<const JsonDocument>> JsonDocument::open_if_present(
    const std::filesystem::path& path) {
  std::error_code failure;
  if (!std::filesystem::exists(path, failure)) {
    return std::unique_ptr<const JsonDocument>();
  }
  return open(path);
}

}  // namespace troupe
