// make_cpu_device(): kernels by name, or the measured best (decision D8).
#include "kernels/cpu/kernel_set.h"
#include "runtime/device/cpu_device.h"

#include <array>
#include <string>
#include <utility>

namespace troupe {

namespace {

std::string known_sets() {
  std::string names;
  for (const KernelSet* set : cpu_kernel_sets()) {
    names += (names.empty() ? "" : ", ") + std::string(set->name) +
             (set->available() ? "" : " (not on this processor)");
  }
  return names;
}

// What the processor lacks for a set that is not available: each set needs what those before it
// need.
std::string lacking(const KernelSet& set) {
#if defined(__x86_64__)
  struct Need {
    bool (*met)();
    const char* what;
  };
  constexpr std::array<Need, 4> kNeeds{
      {{cpu::has_avx2, "AVX2 and FMA"},
       {cpu::has_avx512, "AVX-512 F, BW, VL and DQ"},
       {cpu::has_avx512_bf16, "AVX-512 BF16"},
       {cpu::has_amx_bf16, "AMX tiles with BF16, or leave to use them"}}};
  for (const Need& need : kNeeds) {
    if (!need.met()) {
      return need.what;
    }
  }
#endif
  return "what " + std::string(set.name) + " needs";
}

}  // namespace

Result<std::unique_ptr<Device>> make_cpu_device(const CpuDeviceOptions& options,
                                                const Clock& clock) {
  if (options.kernel_set.empty()) {
    KernelChoice choice = choose_kernel_set(options.activation, clock);
    return make_cpu_device_for(options, clock, *choice.set, std::move(choice.why));
  }
  const KernelSet* set = find_cpu_kernel_set(options.kernel_set);
  if (set == nullptr) {
    return error(Kind::kInvalid,
                 "unknown kernel set \"" + options.kernel_set + "\"; known are " + known_sets());
  }
  if (!set->available()) {
    return error(Kind::kUnsupported,
                 "kernel set " + options.kernel_set + ": this processor lacks " + lacking(*set) +
                     "; known are " + known_sets());
  }
  return make_cpu_device_for(options, clock, *set, "asked for by name");
}

}  // namespace troupe
