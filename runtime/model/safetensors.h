// One mapped safetensors file: an 8-byte little-endian header length, a JSON header, then the data.
// Private to runtime/model. Immutable after open; any thread.
//
// ST-1: every tensor's bytes lie inside the file, have the size its shape and dtype need, and the
// tensors fill the
//       data section without gap or overlap. Nobody checks a bound again.
#pragma once

#include "runtime/base/dtype.h"
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

struct StoredTensor {
  std::string name;
  std::string dtype_name;      // as the file spells it
  std::optional<DType> dtype;  // none for types Troupe only skips over (BOOL, U16, F8_E5M2, ...)
  std::vector<std::uint64_t> shape;
  std::uint64_t begin = 0;  // byte offset in the data section
  std::uint64_t end = 0;
};

// "[3, 4]"
[[nodiscard]] std::string shape_text(const std::vector<std::uint64_t>& shape);

class SafetensorsFile final {
 public:
  // `name` is what messages call the file: its path relative to the model directory.
  [[nodiscard]] static Result<std::unique_ptr<const SafetensorsFile>> open(
      const std::filesystem::path& path, std::string name);
  ~SafetensorsFile();
  SafetensorsFile(const SafetensorsFile&) = delete;
  SafetensorsFile& operator=(const SafetensorsFile&) = delete;

  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] std::uint64_t bytes() const { return bytes_; }
  // Inode, size and times of change when the file was opened: another text when anybody wrote to it
  // since.
  [[nodiscard]] const std::string& identity() const { return identity_; }
  [[nodiscard]] std::string_view header() const {
    return {reinterpret_cast<const char*>(map_) + 8, header_bytes_};
  }
  [[nodiscard]] const std::string& format() const {
    return format_;
  }  // __metadata__.format: "pt", "mlx", ...
  [[nodiscard]] const std::vector<StoredTensor>& tensors() const { return tensors_; }
  [[nodiscard]] const std::byte* data(const StoredTensor& tensor) const {
    return map_ + 8 + header_bytes_ + tensor.begin;
  }

 private:
  explicit SafetensorsFile(std::string name) : name_(std::move(name)) {}
  [[nodiscard]] Status map(const std::filesystem::path& path);
  [[nodiscard]] Status read_header();
  [[nodiscard]] Status check_layout();

  std::string name_;
  std::string format_;
  std::string identity_;
  const std::byte* map_ = nullptr;
  std::uint64_t bytes_ = 0;
  std::uint64_t header_bytes_ = 0;
  std::vector<StoredTensor> tensors_;  // by offset
};

// model.safetensors.index.json: (tensor, file) pairs in the order of the tensors' names. Every file
// is a plain name, or one in a subfolder: never absolute, never through "..".
using ShardIndex = std::vector<std::pair<std::string, std::string>>;
[[nodiscard]] Result<ShardIndex> read_shard_index(const std::filesystem::path& path,
                                                  std::string_view file_name);

}  // namespace troupe
