// The CPU device's own factory, for the two public ones of device.h.
#pragma once

#include "runtime/device/device.h"

#include <memory>
#include <string>

namespace troupe {

// `reason` becomes DeviceInfo::choice_reason. Errors: as make_cpu_device_with().
[[nodiscard]] Result<std::unique_ptr<Device>> make_cpu_device_for(const CpuDeviceOptions& options,
                                                                  const Clock& clock,
                                                                  const KernelSet& kernels,
                                                                  std::string reason);

}  // namespace troupe
