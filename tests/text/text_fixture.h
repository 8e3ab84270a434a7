// What the text tests share: files of the tree, the big tokenizers (loaded once per process) and a
// tiny one to bend.
#pragma once

#include "runtime/text/tokenizer.h"
#include "tests/support/temp_directory.h"

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

using test::TempDirectory;

}  // namespace troupe::testing
