// ParameterStore: packs parameters into a stage's weights arena and knows which are still missing.
// Filled once, by loading threads (store() is thread-safe for different names) or by set_param on
// the owning actor's thread; read-only afterwards.
#pragma once

#include "runtime/base/error.h"
#include "runtime/circuit/layout.h"
#include "runtime/model/checkpoint.h"
#include "runtime/model/config.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

class ParameterStore final {
 public:
  enum class Arena : std::uint8_t {
    kZeroed,  // the rope table is computed at once, parameters come by store()
    kPacked,  // holds everything
  };
  // `arena` has layout.bytes. Both outlive the store.
  ParameterStore(const WeightLayout& layout,
                 std::byte* arena,
                 const ModelConfig& config,
                 Arena contents);

  // Packs one whole tensor. Errors name the parameter: unknown, wrong shape (expected and found), a
  // dtype that its place was not laid out for, FP8 without a scale.
  Status store(const TensorView& tensor);

  // kInvalid names the first missing parameter and how many are missing.
  [[nodiscard]] Status check_complete() const;

  // How many columns a named parameter has; 0 when unknown.
  [[nodiscard]] std::uint32_t columns(std::string_view name) const;
  [[nodiscard]] std::uint32_t rows(std::string_view name) const;

 private:
  const WeightLayout& layout_;
  std::byte* arena_;
  std::vector<std::unique_ptr<std::atomic<bool>[]>> stored_;  // by parameter, by place in its names
};

// fp32 inverse frequencies of the rotary embedding, YaRN applied (MODEL.md 3.5.1, 3.5.4):
// rotary_dims / 2 values.
[[nodiscard]] std::vector<float> rope_inverse_frequencies(const RopeConfig& rope);

}  // namespace troupe
