// What a model directory says about ending and sampling: the stop ids of every file that names any,
// and the sampling defaults of generation_config.json. A plain value, read once at load.
#pragma once

#include "runtime/base/error.h"
#include "runtime/text/tokenizer.h"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

namespace troupe {

// Empty where the file says nothing.
struct GenerationDefaults {
  std::optional<bool> do_sample;  // false: greedy
  std::optional<double> temperature;
  std::optional<std::uint32_t> top_k;  // 0: no limit
  std::optional<double> top_p;
  std::optional<double> min_p;
  std::optional<double> repetition_penalty;
  std::optional<std::uint32_t> max_new_tokens;
  bool operator==(const GenerationDefaults&) const = default;
};

struct GenerationConfig {
  std::vector<std::uint32_t> stop_ids;  // ascending, no id twice; may be empty
  GenerationDefaults defaults;
  bool operator==(const GenerationConfig&) const = default;
};

// The stop ids are the union over generation_config.json (eos_token_id: an id or a list),
// tokenizer_config.json (eos_token: a text) and config.json (eos_token_id, at the top and in
// text_config). The union is needed: the config.json of Qwen3.5 names only
// <|endoftext|>, and a chat would never stop. Any of the files may be absent. `tokenizer` may be
// null: its eos_token is then left out. kInvalid: a malformed file, or an eos_token the tokenizer
// lacks.
[[nodiscard]] Result<GenerationConfig> read_generation_config(
    const std::filesystem::path& directory, const Tokenizer* tokenizer);

}  // namespace troupe
