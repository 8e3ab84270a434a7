// The published configurations in models/configs and a catalog that has every kernel.
#pragma once

#include "kernels/ops.h"
#include "runtime/circuit/fusion_plan.h"
#include "runtime/model/config.h"

#include <string>
#include <vector>

namespace troupe::test {

inline ModelConfig published(const std::string& name) {
  return read_model_config(std::string(TROUPE_SOURCE_DIR) + "/models/configs/" + name).value();
}

inline KernelCatalog full_catalog() {
  return make_catalog(*find_cpu_kernel_set("scalar"), Activation::kBF16);
}

inline Circuit whole(const ModelConfig& config) {
  return build_circuit(config, {0, static_cast<std::uint32_t>(config.layers.size())}).value();
}

inline const std::vector<std::string>& published_names() {
  static const std::vector<std::string> names = {
      "qwen3-next-80b-a3b", "qwen3.5-35b-a3b", "qwen3.5-397b-a17b", "qwen3.5-27b"};
  return names;
}

}  // namespace troupe::test
