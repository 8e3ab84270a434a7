// PanelFile: a stage's packed weights in a file, so that a later start maps them instead of packing
// them again: it costs no memory of its own, and processes of one machine share the pages.
//
//   header (4096 bytes) | digest of each chunk | padding to 2 MiB | the weights arena
//
// PF-1: a file appears under its name whole: it is written under another name and renamed, by one
//       writer at a time.
// PF-2: no byte is used before the digest of its chunk was right, so a file that a power cut, a
//       full disk or a bad copy has damaged is packed and written again.
// PF-3: the key covers all that the arena depends on (make_panel_key); a file with another key is
//       not used, and replaced. Panels are the same for every kernel set (decision D8), so the
//       kernel set is no part of it.
// Files are replaced, never changed in place: who truncates one that a process has mapped ends that
// process (SIGBUS).
#pragma once

#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "runtime/circuit/layout.h"
#include "runtime/device/thread.h"
#include "runtime/model/checkpoint.h"
#include "runtime/model/config.h"

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

namespace troupe {

struct PanelKey {
  std::string file_name;  // of the layout only: another release of a model replaces the file
  std::string hash;       // 64 hex digits
};

// Of the checkpoint's files (what they say and when they last changed, not every byte: that would
// cost what the panels save), of the layout, and of the version of the packing.
[[nodiscard]] PanelKey make_panel_key(const Checkpoint& checkpoint,
                                      const WeightLayout& layout,
                                      const ModelConfig& config);

class PanelFile final {
 public:
  enum class Fault : std::uint8_t { kNone, kAbsent, kOther, kDamaged };

  // Reads header and digests; fault() says why the file can't be used. `arena_bytes` is not 0.
  PanelFile(const std::filesystem::path& path, const std::string& hash, std::uint64_t arena_bytes);

  [[nodiscard]] Fault fault() const { return fault_; }
  // "is not there", "is of other weights", ...: for messages.
  [[nodiscard]] const std::string& reason() const { return reason_; }

  [[nodiscard]] int fd() const { return file_.fd(); }
  [[nodiscard]] std::uint64_t arena_offset() const;  // a multiple of 2 MiB
  [[nodiscard]] std::size_t chunks() const { return digests_.size(); }
  // `arena`: where the file is mapped. Any thread.
  [[nodiscard]] bool is_intact(std::size_t chunk, std::byte* arena) const;

 private:
  void set_fault(Fault fault, std::string reason);

  File file_;
  std::uint64_t arena_bytes_;
  std::vector<std::uint64_t> digests_;
  Fault fault_ = Fault::kNone;
  std::string reason_;
};

// Writes the file and gives it its name. kOverloaded when the disk would keep less than 1 GiB free
// or another process is writing it; kCancelled when `stop` became true; kInternal for what the
// system refuses. Nothing is left behind but, after a crash, one part file that the next writer
// uses again.
[[nodiscard]] Status write_panel_file(const std::filesystem::path& path,
                                      const std::string& hash,
                                      std::span<const std::byte> arena,
                                      const std::atomic<bool>& stop);

// Writes a panel file on a thread of its own, of least priority. The arena may not change
// meanwhile.
class PanelWriter final {
 public:
  // `done` is called on that thread, once.
  [[nodiscard]] static Result<std::unique_ptr<PanelWriter>> start(
      const std::filesystem::path& path,
      const std::string& hash,
      std::span<const std::byte> arena,
      std::function<void(const Status&)> done);
  // Waits up to ten seconds for the file, so that a short run leaves one, then gives up.
  ~PanelWriter();
  PanelWriter(const PanelWriter&) = delete;
  PanelWriter& operator=(const PanelWriter&) = delete;

  // Before the arena changes: nothing is read of it any more when this returns.
  void give_up();

 private:
  PanelWriter() = default;
  std::atomic<bool> stop_ = false;
  std::mutex mutex_;
  std::condition_variable ended_;
  bool running_ = false;
  Thread thread_;
};

}  // namespace troupe
