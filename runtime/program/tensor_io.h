// TensorIo: the step of an executable as tensors by name or slot (the table in executable.h),
// checked and converted. Storage for one run at a time; one thread.
#pragma once

#include "runtime/base/error.h"
#include "runtime/program/executable.h"

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace troupe {

class TensorIo final {
 public:
  // Builds step inputs from tensors by name. `wide`: I64 is accepted beside I32. Errors name the
  // tensor: unknown, missing, given twice, wrong dtype, shape or byte count, value out of range.
  // The result borrows this object and lives until the next call.
  [[nodiscard]] Result<StepInputs> read(std::span<const NamedTensor> tensors, bool wide);

  // The tensors of slots 0, 1, … in order, with their names filled in.
  [[nodiscard]] static Result<std::vector<NamedTensor>> by_slot(
      std::span<const NamedTensor> tensors);

  // Copies outputs, each in the dtype asked for. Errors name the output: unknown, or no conversion
  // to that dtype.
  [[nodiscard]] static Result<std::vector<OwnedTensor>> write(const StepOutputs& outputs,
                                                              std::span<const TensorSpec> specs);

 private:
  Status integers(const NamedTensor& tensor, bool wide, std::vector<std::int32_t>& out) const;
  Status assign(const NamedTensor& tensor, std::size_t slot, bool wide);

  std::vector<std::int32_t> raw_[6];
  std::vector<std::uint32_t> shapes_[6];
  bool given_[6] = {};
  std::vector<SegmentInput> segments_;
  std::vector<PageRef> write_pages_;
  std::vector<BlockRef> blocks_;
  std::vector<SampledInput> sampled_;
};

}  // namespace troupe
