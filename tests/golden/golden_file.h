// Reads golden.json and golden.safetensors of one model.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace troupe::test {

struct GoldenPrompt {
  std::string name;
  std::vector<std::int32_t> ids;
  std::vector<std::int32_t> greedy;
};

struct GoldenTensor {
  std::vector<std::size_t> shape;
  std::vector<float> values;  // F32, or I32 widened
};

struct GoldenFile {
  std::vector<GoldenPrompt> prompts;
  std::map<std::string, GoldenTensor> tensors;
  double bf16_kl_mean =
      0;  // of another implementation in bf16 against fp64, over all rows of the longest prompt
  double bf16_argmax_equal = 0;

  // suffix "" or "-yarn".
  static GoldenFile read(const std::filesystem::path& directory, const std::string& suffix);
  [[nodiscard]] const GoldenTensor& at(const std::string& name) const;
};

}  // namespace troupe::test
