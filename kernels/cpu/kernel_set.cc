#include "kernels/cpu/kernel_set.h"

#include "runtime/base/error.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <memory>
#include <new>

#if defined(TROUPE_X86)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace troupe {
namespace {

#if defined(TROUPE_X86)
constexpr std::array<const KernelSet*, 5> kSets = {&cpu::scalar::kSet,
                                                   &cpu::avx2::kSet,
                                                   &cpu::avx512::kSet,
                                                   &cpu::avx512_bf16::kSet,
                                                   &cpu::amx_bf16::kSet};
#else
constexpr std::array<const KernelSet*, 1> kSets = {&cpu::scalar::kSet};
#endif

constexpr std::array<std::string_view, kKernelCount> kNames = {"embed",
                                                               "rope_table",
                                                               "add",
                                                               "norm",
                                                               "linear",
                                                               "silu_mul",
                                                               "gdn_conv",
                                                               "gdn_scan",
                                                               "gdn_norm",
                                                               "attention_prepare",
                                                               "attention",
                                                               "gate_mul",
                                                               "router",
                                                               "moe_permute",
                                                               "expert_swiglu",
                                                               "expert_down",
                                                               "moe_combine",
                                                               "sample"};

struct AlignedFree {
  void operator()(std::byte* memory) const { ::operator delete[](memory, std::align_val_t{64}); }
};
using Memory = std::unique_ptr<std::byte[], AlignedFree>;

Memory allocate(std::size_t bytes) {
  return Memory(static_cast<std::byte*>(::operator new[](bytes, std::align_val_t{64})));
}

constexpr std::uint32_t kInputs = 2048;
constexpr std::uint32_t kOutputs =
    2048;  // of the one-row product: 8 MB of bf16, more than most second-level caches
constexpr std::uint32_t kManyOutputs = 256;  // of the many-row product
constexpr std::uint32_t kManyRows = 64;

// A matrix product on made-up numbers, whose time is taken.
class Trial final {
 public:
  Trial(Activation activation, const Clock& clock)
      : activation_(activation),
        clock_(clock),
        weights_(allocate(packed_bytes(WeightFormat::kPanelBF16, kOutputs, kInputs))),
        work_(allocate(kWorkBytes)),
        scratch_(allocate(kScratchBytes)) {
    // 0x3c00..0x3c7f: about 0.01, no two neighbours equal; as bf16 or as the halves of an fp32 a
    // plain number.
    fill(weights_.get(), packed_bytes(WeightFormat::kPanelBF16, kOutputs, kInputs));
    fill(work_.get(), kWorkBytes);
  }

  // The best of three, in seconds.
  double seconds(const KernelSet& set, std::uint32_t rows, std::uint32_t outputs) const {
    LinearArgs args;
    args.x = {Arena::kWorkspace, 0};
    args.inputs = kInputs;
    args.x_stride = kInputs;
    args.part_count = 1;
    args.parts[0] = {
        .weight = {.data = {Arena::kWeights, 0}, .scales = {}, .format = WeightFormat::kPanelBF16},
        .out = {Arena::kWorkspace, kOutOffset},
        .outputs = outputs,
        .out_stride = outputs};
    std::array<StepRow, kManyRows> step_rows{};
    StepTable step;
    step.rows = std::span(step_rows).first(rows);
    KernelEnv env;
    env.base[static_cast<std::size_t>(Arena::kWeights)] = weights_.get();
    env.base[static_cast<std::size_t>(Arena::kWorkspace)] = work_.get();
    env.step = &step;
    const Kernel& kernel = set.kernel(KernelId::kLinear, activation_);
    Time best = Time::max();
    for (int repetition = 0; repetition < 3; ++repetition) {
      const Time begin = clock_.now();
      kernel.run(env, &args, 0, kernel.items(env, &args), scratch_.get());
      best = std::min(best, clock_.now() - begin);
    }
    return in_seconds(best);
  }

 private:
  static constexpr std::size_t kOutOffset = std::size_t{kManyRows} * kInputs * sizeof(float);
  static constexpr std::size_t kWorkBytes =
      kOutOffset + std::size_t{kManyRows} * kManyOutputs * sizeof(float);
  static_assert(kWorkBytes - kOutOffset >= kOutputs * sizeof(float));

  static void fill(std::byte* memory, std::size_t bytes) {
    auto* halves = reinterpret_cast<std::uint16_t*>(memory);
    for (std::size_t i = 0; i < bytes / 2; ++i) {
      halves[i] = static_cast<std::uint16_t>(0x3c00U + i * 37 % 128);
    }
  }

  Activation activation_;
  const Clock& clock_;
  Memory weights_;
  Memory work_;
  Memory scratch_;
};

bool usable(const KernelSet& set, Activation activation) {
  return (activation == Activation::kBF16 || set.fp32_activations) && set.available();
}

std::string figures(const KernelSet& set, double one_row, double many_rows) {
  const double bytes = 2.0 * kOutputs * kInputs;
  const double operations = 2.0 * kManyRows * kManyOutputs * kInputs;
  std::array<char, 128> text{};
  (void)std::snprintf(text.data(),
                      text.size(),
                      "%.*s %.1f GB/s at 1 row, %.1f GFLOP/s at %u rows",
                      static_cast<int>(set.name.size()),
                      set.name.data(),
                      bytes / std::max(one_row, 1e-9) * 1e-9,
                      operations / std::max(many_rows, 1e-9) * 1e-9,
                      kManyRows);
  return text.data();
}

}  // namespace

std::string_view name(KernelId id) {
  return kNames[static_cast<std::size_t>(id)];
}

std::span<const KernelSet* const> cpu_kernel_sets() {
  return kSets;
}

const KernelSet* find_cpu_kernel_set(std::string_view wanted) {
  for (const KernelSet* set : kSets) {
    if (set->name == wanted) {
      return set;
    }
  }
  return nullptr;
}

KernelChoice choose_kernel_set(Activation activation, const Clock& clock) {
  // The scalar set is some fifty times slower than any other: it is taken only when it is alone,
  // and never measured.
  const bool vectors =
      std::any_of(kSets.begin() + 1, kSets.end(), [activation](const KernelSet* set) {
        return usable(*set, activation);
      });
  if (!vectors) {
    return {kSets.front(), "scalar: this processor has none of the instruction sets of the others"};
  }
  const Trial trial(activation, clock);
  KernelChoice choice;
  double best = 0;
  for (const KernelSet* set : kSets) {
    if (set == kSets.front() || !usable(*set, activation)) {
      continue;
    }
    const double one_row = trial.seconds(*set, 1, kOutputs);
    const double many_rows = trial.seconds(*set, kManyRows, kManyOutputs);
    choice.why += (choice.why.empty() ? "" : "; ") + figures(*set, one_row, many_rows);
    if (choice.set == nullptr || one_row * many_rows < best) {
      choice.set = set;
      best = one_row * many_rows;
    }
  }
  return choice;
}

namespace cpu {

bool has_scalar() {
  return true;
}

#if defined(TROUPE_X86)

bool has_avx2() {
  return __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0;
}

bool has_avx512() {
  return has_avx2() && __builtin_cpu_supports("avx512f") != 0 &&
         __builtin_cpu_supports("avx512bw") != 0 && __builtin_cpu_supports("avx512vl") != 0 &&
         __builtin_cpu_supports("avx512dq") != 0;
}

bool has_avx512_bf16() {
  // VBMI, which expands F8 weights, is missing in one generation only (Cooper Lake).
  return has_avx512() && __builtin_cpu_supports("avx512bf16") != 0 &&
         __builtin_cpu_supports("avx512vbmi") != 0;
}

bool has_amx_bf16() {
  // g++ 12 knows no "amx-bf16" in __builtin_cpu_supports: leaf 7, EDX bits 22 (AMX-BF16) and 24
  // (AMX-TILE).
  constexpr unsigned kWanted = (1U << 22) | (1U << 24);
  unsigned a = 0;
  unsigned b = 0;
  unsigned c = 0;
  unsigned d = 0;
  if (!has_avx512_bf16() || __get_cpuid_count(7, 0, &a, &b, &c, &d) == 0 ||
      (d & kWanted) != kWanted) {
    return false;
  }
  // The tile registers are off until a process asks (arch_prctl: ARCH_REQ_XCOMP_PERM, XTILEDATA);
  // then all its threads may.
  constexpr long kRequestPermission = 0x1023;
  constexpr long kTileData = 18;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

#endif

}  // namespace cpu
}  // namespace troupe
