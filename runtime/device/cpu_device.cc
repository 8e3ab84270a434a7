#include "runtime/device/cpu_device.h"

#include "runtime/device/memory.h"
#include "runtime/device/system_limits.h"
#include "runtime/device/thread.h"
#include "runtime/device/worker_pool.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <limits>
#include <mutex>
#include <utility>
#include <vector>

namespace troupe {

namespace {

constexpr std::uint32_t kMostThreads = 1024;
constexpr std::uint32_t kMostQueued = 1U << 16;

class CpuDevice final : public Device {
 public:
  CpuDevice(DeviceInfo info,
            const KernelSet& kernels,
            const Clock& clock,
            std::unique_ptr<WorkerPool> pool)
      : info_(std::move(info)),
        kernels_(kernels),
        clock_(clock),
        ledger_(std::make_shared<MemoryBudget>(info_.name, info_.memory_bytes)),
        pool_(std::move(pool)) {}
  ~CpuDevice() override;
  CpuDevice(const CpuDevice&) = delete;
  CpuDevice& operator=(const CpuDevice&) = delete;

  // Gives it a queue and a thread; without, submit() runs the work itself.
  Status start(std::uint32_t queue);

  [[nodiscard]] const DeviceInfo& info() const override { return info_; }
  [[nodiscard]] const KernelSet& kernels() const override { return kernels_; }
  [[nodiscard]] DeviceStats stats() const override;
  [[nodiscard]] Result<std::unique_ptr<Buffer>> allocate(std::size_t bytes,
                                                         const std::string& purpose) override {
    return make_buffer(ledger_, bytes, purpose);
  }
  [[nodiscard]] Result<std::unique_ptr<Buffer>> map_file(int fd,
                                                         std::uint64_t offset,
                                                         std::size_t bytes,
                                                         const std::string& purpose) override {
    return make_file_buffer(ledger_, fd, offset, bytes, purpose);
  }
  Status submit(const Work& work) override;
  void parallel_for(std::size_t count, const std::function<void(std::size_t)>& f) override;
  Status drain(Time deadline) override;

 private:
  void submission_loop();
  void complete(const Work& work);
  [[nodiscard]] WorkResult run(const Work& work);
  void launch(const Work& work, const KernelCall& call);

  const DeviceInfo info_;
  const KernelSet& kernels_;
  const Clock& clock_;
  const std::shared_ptr<MemoryBudget> ledger_;
  const std::unique_ptr<WorkerPool> pool_;
  std::mutex driver_;  // held by the thread that drives the pool

  std::mutex mutex_;  // of the queue
  std::condition_variable submitted_;
  std::condition_variable completed_;
  std::vector<Work> ring_;  // fixed size; empty for an inline device
  std::size_t first_ = 0;
  std::size_t queued_ = 0;
  std::size_t unfinished_ = 0;  // queued, running or in its callback

  std::atomic<bool> stopping_{false};
  std::atomic<std::uint64_t> submissions_{0};
  std::atomic<std::uint64_t> launches_{0};
  Thread thread_;  // last: it ends before the rest does
};

Status CpuDevice::start(std::uint32_t queue) {
  ring_.resize(queue);
  return thread_.start(info_.name + " submit", [this] { submission_loop(); });
}

CpuDevice::~CpuDevice() {
  {
    const std::lock_guard lock(mutex_);
    stopping_.store(true);
  }
  submitted_.notify_all();
  thread_.join();
}

DeviceStats CpuDevice::stats() const {
  return {.submissions = submissions_.load(std::memory_order_relaxed),
          .launches = launches_.load(std::memory_order_relaxed),
          .late_workers = pool_->late_count(),
          .resting_workers = pool_->resting_count()};
}

Status CpuDevice::submit(const Work& work) {
  TROUPE_CHECK(work.done != nullptr && *work.done, "a submission has a callback");
  if (ring_.empty()) {
    complete(work);
    return {};
  }
  {
    const std::lock_guard lock(mutex_);
    if (queued_ == ring_.size()) {
      return error(Kind::kOverloaded,
                   info_.name + ": " + std::to_string(queued_) +
                       " submissions are queued, of at most " + std::to_string(ring_.size()) +
                       "; wait for one to complete");
    }
    ring_[(first_ + queued_) % ring_.size()] = work;
    ++queued_;
    ++unfinished_;
  }
  submitted_.notify_one();
  return {};
}

void CpuDevice::submission_loop() {
  std::unique_lock lock(mutex_);
  for (;;) {
    submitted_.wait(lock, [this] { return queued_ > 0 || stopping_.load(); });
    if (queued_ == 0) {
      return;
    }
    const Work work = ring_[first_];
    first_ = (first_ + 1) % ring_.size();
    --queued_;
    lock.unlock();
    complete(work);
    lock.lock();
    --unfinished_;
    completed_.notify_all();
  }
}

void CpuDevice::complete(const Work& work) {
  const WorkResult result = run(work);
  submissions_.fetch_add(1, std::memory_order_relaxed);
  (*work.done)(result);
}

WorkResult CpuDevice::run(const Work& work) {
  const std::lock_guard lock(driver_);
  const Time began = clock_.now();
  WorkResult result;
  pool_->begin_session();
  for (std::size_t i = 0; i < work.calls.size(); ++i) {
    if (stopping_.load(std::memory_order_relaxed)) {
      result.status =
          error(Kind::kDisconnected,
                info_.name + " shuts down: " + std::to_string(i) + " of " +
                    std::to_string(work.calls.size()) + " launches of this submission have run");
      break;
    }
    const Time launched = work.observer != nullptr ? clock_.now() : Time{0};
    launch(work, work.calls[i]);
    launches_.fetch_add(1, std::memory_order_relaxed);
    if (work.observer != nullptr) {
      (*work.observer)(i, work.env, {launched, clock_.now()});
    }
  }
  pool_->end_session();
  result.duration = clock_.now() - began;
  return result;
}

void CpuDevice::launch(const Work& work, const KernelCall& call) {
  struct Bound {
    const Kernel& kernel;
    const KernelEnv& env;
    const void* args;
  };
  const Bound bound{kernels_.kernel(call.id, work.activation), work.env, call.args};
  TROUPE_CHECK(bound.kernel.run != nullptr, "the kernel set has this kernel for these activations");
  const PoolTask task{
      .run =
          [](const void* context, std::uint32_t begin, std::uint32_t end, std::byte* scratch) {
            const auto& call_of = *static_cast<const Bound*>(context);
            call_of.kernel.run(call_of.env, call_of.args, begin, end, scratch);
          },
      .context = &bound};
  pool_->launch(task, bound.kernel.items(work.env, call.args));
}

void CpuDevice::parallel_for(std::size_t count, const std::function<void(std::size_t)>& f) {
  TROUPE_CHECK(count <= std::numeric_limits<std::uint32_t>::max(),
               "items of a launch are counted in 32 bits");
  const PoolTask task{
      .run =
          [](const void* context, std::uint32_t begin, std::uint32_t end, std::byte*) {
            for (std::uint32_t i = begin; i < end; ++i) {
              (*static_cast<const std::function<void(std::size_t)>*>(context))(i);
            }
          },
      .context = &f,
      .most_at_once = 1};
  const std::lock_guard lock(driver_);
  pool_->launch(task, static_cast<std::uint32_t>(count));
}

Status CpuDevice::drain(Time deadline) {
  const Time until = clock_.now() + deadline;
  std::unique_lock lock(mutex_);
  while (unfinished_ > 0) {
    const Time left = until - clock_.now();
    if (left <= Time{0}) {
      return error(
          Kind::kOverloaded,
          info_.name + ": " + std::to_string(unfinished_) +
              " submissions were not complete after " +
              std::to_string(
                  std::chrono::duration_cast<std::chrono::milliseconds>(deadline).count()) +
              " ms; wait longer, or restart the device");
    }
    completed_.wait_for(lock, left);
  }
  return {};
}

// What buffers may take: what was asked for, but no more than the system has free beside the
// workers' scratch.
std::uint64_t memory_for_buffers(std::uint64_t wanted,
                                 std::uint64_t available,
                                 std::uint32_t threads) {
  if (available == 0) {  // unknown: no /proc here
    return wanted;
  }
  const std::uint64_t scratch = threads * std::uint64_t{kScratchBytes};
  const std::uint64_t left = available - std::min(available, scratch);
  return wanted == 0 ? left : std::min(wanted, left);
}

}  // namespace

Result<std::unique_ptr<Device>> make_cpu_device_for(const CpuDeviceOptions& options,
                                                    const Clock& clock,
                                                    const KernelSet& kernels,
                                                    std::string reason) {
  if (options.threads > kMostThreads) {
    return error(Kind::kInvalid,
                 options.name + ": " + std::to_string(options.threads) + " threads, at most " +
                     std::to_string(kMostThreads) +
                     " are possible; 0 takes as many as the process may use");
  }
  if (options.queue == 0 || options.queue > kMostQueued) {
    return error(Kind::kInvalid,
                 options.name + ": a queue of " + std::to_string(options.queue) +
                     ", must be 1 to " + std::to_string(kMostQueued));
  }
  if (options.activation == Activation::kF32 && !kernels.fp32_activations) {
    return error(Kind::kUnsupported,
                 "kernel set " + std::string(kernels.name) +
                     " has no fp32 activations; use bf16 activations or another kernel set");
  }
  const SystemLimits limits = read_system_limits();
  DeviceInfo info;
  info.name = options.name;
  info.kernel_set = kernels.name;
  info.choice_reason = std::move(reason);
  info.threads = options.run_inline     ? 1
                 : options.threads != 0 ? options.threads
                                        : limits.processors;
  info.available_bytes = limits.available_bytes;
  info.memory_bytes =
      memory_for_buffers(options.memory_bytes, limits.available_bytes, info.threads);
  TROUPE_ASSIGN(auto pool, WorkerPool::make(info.name, info.threads, clock));
  auto device = std::make_unique<CpuDevice>(std::move(info), kernels, clock, std::move(pool));
  if (!options.run_inline) {
    TROUPE_TRY(device->start(options.queue));
  }
  return device;
}

Result<std::unique_ptr<Device>> make_cpu_device_with(const CpuDeviceOptions& options,
                                                     const Clock& clock,
                                                     const KernelSet& kernels) {
  return make_cpu_device_for(options, clock, kernels, "given by the caller");
}

}  // namespace troupe
