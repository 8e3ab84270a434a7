#include "tests/golden/golden_file.h"

#include "runtime/base/error.h"

#include <nlohmann/json.hpp>

#include <cstring>
#include <fstream>
#include <iterator>
#include <string_view>

namespace troupe::test {
namespace {

std::string slurp(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  TROUPE_CHECK(file.good(), path.string());
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

}  // namespace

GoldenFile GoldenFile::read(const std::filesystem::path& directory, const std::string& suffix) {
  GoldenFile golden;
  const auto json = nlohmann::json::parse(slurp(directory / ("golden" + suffix + ".json")));
  for (const auto& prompt : json["prompts"]) {
    golden.prompts.push_back({prompt["name"], prompt["ids"], prompt["greedy"]});
  }
  const auto properties =
      nlohmann::json::parse(slurp(directory / ("properties" + suffix + ".json")));
  if (properties.contains("hf_bf16_vs_fp64")) {
    golden.bf16_kl_mean = properties["hf_bf16_vs_fp64"]["kl_mean"];
    golden.bf16_argmax_equal = properties["hf_bf16_vs_fp64"]["argmax_equal"];
  }
  const std::string bytes = slurp(directory / ("golden" + suffix + ".safetensors"));
  std::uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, bytes.data(), 8);
  const auto header = nlohmann::json::parse(std::string_view(bytes).substr(8, header_bytes));
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") {
      continue;
    }
    GoldenTensor tensor{.shape = entry["shape"]};
    std::size_t count = 1;
    for (const std::size_t dim : tensor.shape) {
      count *= dim;
    }
    const std::size_t begin = 8 + header_bytes + entry["data_offsets"][0].get<std::size_t>();
    tensor.values.resize(count);
    for (std::size_t i = 0; i < count; ++i) {
      if (entry["dtype"] == "F32") {
        std::memcpy(&tensor.values[i], bytes.data() + begin + i * 4, 4);
      } else {
        TROUPE_CHECK(entry["dtype"] == "I32", name);
        std::int32_t value = 0;
        std::memcpy(&value, bytes.data() + begin + i * 4, 4);
        tensor.values[i] = static_cast<float>(value);
      }
    }
    golden.tensors.emplace(name, std::move(tensor));
  }
  return golden;
}

const GoldenTensor& GoldenFile::at(const std::string& name) const {
  const auto found = tensors.find(name);
  TROUPE_CHECK(found != tensors.end(), "golden tensor " + name);
  return found->second;
}

}  // namespace troupe::test
