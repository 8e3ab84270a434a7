// Type-checked reading of the small JSON files beside a model. A model directory is untrusted:
// whatever is wrong in it is reported the same way, naming file, field, what was found and what was
// expected. Owned by the reader; one thread.
//
// JV-1: a JsonView names its field through the views it came from, so it must not outlive them, nor
// they move under it.
#pragma once

#include "runtime/base/error.h"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace troupe {

struct JsonLimits {
  std::size_t depth_max = 64;      // nested lists and objects
  std::size_t members_max = 1024;  // of one object; ordered objects cost the square of it
};

// Checks syntax and limits without building anything. kInvalid: the message begins with `name`.
[[nodiscard]] Status check_json(std::string_view text,
                                std::string_view name,
                                const JsonLimits& limits);

// The whole file. kInvalid: missing, unreadable, or larger than 256 MiB.
[[nodiscard]] Result<std::string> read_text_file(const std::filesystem::path& path);

class JsonDocument;

class JsonView final {
 public:
  [[nodiscard]] bool is_text() const;
  [[nodiscard]] bool is_list() const;
  [[nodiscard]] bool is_object() const;
  [[nodiscard]] std::size_t size() const;  // of a list or an object; else 0

  // A member of an object; absent and null are the same. `member` is for those that must be there.
  [[nodiscard]] std::optional<JsonView> find(std::string_view name) const;
  [[nodiscard]] Result<JsonView> member(std::string_view name, std::string_view expected) const;
  [[nodiscard]] JsonView element(std::size_t index) const;  // REQUIRES: a list, index < size()
  // Members in the order of their names.
  [[nodiscard]] Status for_each(
      const std::function<Status(std::string_view name, const JsonView& value)>& visit) const;

  [[nodiscard]] Result<std::string_view> text() const;
  [[nodiscard]] Result<bool> boolean() const;
  [[nodiscard]] Result<std::uint32_t> integer(std::uint32_t min, std::uint32_t max) const;
  [[nodiscard]] Result<double> number(double min, double max) const;

  // "FILE: FIELD is FOUND; expected EXPECTED"
  [[nodiscard]] tl::unexpected<Error> refuse(std::string_view expected,
                                             Kind kind = Kind::kInvalid) const;
  // "FILE: FIELD PROBLEM"
  [[nodiscard]] tl::unexpected<Error> complain(std::string_view problem) const;
  [[nodiscard]] std::string field() const;  // "model.merges[3]"; "the file" for all of it

 private:
  friend class JsonDocument;
  JsonView(const void* node, const JsonDocument* document) : node_(node), document_(document) {}

  const void* node_;
  const JsonDocument* document_;
  const JsonView* parent_ = nullptr;
  std::string_view name_;  // in an object
  std::size_t index_ = 0;  // in a list
};

class JsonDocument final {
 public:
  // `name` is what messages call the file.
  [[nodiscard]] static Result<std::unique_ptr<const JsonDocument>> parse(std::string_view text,
                                                                         std::string name);
  [[nodiscard]] static Result<std::unique_ptr<const JsonDocument>> open(
      const std::filesystem::path& path);
  // Null if there is no such file.
  [[nodiscard]] static Result<std::unique_ptr<const JsonDocument>> open_if_present(
      const std::filesystem::path& path);
  ~JsonDocument();
  JsonDocument(const JsonDocument&) = delete;
  JsonDocument& operator=(const JsonDocument&) = delete;

  [[nodiscard]] JsonView root() const;
  [[nodiscard]] const std::string& name() const { return name_; }

 private:
  struct Tree;
  JsonDocument(std::unique_ptr<Tree> tree, std::string name);

  std::unique_ptr<Tree> tree_;
  std::string name_;
};

// Text from a file as it may appear in a message: in quotes, at most 60 bytes of it, control
// characters escaped.
[[nodiscard]] std::string excerpt(std::string_view text);

}  // namespace troupe
