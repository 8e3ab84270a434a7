// What the text tests share: files of the tree, the big tokenizers (loaded once per process) and a
// tiny one to bend.
#pragma once

#include "runtime/text/tokenizer.h"

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

namespace troupe::testing {

[[nodiscard]] std::filesystem::path data_path(std::string_view name);  // in tests/text/data
[[nodiscard]] std::string read_file(const std::filesystem::path& path);

[[nodiscard]] std::shared_ptr<const Tokenizer> qwen3();
[[nodiscard]] std::shared_ptr<const Tokenizer>
qwen3_with_marks();  // the same with the Qwen3.5 pattern

// A complete tokenizer.json: the 256 bytes have ids 0 to 255, "ab" 256, "abc" 257; <|end|> 258 is
// special, <think> 259 is not.
[[nodiscard]] std::string tiny_tokenizer_json();

// A folder that vanishes with the object.
class TemporaryFolder final {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  void write(std::string_view name, std::string_view text) const;

 private:
  std::filesystem::path path_;
};

}  // namespace troupe::testing
