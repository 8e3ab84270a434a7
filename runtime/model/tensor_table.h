// TensorTable: every tensor of a model directory under one name, whatever prefix the release wrote,
// and which of them were asked for. Private to runtime/model; owned by the Checkpoint; used by one
// thread while it opens.
//
// TT-1: a name is in at most one file. TT-2: what an index promises is where it says. TT-3: no
// tensor of a
//       quantisation that
// Troupe does not run.
#pragma once

#include "runtime/base/error.h"
#include "runtime/model/safetensors.h"

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace troupe {

// The name without the prefix of its release: "layers.0...", "embed_tokens.weight", "mtp...",
// "visual...".
[[nodiscard]] std::string_view without_prefix(std::string_view stored_name);

class TensorTable final {
 public:
  struct Entry {
    const SafetensorsFile* file = nullptr;
    const StoredTensor* tensor = nullptr;
    bool used = false;
  };

  // Which files: those the index lists; without an index model.safetensors and model-*.safetensors;
  // without these every *.safetensors. From all other *.safetensors there and in mtp/ only the mtp
  // tensors are taken (releases differ).
  [[nodiscard]] static Result<TensorTable> open(const std::filesystem::path& directory);

  [[nodiscard]] Entry* find(std::string_view name);  // null when absent
  [[nodiscard]] bool has(std::string_view name) const { return entries_.contains(name); }
  [[nodiscard]] bool has_mtp() const { return has_mtp_; }
  // kInvalid for the first tensor, by file and offset, that nobody used and that is not part of a
  // vision tower.
  [[nodiscard]] Status check_all_used() const;
  [[nodiscard]] const std::vector<std::unique_ptr<const SafetensorsFile>>& files() const {
    return files_;
  }  // by name
  [[nodiscard]] std::string described() const {
    return description_;
  }  // for messages: the directory

 private:
  [[nodiscard]] Status add(std::unique_ptr<const SafetensorsFile> file, bool mtp_only);
  [[nodiscard]] Status check_index(std::string_view index_name, const ShardIndex& index) const;

  std::string description_;
  std::vector<std::unique_ptr<const SafetensorsFile>> files_;
  std::unordered_map<std::string_view, Entry> entries_;  // keys live in the files' headers
  bool has_mtp_ = false;
};

}  // namespace troupe
