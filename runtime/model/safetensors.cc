#include "runtime/model/safetensors.h"

#include "runtime/model/json.h"
#include "runtime/model/message.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>

namespace troupe {
namespace {

static_assert(std::endian::native == std::endian::little,
              "safetensors data is little-endian and is used in place");

constexpr std::uint64_t kLengthBytes = 8;
constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;  // the limit of the format
constexpr std::uint64_t kMaxIndexBytes = 256ULL << 20;
constexpr std::size_t kMaxRank = 8;

struct StoredType {
  std::string_view name;
  std::uint64_t bytes;
  std::optional<DType> dtype;
};

constexpr std::array<StoredType, 17> kStoredTypes = {{{"F32", 4, DType::kF32},
                                                      {"BF16", 2, DType::kBF16},
                                                      {"F16", 2, DType::kF16},
                                                      {"F8_E4M3", 1, DType::kF8E4M3},
                                                      {"I32", 4, DType::kI32},
                                                      {"I64", 8, DType::kI64},
                                                      {"U8", 1, DType::kU8},
                                                      {"F64", 8, DType::kF64},
                                                      {"F8_E5M2", 1, std::nullopt},
                                                      {"F8_E8M0", 1, std::nullopt},
                                                      {"BOOL", 1, std::nullopt},
                                                      {"I8", 1, std::nullopt},
                                                      {"I16", 2, std::nullopt},
                                                      {"U16", 2, std::nullopt},
                                                      {"U32", 4, std::nullopt},
                                                      {"U64", 8, std::nullopt},
                                                      {"C64", 8, std::nullopt}}};

std::string last_error() {
  return std::error_code(errno, std::generic_category()).message();
}

// The numbers of a JSON list, or nothing if it is anything but a list of non-negative 64-bit
// integers.
std::optional<std::vector<std::uint64_t>> unsigned_list(JsonValue list) {
  if (!list.is_array()) {
    return std::nullopt;
  }
  std::vector<std::uint64_t> numbers;
  for (const JsonValue entry : list.elements()) {
    const auto number = entry.integer();
    if (!number) {
      return std::nullopt;
    }
    numbers.push_back(*number);
  }
  return numbers;
}

// Bytes that a shape needs, or nothing if 64 bits can't count them.
std::optional<std::uint64_t> bytes_of(const std::vector<std::uint64_t>& shape,
                                      std::uint64_t element) {
  std::uint64_t bytes = element;
  for (const std::uint64_t size : shape) {
    if (__builtin_mul_overflow(bytes, size, &bytes)) {
      return std::nullopt;
    }
  }
  return bytes;
}

Result<StoredTensor> read_entry(const std::string& file, const std::string& name, JsonValue entry) {
  const auto fail = [&file, &name](const auto&... parts) {
    return error(Kind::kInvalid, message(file, ": tensor \"", name, "\" ", parts...));
  };
  if (!entry.is_object()) {
    return fail("is not a JSON object");
  }
  const JsonValue type = entry.find("dtype");
  if (!type.is_string()) {
    return fail("has no dtype");
  }
  StoredTensor tensor{.name = name, .dtype_name = type.string(), .dtype = {}, .shape = {}};
  const auto known =
      std::ranges::find(kStoredTypes, std::string_view(tensor.dtype_name), &StoredType::name);
  if (known == kStoredTypes.end()) {
    return fail("has unknown dtype \"", tensor.dtype_name, "\"");
  }
  tensor.dtype = known->dtype;
  const auto shape = unsigned_list(entry.find("shape"));
  if (!shape || shape->size() > kMaxRank) {
    return fail(
        "has no valid shape: expected a list of at most ", kMaxRank, " non-negative integers");
  }
  tensor.shape = *shape;
  const auto offsets = unsigned_list(entry.find("data_offsets"));
  if (!offsets || offsets->size() != 2 || (*offsets)[0] > (*offsets)[1]) {
    return fail("has no valid data_offsets: expected [begin, end] with begin <= end");
  }
  tensor.begin = (*offsets)[0];
  tensor.end = (*offsets)[1];
  const auto needed = bytes_of(tensor.shape, known->bytes);
  if (!needed) {
    return fail("has shape ", shape_text(tensor.shape), ", too large to count its bytes");
  }
  if (*needed != tensor.end - tensor.begin) {
    return fail("has ",
                tensor.end - tensor.begin,
                " bytes, but shape ",
                shape_text(tensor.shape),
                " of ",
                tensor.dtype_name,
                " needs ",
                *needed);
  }
  return tensor;
}

}  // namespace

std::string shape_text(const std::vector<std::uint64_t>& shape) {
  std::string text = "[";
  for (std::size_t i = 0; i < shape.size(); ++i) {
    text += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
  }
  return text + "]";
}

Result<std::unique_ptr<const SafetensorsFile>> SafetensorsFile::open(
    const std::filesystem::path& path, std::string name) {
  std::unique_ptr<SafetensorsFile> file(new SafetensorsFile(std::move(name)));
  TROUPE_TRY(file->map(path));
  TROUPE_TRY(file->read_header());
  TROUPE_TRY(file->check_layout());
  return file;
}

SafetensorsFile::~SafetensorsFile() {
  if (map_ != nullptr) {
    ::munmap(const_cast<std::byte*>(map_), static_cast<std::size_t>(bytes_));
  }
}

Status SafetensorsFile::map(const std::filesystem::path& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) {
    return error(Kind::kInvalid, message(name_, ": can't be opened: ", last_error()));
  }
  struct stat status {};
  if (::fstat(descriptor, &status) != 0 || !S_ISREG(status.st_mode)) {
    ::close(descriptor);
    return error(Kind::kInvalid, message(name_, ": not a regular file"));
  }
  bytes_ = static_cast<std::uint64_t>(status.st_size);
  identity_ = message(status.st_ino,
                      " ",
                      bytes_,
                      " ",
                      status.st_mtim.tv_sec,
                      ".",
                      status.st_mtim.tv_nsec,
                      " ",
                      status.st_ctim.tv_sec,
                      ".",
                      status.st_ctim.tv_nsec);
  if (bytes_ < kLengthBytes) {
    ::close(descriptor);
    return error(
        Kind::kInvalid,
        message(name_, ": truncated: ", bytes_, " bytes, a safetensors file has at least 8"));
  }
  void* address =
      ::mmap(nullptr, static_cast<std::size_t>(bytes_), PROT_READ, MAP_PRIVATE, descriptor, 0);
  const std::string reason = address == MAP_FAILED ? last_error() : "";
  ::close(descriptor);
  if (address == MAP_FAILED) {
    return error(Kind::kInternal, message(name_, ": can't map ", bytes_, " bytes: ", reason));
  }
  map_ = static_cast<const std::byte*>(address);
  return {};
}

Status SafetensorsFile::read_header() {
  std::memcpy(&header_bytes_, map_, kLengthBytes);
  if (header_bytes_ < 2 || header_bytes_ > kMaxHeaderBytes) {
    return error(Kind::kInvalid,
                 message(name_,
                         ": header length is ",
                         header_bytes_,
                         ", expected 2 to ",
                         kMaxHeaderBytes,
                         " bytes: not a safetensors file"));
  }
  if (header_bytes_ > bytes_ - kLengthBytes) {
    return error(Kind::kInvalid,
                 message(name_,
                         ": truncated: header of ",
                         header_bytes_,
                         " bytes, but the file has ",
                         bytes_ - kLengthBytes,
                         " after the length: download it again"));
  }
  TROUPE_ASSIGN(const ModelJson document, ModelJson::parse(header(), message(name_, ": header")));
  for (const auto& [name, entry] : document.root().members()) {
    if (name == "__metadata__") {
      format_ = entry.find("format").string();
      continue;
    }
    TROUPE_ASSIGN(StoredTensor tensor, read_entry(name_, name, entry));
    tensors_.push_back(std::move(tensor));
  }
  return {};
}

Status SafetensorsFile::check_layout() {
  std::ranges::sort(tensors_, [](const StoredTensor& a, const StoredTensor& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  const std::uint64_t available = bytes_ - kLengthBytes - header_bytes_;
  std::uint64_t expected = 0;
  std::string_view previous = "the header";
  for (const StoredTensor& tensor : tensors_) {
    if (tensor.end > available) {
      return error(Kind::kInvalid,
                   message(name_,
                           ": tensor \"",
                           tensor.name,
                           "\" ends at byte ",
                           tensor.end,
                           " of the data, but the file has ",
                           available,
                           ": truncated, download it again"));
    }
    if (tensor.begin != expected) {
      return error(Kind::kInvalid,
                   message(name_,
                           ": tensor \"",
                           tensor.name,
                           "\" starts at byte ",
                           tensor.begin,
                           tensor.begin < expected ? ", overlapping " : ", leaving a gap after ",
                           previous,
                           ", which ends at ",
                           expected));
    }
    expected = tensor.end;
    previous = tensor.name;
  }
  if (expected != available) {
    return error(
        Kind::kInvalid,
        message(name_, ": ", available - expected, " bytes after the last tensor belong to none"));
  }
  return {};
}

Result<ShardIndex> read_shard_index(const std::filesystem::path& path, std::string_view file_name) {
  TROUPE_ASSIGN(const ModelJson document, ModelJson::read(path, file_name, kMaxIndexBytes));
  const JsonValue weights = document.root().find("weight_map");
  if (!weights.is_object()) {
    return error(Kind::kInvalid, message(file_name, ": no object \"weight_map\" in it"));
  }
  ShardIndex index;
  for (const auto& [tensor, file] : weights.members()) {
    const std::filesystem::path shard = file.string();
    const bool safe =
        !shard.empty() && shard.is_relative() && std::ranges::find(shard, "..") == shard.end();
    if (!safe) {
      return error(Kind::kInvalid,
                   message(file_name,
                           ": tensor \"",
                           tensor,
                           "\" is said to be in ",
                           file.shown(),
                           ", expected the name of a file in this directory"));
    }
    index.emplace_back(tensor, shard.lexically_normal().string());
  }
  return index;
}

}  // namespace troupe
