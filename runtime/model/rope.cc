// RoPE settings of a config.json, plain and YaRN.
#include "runtime/base/math.h"
#include "runtime/model/config_keys.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <string>
#include <vector>

namespace troupe {
namespace {

// RoPE settings are spread over rope_parameters (new files), rope_scaling (old files) and the
// surrounding config.
class RopeKeys final {
 public:
  [[nodiscard]] static Result<RopeKeys> open(const ConfigKeys& keys) {
    RopeKeys rope(keys);
    std::string type;
    for (const char* key : {"rope_parameters", "rope_scaling"}) {
      const JsonValue part = keys.find(key);
      if (!part.exists()) {
        continue;
      }
      if (!part.is_object()) {
        return keys.wrong(key, part, "an object");
      }
      const JsonValue named =
          part.find("rope_type").exists() ? part.find("rope_type") : part.find("type");
      if (named.exists() && !named.is_string()) {
        return keys.wrong(message(key, ".rope_type"), named, "a string");
      }
      const std::string name = named.exists() ? named.string() : "default";
      if (!rope.parts_.empty() && name != type) {
        return keys.fail(Kind::kInvalid,
                         "rope_parameters asks for rope_type \"",
                         type,
                         "\", rope_scaling for \"",
                         name,
                         "\": remove one");
      }
      type = name;
      rope.parts_.push_back(part);
    }
    if (!type.empty() && type != "default" && type != "yarn") {
      return keys.fail(
          Kind::kUnsupported, "rope_type is \"", type, "\"; Troupe runs \"default\" and \"yarn\"");
    }
    rope.yarn_ = type == "yarn";
    return rope;
  }

  [[nodiscard]] bool yarn() const { return yarn_; }

  [[nodiscard]] JsonValue find(std::string_view key) const {
    for (const JsonValue part : parts_) {
      if (const JsonValue value = part.find(key); value.exists()) {
        return value;
      }
    }
    return {};
  }

  [[nodiscard]] Result<double> number(std::string_view key,
                                      double low,
                                      double high,
                                      std::optional<double> fallback) const {
    JsonValue value = find(key);
    if (!value.exists() && !yarn_only(key)) {
      value = keys_.find(key);
    }
    if (value.exists()) {
      return keys_.number_of(key, value, low, high);
    }
    if (fallback) {
      return *fallback;
    }
    return keys_.missing(key);
  }

 private:
  explicit RopeKeys(const ConfigKeys& keys) : keys_(keys) {}

  static bool yarn_only(std::string_view key) {
    return key != "rope_theta" && key != "partial_rotary_factor";
  }

  const ConfigKeys& keys_;
  std::vector<JsonValue> parts_;
  bool yarn_ = false;
};

double yarn_magnitude(double factor, double scale) {
  return factor <= 1.0 ? 1.0 : 0.1 * scale * log_d(factor) + 1.0;
}

Status read_yarn(const ConfigKeys& keys, const RopeKeys& rope, ModelConfig& config) {
  RopeConfig& out = config.rope;
  const JsonValue outer = keys.find("original_max_position_embeddings");
  const JsonValue original = outer.exists() ? outer : rope.find("original_max_position_embeddings");
  out.original_context = config.max_position_embeddings;
  if (original.exists()) {
    TROUPE_ASSIGN(out.original_context,
                  keys.number_of("original_max_position_embeddings", original, 1, kMaxContext));
  }
  const double stretch = std::max(1.0, config.max_position_embeddings / out.original_context);
  TROUPE_ASSIGN(out.factor, rope.number("factor", 1, 65536, stretch));
  TROUPE_ASSIGN(out.beta_fast, rope.number("beta_fast", 1e-3, 1e6, 32.0));
  TROUPE_ASSIGN(out.beta_slow, rope.number("beta_slow", 1e-3, 1e6, 1.0));
  if (out.beta_fast < out.beta_slow) {
    return keys.fail(Kind::kInvalid,
                     "beta_fast is ",
                     number_text(out.beta_fast),
                     ", less than beta_slow, ",
                     number_text(out.beta_slow));
  }
  TROUPE_ASSIGN(const double mscale, rope.number("mscale", 0, 100, 0.0));
  TROUPE_ASSIGN(const double mscale_all, rope.number("mscale_all_dim", 0, 100, 0.0));
  const double implied = mscale > 0 && mscale_all > 0 ? yarn_magnitude(out.factor, mscale) /
                                                            yarn_magnitude(out.factor, mscale_all)
                                                      : yarn_magnitude(out.factor, 1.0);
  TROUPE_ASSIGN(out.attention_factor, rope.number("attention_factor", 1e-3, 1e3, implied));
  if (const JsonValue truncate = rope.find("truncate"); truncate.exists()) {
    TROUPE_ASSIGN(out.truncate, keys.flag_of("truncate", truncate));
  }
  const double promised =
      std::min(std::floor(out.factor * out.original_context), double{kMaxContext});
  config.max_position_embeddings =
      std::max(config.max_position_embeddings, static_cast<std::uint32_t>(promised));
  return {};
}

}  // namespace

Status read_rope(const ConfigKeys& keys, ModelConfig& config) {
  TROUPE_ASSIGN(const RopeKeys rope, RopeKeys::open(keys));
  TROUPE_ASSIGN(config.rope.theta, rope.number("rope_theta", 1.0, 1e15, std::nullopt));
  TROUPE_ASSIGN(const double partial, rope.number("partial_rotary_factor", 0.0, 1.0, 0.25));
  config.rope.rotary_dims = static_cast<std::uint32_t>(config.head_dim * partial);
  if (config.rope.rotary_dims == 0 || config.rope.rotary_dims % 2 != 0) {
    return keys.fail(Kind::kInvalid,
                     "head_dim ",
                     config.head_dim,
                     " x partial_rotary_factor ",
                     number_text(partial),
                     " gives ",
                     config.rope.rotary_dims,
                     " rotary dims, expected an even number above 0");
  }
  config.rope.yarn = rope.yarn();
  return rope.yarn() ? read_yarn(keys, rope, config) : Status{};
}

}  // namespace troupe
