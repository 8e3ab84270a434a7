// Device: where programs run. It owns memory and workers; one actor owns it. Work is submitted,
// never waited for: the completion callback, on a thread of the device, posts one message and
// returns (decision D10).
//
// DV-1: submissions run in order (FIFO); a submission's launches run in order, each complete before
//       the next begins.
// DV-2: submit() never blocks and never runs the work on the caller's thread, except on an inline
//       device.
// DV-3: a Buffer outlives every submission that names it; the submitter sees to that.
// DV-4: after allocation and warm-up nothing here allocates per submission.
// DV-5: every accepted submission's `done` is called exactly once; those that a dying device no
//       longer runs end with kDisconnected.
// DV-6: an idle device uses no processor time.
#pragma once

#include "kernels/ops.h"
#include "runtime/base/error.h"
#include "runtime/base/sources.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

namespace troupe {

// 64-byte aligned memory of a device, given back when destroyed; it may outlive the device.
class Buffer {
 public:
  virtual ~Buffer() = default;
  [[nodiscard]] virtual std::byte* data() = 0;
  [[nodiscard]] virtual std::size_t size() const = 0;
};

struct DeviceInfo {
  std::string name;           // "cpu:0"
  std::string kernel_set;     // chosen kernels, e.g. "avx2"
  std::string choice_reason;  // why these, with figures
  std::uint32_t threads = 1;
  std::uint64_t memory_bytes = 0;     // what its buffers may take together, beside scratch
  std::uint64_t available_bytes = 0;  // what the system had free when the device was made
};

// Counted since the device was made.
struct DeviceStats {
  std::uint64_t submissions = 0;      // completed
  std::uint64_t launches = 0;         // kernel calls completed
  std::uint64_t late_workers = 0;     // times a worker held up a launch without computing
  std::uint32_t resting_workers = 0;  // left out at present because they were late
};

// One kernel call: arguments live in a Program that outlives the submission.
struct KernelCall {
  KernelId id = KernelId::kEmbed;
  const void* args = nullptr;
};

struct WorkResult {
  Status status;     // kDisconnected when the device failed
  Time duration{0};  // of the work itself
};

struct LaunchTime {
  Time began{0};
  Time ended{0};
};

// Called after every launch of a submission that asks for it, on the thread that runs the work. For
// tests and profiles.
using LaunchObserver =
    std::function<void(std::size_t launch, const KernelEnv& env, const LaunchTime& time)>;

struct Work {
  std::span<const KernelCall> calls{};
  Activation activation = Activation::kBF16;
  KernelEnv env{};
  const LaunchObserver* observer = nullptr;  // may be null
  // Never null. Called on the thread that runs the work; it outlives its own return, which drain()
  // and the device's destructor wait for.
  std::function<void(const WorkResult&)>* done = nullptr;
};

class Device {
 public:
  virtual ~Device() = default;
  [[nodiscard]] virtual const DeviceInfo& info() const = 0;
  [[nodiscard]] virtual const KernelSet& kernels() const = 0;
  [[nodiscard]] virtual DeviceStats stats() const = 0;  // any thread

  // Zeroed. kOverloaded when it does not fit, with the arithmetic; `purpose` names it.
  [[nodiscard]] virtual Result<std::unique_ptr<Buffer>> allocate(std::size_t bytes,
                                                                 const std::string& purpose) = 0;

  // A buffer over pages of the system's file cache: `bytes` (not 0) of an open file from `offset`,
  // a multiple of 4096. What is written to it stays in this process; `fd` may be closed afterwards.
  // Counted like an allocated one. kUnsupported on devices that can't compute from such pages.
  [[nodiscard]] virtual Result<std::unique_ptr<Buffer>> map_file(int fd,
                                                                 std::uint64_t offset,
                                                                 std::size_t bytes,
                                                                 const std::string& purpose) = 0;

  // Any thread. kOverloaded when the queue is full; it is as long as the sum of the contexts of the
  // device's executables, and the submission that runs is no longer in it.
  virtual Status submit(const Work& work) = 0;

  // Runs f(0) … f(count-1), spread over the workers and the caller, one index at a time, and
  // returns when all are done. For loading; work submitted meanwhile waits. count < 2^32.
  virtual void parallel_for(std::size_t count, const std::function<void(std::size_t)>& f) = 0;

  // Waits until everything submitted has completed, its callback included. kOverloaded when that
  // takes longer than `deadline` from now.
  virtual Status drain(Time deadline) = 0;
};

struct CpuDeviceOptions {
  std::string name = "cpu:0";   // for messages and reports
  std::uint32_t threads = 0;    // 0: as many as the process may use
  std::string kernel_set = {};  // empty: measured at start (decision D8)
  Activation activation = Activation::kBF16;
  std::uint64_t memory_bytes = 0;  // 0: what the system has available, which is the most
  bool run_inline = false;  // submit() runs the work at once on the caller's thread, the only one
  std::uint32_t queue = 8;
};

// Errors: kInvalid for an unknown kernel set (lists the known ones), kUnsupported for one that this
// processor lacks or that has no fp32 activations, kOverloaded when threads or their scratch can't
// be had. `clock` outlives the device; unless it runs inline it is read from the device's threads.
[[nodiscard]] Result<std::unique_ptr<Device>> make_cpu_device(const CpuDeviceOptions& options,
                                                              const Clock& clock);

// The same with kernels of the caller's, which outlive the device; options.kernel_set is not read.
[[nodiscard]] Result<std::unique_ptr<Device>> make_cpu_device_with(const CpuDeviceOptions& options,
                                                                   const Clock& clock,
                                                                   const KernelSet& kernels);

}  // namespace troupe
