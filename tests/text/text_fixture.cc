#include "tests/text/text_fixture.h"

#include "runtime/text/unicode.h"

#include <nlohmann/json.hpp>

#include <fstream>
#include <iterator>

namespace troupe::testing {

std::filesystem::path data_path(std::string_view name) {
  return std::filesystem::path(TROUPE_SOURCE_DIR) / "tests/text/data" / name;
}

std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  TROUPE_CHECK(file.good(), path.string());
  return {std::istreambuf_iterator<char>(file), {}};
}

std::shared_ptr<const Tokenizer> qwen3() {
  static const auto tokenizer = Tokenizer::open(data_path("qwen3")).value();
  return tokenizer;
}

std::shared_ptr<const Tokenizer> qwen3_with_marks() {
  static const auto tokenizer =
      Tokenizer::open(data_path("qwen3"), {.pattern = std::string(kQwen35Pattern)}).value();
  return tokenizer;
}

std::string tiny_tokenizer_json() {
  using nlohmann::json;
  json vocab;
  for (int byte = 0; byte < 256; ++byte) {
    vocab[alphabet_of_byte(static_cast<std::uint8_t>(byte))] = byte;
  }
  vocab["ab"] = 256;
  vocab["abc"] = 257;
  const json split = {{"type", "Split"},
                      {"pattern", {{"Regex", std::string(kQwen2Pattern)}}},
                      {"behavior", "Isolated"},
                      {"invert", false}};
  const json byte_level = {
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}};
  const json root = {
      {"added_tokens",
       {{{"id", 258}, {"content", "<|end|>"}, {"normalized", false}, {"special", true}},
        {{"id", 259}, {"content", "<think>"}, {"normalized", false}, {"special", false}}}},
      {"normalizer", {{"type", "NFC"}}},
      {"pre_tokenizer", {{"type", "Sequence"}, {"pretokenizers", {split, byte_level}}}},
      {"post_processor", nullptr},
      {"decoder", {{"type", "ByteLevel"}}},
      {"model",
       {{"type", "BPE"},
        {"vocab", vocab},
        {"merges", json::array({"a b", json::array({"ab", "c"})})}}}};
  return root.dump();
}

}  // namespace troupe::testing
