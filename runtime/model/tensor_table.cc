#include "runtime/model/tensor_table.h"

#include "runtime/model/message.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <set>
#include <system_error>

namespace troupe {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kIndexName = "model.safetensors.index.json";
constexpr std::string_view kExtension = ".safetensors";

// Longest first: "model." begins the first one too.
constexpr std::array<std::string_view, 4> kPrefixes = {
    "model.language_model.", "language_model.model.", "model.", "language_model."};

struct ForeignSuffix {
  std::string_view suffix;
  std::string_view method;
};

constexpr std::array<ForeignSuffix, 11> kForeign = {
    {{".qweight", "GPTQ or AWQ"},
     {".qzeros", "GPTQ or AWQ"},
     {".g_idx", "GPTQ"},
     {".weight_packed", "compressed-tensors"},
     {".weight_shape", "compressed-tensors"},
     {".weight_global_scale", "compressed-tensors NVFP4"},
     {".weight_scale_2", "NVFP4"},
     {".weight_scale", "per-tensor or per-channel FP8 or NVFP4"},
     {".input_scale", "static FP8 or NVFP4"},
     {".scales", "GPTQ, AWQ or MLX"},
     {".biases", "MLX"}}};

Status check_method(const SafetensorsFile& file, const StoredTensor& tensor) {
  for (const ForeignSuffix& foreign : kForeign) {
    if (tensor.name.ends_with(foreign.suffix)) {
      return error(
          Kind::kUnsupported,
          message(file.name(),
                  ": tensor \"",
                  tensor.name,
                  "\" belongs to ",
                  foreign.method,
                  " quantisation; Troupe runs unquantised weights and FP8 in blocks of 128 x 128"));
    }
  }
  return {};
}

// Names of the *.safetensors files of the folder, each with `prefix` before it, in order.
Result<std::vector<std::string>> safetensors_in(const fs::path& folder, std::string_view prefix) {
  std::vector<std::string> names;
  std::error_code failure;
  for (fs::directory_iterator entry(folder, failure), end; !failure && entry != end;
       entry.increment(failure)) {
    const std::string name = entry->path().filename().string();
    if (name.ends_with(kExtension)) {
      names.push_back(std::string(prefix) + name);
    }
  }
  if (failure) {
    return error(Kind::kInvalid,
                 message(folder.string(), ": can't be listed: ", failure.message()));
  }
  std::ranges::sort(names);
  return names;
}

bool is_main_name(std::string_view name) {
  return name == "model.safetensors" || name.starts_with("model-");
}

// The N of "model-00001-of-N.safetensors", 0 for other names.
std::uint32_t promised_shards(std::string_view name) {
  name.remove_suffix(kExtension.size());
  const std::size_t at = name.rfind("-of-");
  std::uint32_t count = 0;
  if (at != std::string_view::npos) {
    std::from_chars(name.data() + at + 4, name.data() + name.size(), count);
  }
  return count;
}

Status check_shard_count(const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    const std::uint32_t promised = promised_shards(name);
    if (promised != 0 && promised != names.size()) {
      return error(Kind::kInvalid,
                   message(name,
                           ": its name promises ",
                           promised,
                           " shards, but ",
                           names.size(),
                           " are here: download the others"));
    }
  }
  return {};
}

// The files whose every tensor counts.
Result<std::vector<std::string>> main_files(const std::vector<std::string>& present,
                                            const ShardIndex& index) {
  std::vector<std::string> names;
  if (index.empty()) {
    std::ranges::copy_if(present, std::back_inserter(names), is_main_name);
    names = names.empty() ? present : names;
    TROUPE_TRY(check_shard_count(names));
    return names;
  }
  std::set<std::string> listed;
  for (const auto& [tensor, file] : index) {
    listed.insert(file);
  }
  return std::vector<std::string>(listed.begin(), listed.end());
}

Result<ShardIndex> index_of(const fs::path& directory) {
  std::error_code failure;
  const fs::path path = directory / kIndexName;
  if (!fs::exists(path, failure)) {
    return ShardIndex{};
  }
  TROUPE_ASSIGN(ShardIndex index, read_shard_index(path, kIndexName));
  if (index.empty()) {
    return error(Kind::kInvalid, message(kIndexName, ": weight_map is empty"));
  }
  for (const auto& [tensor, file] : index) {
    if (!fs::exists(directory / file, failure)) {
      return error(Kind::kInvalid,
                   message(kIndexName,
                           ": tensor \"",
                           tensor,
                           "\" is in shard ",
                           file,
                           ", which is not here: download it"));
    }
  }
  return index;
}

}  // namespace

std::string_view without_prefix(std::string_view stored_name) {
  for (const std::string_view prefix : kPrefixes) {
    if (stored_name.starts_with(prefix)) {
      return stored_name.substr(prefix.size());
    }
  }
  return stored_name;
}

Result<TensorTable> TensorTable::open(const fs::path& directory) {
  std::error_code failure;
  if (!fs::is_directory(directory, failure)) {
    return error(Kind::kInvalid,
                 message(directory.string(), ": not a directory; give the folder of the model"));
  }
  TROUPE_ASSIGN(const ShardIndex index, index_of(directory));
  TROUPE_ASSIGN(const std::vector<std::string> present, safetensors_in(directory, ""));
  TROUPE_ASSIGN(const std::vector<std::string> main, main_files(present, index));
  if (main.empty()) {
    return error(Kind::kInvalid,
                 message(directory.string(), ": no *.safetensors file in this directory"));
  }
  TensorTable table;
  table.description_ = directory.string();
  for (const std::string& name : main) {
    TROUPE_ASSIGN(auto file, SafetensorsFile::open(directory / name, name));
    TROUPE_TRY(table.add(std::move(file), false));
  }
  TROUPE_TRY(table.check_index(kIndexName, index));

  std::vector<std::string> others = present;
  if (fs::is_directory(directory / "mtp", failure)) {
    TROUPE_ASSIGN(const std::vector<std::string> inner, safetensors_in(directory / "mtp", "mtp/"));
    others.insert(others.end(), inner.begin(), inner.end());
  }
  for (const std::string& name : others) {
    if (std::ranges::find(main, name) == main.end()) {
      TROUPE_ASSIGN(auto file, SafetensorsFile::open(directory / name, name));
      TROUPE_TRY(table.add(std::move(file), true));
    }
  }
  std::ranges::sort(
      table.files_, {}, [](const auto& file) -> const std::string& { return file->name(); });
  return table;
}

Status TensorTable::add(std::unique_ptr<const SafetensorsFile> file, bool mtp_only) {
  bool wanted = !mtp_only;
  for (const StoredTensor& tensor : file->tensors()) {
    const std::string_view name = without_prefix(tensor.name);
    const bool mtp = name.starts_with("mtp.");
    if ((mtp_only && !mtp) || name.starts_with("visual.")) {
      continue;
    }
    wanted = true;
    has_mtp_ = has_mtp_ || mtp;
    TROUPE_TRY(check_method(*file, tensor));
    const auto [at, fresh] = entries_.try_emplace(name, Entry{file.get(), &tensor});
    if (!fresh) {
      return error(Kind::kInvalid,
                   message(file->name(),
                           ": tensor \"",
                           tensor.name,
                           "\" is also in ",
                           at->second.file->name(),
                           " as \"",
                           at->second.tensor->name,
                           "\": keep one of the two"));
    }
  }
  if (!wanted) {
    return {};
  }
  if (file->format() == "mlx") {
    return error(
        Kind::kUnsupported,
        message(file->name(),
                ": an MLX export, whose norms are stored as 1 + w: use the original release"));
  }
  files_.push_back(std::move(file));
  return {};
}

Status TensorTable::check_index(std::string_view index_name, const ShardIndex& index) const {
  std::unordered_map<std::string_view, std::string_view> where;
  for (const auto& file : files_) {
    for (const StoredTensor& tensor : file->tensors()) {
      where.emplace(tensor.name, file->name());
    }
  }
  for (const auto& [tensor, file] : index) {
    const auto found = where.find(tensor);
    if (found == where.end() || found->second != file) {
      return error(Kind::kInvalid,
                   message(index_name,
                           ": tensor \"",
                           tensor,
                           "\" is said to be in ",
                           file,
                           ", which does not have it: download index and shards again"));
    }
  }
  return {};
}

TensorTable::Entry* TensorTable::find(std::string_view name) {
  const auto found = entries_.find(name);
  return found == entries_.end() ? nullptr : &found->second;
}

Status TensorTable::check_all_used() const {
  for (const auto& file : files_) {
    for (const StoredTensor& tensor : file->tensors()) {
      const auto found = entries_.find(without_prefix(tensor.name));
      if (found != entries_.end() && found->second.tensor == &tensor && !found->second.used) {
        return error(Kind::kInvalid,
                     message(file->name(),
                             ": tensor \"",
                             tensor.name,
                             "\" (",
                             tensor.dtype_name,
                             " ",
                             shape_text(tensor.shape),
                             ") is not one that config.json asks for"));
      }
    }
  }
  return {};
}

}  // namespace troupe
