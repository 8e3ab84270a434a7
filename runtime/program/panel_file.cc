#include "runtime/program/panel_file.h"

#include "runtime/base/sha256.h"
#include "runtime/program/ledger.h"
#include "runtime/program/parameter_store.h"

#define XXH_INLINE_ALL
#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <system_error>
#include <type_traits>
#include <unistd.h>
#include <utility>
#include <xxhash.h>

namespace troupe {
namespace {

// Raise it with every change of what pack_panels or ParameterStore writes; a test holds the digest
// of a packed sample against it.
constexpr std::uint32_t kPackingVersion = 1;

constexpr std::uint64_t kChunk = 4ULL << 20;
constexpr std::uint64_t kPage = 4096;
constexpr std::uint64_t kLargePage = 2ULL << 20;
constexpr std::chrono::seconds kPatience{10};
constexpr std::uint64_t kFreeAfterwards = 1ULL << 30;
constexpr std::array<char, 16> kMagic = {
    't', 'r', 'o', 'u', 'p', 'e', ' ', 'p', 'a', 'n', 'e', 'l', 's', ' ', '1', '\n'};
constexpr std::size_t kHashDigits = 64;

struct Header {
  std::array<char, 16> magic = kMagic;
  std::array<char, kHashDigits> hash{};
  std::uint64_t arena_bytes = 0;
  std::uint64_t chunk_bytes = kChunk;
  std::uint64_t table_digest = 0;
  std::uint64_t digest = 0;  // of all before it
};
static_assert(std::is_trivially_copyable_v<Header> && sizeof(Header) == 112);

std::uint64_t digest_of(const void* data, std::size_t bytes) {
  return XXH3_64bits(data, bytes);
}

std::uint64_t digest_of(const Header& header) {
  return digest_of(&header, offsetof(Header, digest));
}

std::uint64_t digest_of(const std::vector<std::uint64_t>& table) {
  return digest_of(table.data(), table.size() * sizeof(std::uint64_t));
}

std::size_t chunk_count(std::uint64_t arena_bytes) {
  return (arena_bytes + kChunk - 1) / kChunk;
}

std::uint64_t arena_offset_of(std::uint64_t arena_bytes) {
  const std::uint64_t table = chunk_count(arena_bytes) * sizeof(std::uint64_t);
  return (kPage + table + kLargePage - 1) / kLargePage * kLargePage;
}

Header header_of(const std::string& hash, std::uint64_t arena_bytes) {
  TROUPE_CHECK(hash.size() == kHashDigits, "a key's hash has 64 digits");
  Header header;
  std::copy(hash.begin(), hash.end(), header.hash.begin());
  header.arena_bytes = arena_bytes;
  return header;
}

std::string system_message() {
  return std::error_code(errno, std::generic_category()).message();
}

bool read_at(int fd, std::uint64_t offset, void* out, std::size_t bytes) {
  auto* to = static_cast<std::byte*>(out);
  while (bytes > 0) {
    const ssize_t got = ::pread(fd, to, bytes, static_cast<off_t>(offset));
    if (got <= 0) {
      if (got < 0 && errno == EINTR) {
        continue;
      }
      return false;
    }
    to += got;
    offset += static_cast<std::uint64_t>(got);
    bytes -= static_cast<std::size_t>(got);
  }
  return true;
}

Status write_at(int fd, std::uint64_t offset, const void* data, std::size_t bytes) {
  const auto* from = static_cast<const std::byte*>(data);
  while (bytes > 0) {
    const ssize_t put = ::pwrite(fd, from, bytes, static_cast<off_t>(offset));
    if (put < 0 && errno == EINTR) {
      continue;
    }
    if (put <= 0) {
      return error(Kind::kInternal, "could not be written: " + system_message());
    }
    from += put;
    offset += static_cast<std::uint64_t>(put);
    bytes -= static_cast<std::size_t>(put);
  }
  return {};
}

// Every field that says what lies where in the arena.
std::string layout_text(const WeightLayout& layout) {
  std::string text;
  const auto number = [&text](std::uint64_t value) { text += std::to_string(value) + " "; };
  for (const PackedParameter& p : layout.parameters) {
    number(static_cast<std::uint64_t>(p.packing));
    number(static_cast<std::uint64_t>(p.format));
    number(static_cast<std::uint64_t>(p.table_type));
    for (const std::uint64_t value : {std::uint64_t{p.per_matrix},
                                      std::uint64_t{p.rows},
                                      std::uint64_t{p.columns},
                                      p.offset,
                                      p.matrix_bytes,
                                      p.scale_offset,
                                      p.scale_bytes}) {
      number(value);
    }
    for (const std::string& name : p.names) {
      text += name + " ";
    }
    text += "\n";
  }
  number(layout.rope_offset);
  number(layout.bytes);
  return text;
}

Result<File> open_part(const std::filesystem::path& part) {
  File file(::open(part.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  if (file.fd() < 0) {
    return error(Kind::kInternal, "could not be created: " + system_message());
  }
  // The name may have gone to a finished file between the two calls; that one is not ours to
  // change.
  struct stat opened {};
  struct stat named {};
  if (::flock(file.fd(), LOCK_EX | LOCK_NB) != 0 || ::fstat(file.fd(), &opened) != 0 ||
      ::stat(part.c_str(), &named) != 0 || opened.st_ino != named.st_ino) {
    return error(Kind::kOverloaded, "another process is writing it");
  }
  if (::ftruncate(file.fd(), 0) != 0) {
    return error(Kind::kInternal, "could not be emptied: " + system_message());
  }
  return file;
}

Status check_space(int fd, std::uint64_t bytes) {
  struct statvfs disk {};
  if (::fstatvfs(fd, &disk) != 0) {
    return error(Kind::kInternal, "the free space is unknown: " + system_message());
  }
  const std::uint64_t free = std::uint64_t{disk.f_bavail} * disk.f_frsize;
  if (free < bytes + kFreeAfterwards) {
    return error(Kind::kOverloaded,
                 "it needs " + bytes_text(bytes) + ", and 1.0 GiB must stay free; the disk has " +
                     bytes_text(free));
  }
  return {};
}

Status write_all(int fd,
                 const std::string& hash,
                 std::span<const std::byte> arena,
                 const std::atomic<bool>& stop) {
  const std::uint64_t offset = arena_offset_of(arena.size());
  TROUPE_TRY(check_space(fd, offset + arena.size()));
  std::vector<std::uint64_t> table;
  for (std::size_t chunk = 0; chunk < chunk_count(arena.size()); ++chunk) {
    if (stop.load(std::memory_order_relaxed)) {
      return error(Kind::kCancelled, "it was given up");
    }
    const std::uint64_t begin = chunk * kChunk;
    const auto bytes = arena.subspan(begin, std::min(kChunk, arena.size() - begin));
    table.push_back(digest_of(bytes.data(), bytes.size()));
    TROUPE_TRY(write_at(fd, offset + begin, bytes.data(), bytes.size()));
  }
  Header header = header_of(hash, arena.size());
  header.table_digest = digest_of(table);
  header.digest = digest_of(header);
  TROUPE_TRY(write_at(fd, kPage, table.data(), table.size() * sizeof(std::uint64_t)));
  return write_at(fd, 0, &header, sizeof header);
}

}  // namespace

PanelKey make_panel_key(const Checkpoint& checkpoint,
                        const WeightLayout& layout,
                        const ModelConfig& config) {
  const std::string arena =
      "packing " + std::to_string(kPackingVersion) + "\n" + layout_text(layout);
  Sha256 hash;
  hash.update(arena);
  const std::vector<float> rope = rope_inverse_frequencies(config.rope);
  hash.update(std::as_bytes(std::span(rope)));
  hash.update(checkpoint.header_digest());
  hash.update(checkpoint.file_identity());
  return {.file_name = "troupe-" + sha256_hex(arena).substr(0, 12) + ".panels", .hash = hash.hex()};
}

PanelFile::PanelFile(const std::filesystem::path& path,
                     const std::string& hash,
                     std::uint64_t arena_bytes)
    : file_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)), arena_bytes_(arena_bytes) {
  if (file_.fd() < 0) {
    set_fault(errno == ENOENT ? Fault::kAbsent : Fault::kOther,
              errno == ENOENT ? "is not there" : "can't be opened: " + system_message());
    return;
  }
  Header header;
  struct stat status {};
  if (::fstat(file_.fd(), &status) != 0 || !read_at(file_.fd(), 0, &header, sizeof header) ||
      header.magic != kMagic || header.digest != digest_of(header)) {
    set_fault(Fault::kDamaged, "has a damaged header");
    return;
  }
  Header wanted = header_of(hash, arena_bytes);
  if (header.hash != wanted.hash) {
    set_fault(Fault::kOther, "is of other files or another version");
    return;
  }
  digests_.resize(chunk_count(arena_bytes));
  if (header.arena_bytes != arena_bytes || header.chunk_bytes != kChunk ||
      static_cast<std::uint64_t>(status.st_size) != arena_offset() + arena_bytes ||
      !read_at(file_.fd(), kPage, digests_.data(), digests_.size() * sizeof(std::uint64_t)) ||
      digest_of(digests_) != header.table_digest) {
    set_fault(Fault::kDamaged, "is cut short or has damaged digests");
  }
}

void PanelFile::set_fault(Fault fault, std::string reason) {
  fault_ = fault;
  reason_ = std::move(reason);
}

std::uint64_t PanelFile::arena_offset() const {
  return arena_offset_of(arena_bytes_);
}

bool PanelFile::is_intact(std::size_t chunk, std::byte* arena) const {
  const std::uint64_t begin = chunk * kChunk;
  const std::uint64_t bytes = std::min(kChunk, arena_bytes_ - begin);
  // One call instead of a fault for every few pages; where the system has none, the faults do it.
  (void)::madvise(arena + begin, bytes, MADV_POPULATE_READ);
  return digest_of(arena + begin, bytes) == digests_[chunk];
}

Status write_panel_file(const std::filesystem::path& path,
                        const std::string& hash,
                        std::span<const std::byte> arena,
                        const std::atomic<bool>& stop) {
  const auto named = [&path](const Error& e) {
    return error(e.kind, "packed weights " + path.string() + ": " + e.message);
  };
  const std::filesystem::path part = path.string() + ".part";
  auto file = open_part(part);
  if (!file) {
    return named(file.error());
  }
  if (const Status written = write_all(file->fd(), hash, arena, stop); !written) {
    (void)::unlink(part.c_str());
    return named(written.error());
  }
  if (::rename(part.c_str(), path.c_str()) != 0) {
    const std::string reason = system_message();
    (void)::unlink(part.c_str());
    return named({.kind = Kind::kInternal, .message = "could not be renamed: " + reason});
  }
  return {};
}

Result<std::unique_ptr<PanelWriter>> PanelWriter::start(const std::filesystem::path& path,
                                                        const std::string& hash,
                                                        std::span<const std::byte> arena,
                                                        std::function<void(const Status&)> done) {
  std::unique_ptr<PanelWriter> writer(new PanelWriter());
  writer->running_ = true;
  Status started = writer->thread_.start(
      "panels", [path, hash, arena, done = std::move(done), self = writer.get()] {
        (void)::setpriority(PRIO_PROCESS, 0, 19);  // of this thread only; a wish
        done(write_panel_file(path, hash, arena, self->stop_));
        const std::scoped_lock lock(self->mutex_);
        self->running_ = false;
        self->ended_.notify_all();
      });
  if (!started) {
    writer->running_ = false;
    return tl::unexpected(std::move(started).error());
  }
  return writer;
}

PanelWriter::~PanelWriter() {
  std::unique_lock lock(mutex_);
  (void)ended_.wait_for(lock, kPatience, [this] { return !running_; });
  lock.unlock();
  give_up();
}

void PanelWriter::give_up() {
  stop_.store(true, std::memory_order_relaxed);
  thread_.join();
}

}  // namespace troupe
