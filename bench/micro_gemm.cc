// Speed of the matrix product on one thread, per kernel set, beside what the processor can do: read
// bandwidth and the fp32 fma peak are measured with plain loops first. Weights are cold (64 MB are
// rotated) at one row, so that memory is what is timed.
#include "kernels/cpu/kernel_set.h"
#include "kernels/ops.h"
#include "runtime/base/sources.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <memory>
#include <new>
#include <string_view>
#include <vector>

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace {

using namespace troupe;

constexpr std::uint32_t kSize = 2048;  // inputs and outputs
constexpr std::uint32_t kRowsMax = 512;
constexpr std::size_t kColdBytes = std::size_t{256} << 20;

struct Free {
  void operator()(std::byte* p) const { ::operator delete[](p, std::align_val_t{1 << 21}); }
};
using Memory = std::unique_ptr<std::byte[], Free>;

Memory allocate(std::size_t bytes) {
  Memory memory(static_cast<std::byte*>(::operator new[](bytes, std::align_val_t{1 << 21})));
#if defined(__linux__)
  (void)madvise(memory.get(), bytes, MADV_HUGEPAGE);
#endif
  return memory;
}

// Processor time of the process: other programs' share of the core does not count.
class ProcessorClock final : public Clock {
 public:
  [[nodiscard]] Time now() const override {
    timespec time{};
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
  }
};

double seconds(Time time) {
  return std::chrono::duration<double>(time).count();
}

template <class Work>
double best_of(const Clock& clock, int repetitions, Work&& work) {
  double best = 1e30;
  for (int r = 0; r < repetitions; ++r) {
    const Time begin = clock.now();
    work(r);
    best = std::min(best, seconds(clock.now() - begin));
  }
  return best;
}

#if defined(__x86_64__)
__attribute__((target("avx2,fma"))) float fma_loop(long rounds) {
  typedef float Eight __attribute__((vector_size(32)));
  Eight sums[10];
#pragma GCC unroll 10
  for (int i = 0; i < 10; ++i) {
    sums[i] = Eight{} + static_cast<float>(i);
  }
  Eight factor = Eight{} + 0.999F;
  Eight term = Eight{} + 0.001F;
  for (long r = 0; r < rounds; ++r) {
#pragma GCC unroll 10
    for (int i = 0; i < 10; ++i) {
      asm("vfmadd213ps %2, %1, %0" : "+x"(sums[i]) : "x"(factor), "x"(term));
    }
  }
  float result = 0;
#pragma GCC unroll 10
  for (int i = 0; i < 10; ++i) {
    result += sums[i][0];
  }
  return result;
}

__attribute__((target("avx2"))) std::uint64_t read_loop(const std::byte* from, std::size_t bytes) {
  typedef unsigned long long Four __attribute__((vector_size(32)));
  Four sums[8] = {};
  for (std::size_t i = 0; i < bytes; i += 256) {
#pragma GCC unroll 8
    for (std::size_t j = 0; j < 8; ++j) {
      Four value;
      std::memcpy(&value, from + i + j * 32, 32);
      sums[j] ^= value;
    }
  }
  std::uint64_t result = 0;
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) {
    result ^= sums[i][0];
  }
  return result;
}

void print_machine(const Clock& clock, const std::byte* memory) {
  volatile float sink = 0;
  volatile std::uint64_t bits = 0;
  if (!cpu::has_avx2()) {
    return;
  }
  const double fma = best_of(clock, 5, [&sink](int) { sink = fma_loop(10'000'000); });
  const double read =
      best_of(clock, 5, [&bits, memory](int) { bits = read_loop(memory, kColdBytes); });
  std::printf("256-bit fp32 fma peak %.1f GFLOP/s, read %.1f GB/s\n",
              10e6 * 10 * 16 / fma * 1e-9,
              static_cast<double>(kColdBytes) / read * 1e-9);
}
#else
void print_machine(const Clock&, const std::byte*) {}
#endif

struct Bench {
  const Clock& clock;
  const std::byte* weights;
  std::byte* work;
  std::byte* scratch;

  double run(const KernelSet& set, WeightFormat format, std::uint32_t rows, int repetitions) const {
    const std::size_t bytes = packed_bytes(format, kSize, kSize);
    const std::size_t copies = (kColdBytes - (std::size_t{1} << 20)) / bytes;
    std::vector<StepRow> step_rows(rows);
    StepTable step;
    step.rows = step_rows;
    KernelEnv env;
    env.base[static_cast<std::size_t>(Arena::kWeights)] = const_cast<std::byte*>(weights);
    env.base[static_cast<std::size_t>(Arena::kWorkspace)] = work;
    env.step = &step;
    LinearArgs args;
    args.x = {Arena::kWorkspace, 0};
    args.inputs = kSize;
    args.x_stride = kSize;
    args.part_count = 1;
    LinearPart& part = args.parts[0];
    part.weight.format = format;
    part.weight.scales = {Arena::kWeights, kColdBytes - (std::size_t{1} << 20)};
    part.out = {Arena::kWorkspace, std::size_t{kRowsMax} * kSize * 4};
    part.outputs = kSize;
    part.out_stride = kSize;
    const Kernel& kernel = set.kernel(KernelId::kLinear, Activation::kBF16);
    double best = 1e30;  // not the median: other programs disturb caches and memory
    for (int r = 0; r < repetitions; ++r) {
      part.weight.data = {Arena::kWeights, static_cast<std::size_t>(r) % copies * bytes};
      const Time begin = clock.now();
      kernel.run(env, &args, 0, kernel.items(env, &args), scratch);
      best = std::min(best, seconds(clock.now() - begin));
    }
    return best;
  }
};

}  // namespace

int main(int argc, char** argv) {
  const std::string_view only = argc > 1 ? argv[1] : "";
  const ProcessorClock clock;
  const Memory weights = allocate(kColdBytes);
  const Memory work = allocate(std::size_t{kRowsMax} * kSize * 8);
  const Memory scratch = allocate(kScratchBytes);
  auto* halves = reinterpret_cast<std::uint16_t*>(weights.get());
  for (std::size_t i = 0; i < kColdBytes / 2; ++i) {
    halves[i] = static_cast<std::uint16_t>(0x3c10U + i * 37 % 103);
  }
  std::memset(work.get(), 0x3c, std::size_t{kRowsMax} * kSize * 8);
  print_machine(clock, weights.get());
  const Bench bench{clock, weights.get(), work.get(), scratch.get()};
  constexpr std::array kFormats = {
      WeightFormat::kPanelBF16, WeightFormat::kPanelF8, WeightFormat::kPanelF32};
  constexpr std::array<const char*, 3> kFormatNames = {"bf16", "f8", "f32"};
  for (const KernelSet* set : cpu_kernel_sets()) {
    if (!set->available() || (!only.empty() && set->name != only)) {
      continue;
    }
    const bool slow = set == cpu_kernel_sets().front();
    for (std::size_t f = 0; f < kFormats.size(); ++f) {
      for (const std::uint32_t rows : {1U, 2U, 4U, 8U, 16U, 64U, 512U}) {
        if (slow && rows > 4) {
          continue;
        }
        const double time = bench.run(*set, kFormats[f], rows, slow ? 2 : rows >= 64 ? 9 : 60);
        std::printf("%-12.*s %-4s rows %3u: %8.0f us, %6.1f GB/s, %7.1f GFLOP/s\n",
                    static_cast<int>(set->name.size()),
                    set->name.data(),
                    kFormatNames[f],
                    rows,
                    time * 1e6,
                    static_cast<double>(packed_bytes(kFormats[f], kSize, kSize)) / time * 1e-9,
                    2.0 * rows * kSize * kSize / time * 1e-9);
        std::fflush(stdout);
      }
    }
  }
  for (const Activation activation : {Activation::kBF16, Activation::kF32}) {
    const KernelChoice choice = choose_kernel_set(activation, clock);
    std::printf("%s activations: %.*s (%s)\n",
                activation == Activation::kBF16 ? "bf16" : "fp32",
                static_cast<int>(choice.set->name.size()),
                choice.set->name.data(),
                choice.why.c_str());
  }
  return 0;
}
