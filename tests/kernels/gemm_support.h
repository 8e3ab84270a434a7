// What the tests of matrix products share: memory addressed by Ref, made-up matrices with their
// exact values, and a plain sum in double with the bound of its error. One thread, test code only.
#pragma once

#include "kernels/ops.h"
#include "runtime/base/sources.h"

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

namespace troupe::testing {

// Every set that has matrix kernels, whether or not it may run here, and the emulated ones.
[[nodiscard]] const KernelSet& matrix_set(std::string_view name);

// One arena (kWorkspace) that grows by allocation; offsets stay, addresses do not.
class Memory final {
 public:
  explicit Memory(std::size_t bytes_max);
  [[nodiscard]] Ref allocate(std::size_t bytes);  // 64 bytes before and after hold 0xa5
  template <class T>
  [[nodiscard]] T* at(const Ref& ref) {
    return reinterpret_cast<T*>(base_ + ref.offset);
  }
  template <class T>
  [[nodiscard]] Ref put(const std::vector<T>& values) {
    const Ref ref = allocate(values.size() * sizeof(T));
    std::copy(values.begin(), values.end(), at<T>(ref));
    return ref;
  }
  template <class T>
  [[nodiscard]] std::vector<T> get(const Ref& ref, std::size_t count) {
    return {at<T>(ref), at<T>(ref) + count};
  }
  [[nodiscard]] KernelEnv env(const StepTable& step);
  [[nodiscard]] std::byte* scratch() { return scratch_; }

 private:
  std::vector<std::byte> bytes_;
  std::vector<std::byte> scratch_bytes_;
  std::byte* base_ = nullptr;
  std::byte* scratch_ = nullptr;
  std::size_t used_ = 0;
};

// Numbers as they are stored, and what they mean.
struct Matrix {
  std::uint32_t rows = 0, columns = 0;
  std::vector<double> values;    // exact; F8: without the scale
  std::vector<std::byte> bytes;  // row-major, of dtype
  DType dtype = DType::kBF16;
  std::vector<float> scales;  // F8: [ceil(rows/128)][ceil(columns/128)]

  [[nodiscard]] double value(std::uint32_t row, std::uint32_t column) const {
    return values[std::size_t{row} * columns + column];
  }
  [[nodiscard]] double scaled(std::uint32_t row, std::uint32_t column) const;
};

// Entries between -1 and 1 (F8: any finite code of such size), scales between 0.5 and 2.
[[nodiscard]] Matrix random_matrix(std::uint32_t rows,
                                   std::uint32_t columns,
                                   DType dtype,
                                   Rng& rng);
[[nodiscard]] PackSource source_of(const Matrix& matrix);
// As one weight, or gate and up interleaved.
[[nodiscard]] Weight pack_weight(const Matrix& matrix, Memory& memory);
[[nodiscard]] Weight pack_pair(const Matrix& gate, const Matrix& up, Memory& memory);

struct Exact {
  double value = 0;
  double bound = 0;  // of an fp32 evaluation in any of the allowed orders
};
// Row `row` of x times row `output` of the weight; x is [rows][columns] of exact values.
[[nodiscard]] Exact exact_dot(const Matrix& x,
                              std::uint32_t row,
                              const Matrix& weight,
                              std::uint32_t output);
[[nodiscard]] Exact exact_swiglu(const Exact& gate, const Exact& up);
// After rounding to the activation type.
[[nodiscard]] Exact exact_rounded(const Exact& exact, Activation act);

// All items of a kernel in order, or one at a time from the last to the first.
void run_kernel(const KernelSet& set,
                KernelId id,
                Activation act,
                const KernelEnv& env,
                const void* args,
                std::byte* scratch);
void run_backwards(const KernelSet& set,
                   KernelId id,
                   Activation act,
                   const KernelEnv& env,
                   const void* args,
                   std::byte* scratch);

[[nodiscard]] inline DType dtype_of(Activation act) {
  return act == Activation::kBF16 ? DType::kBF16 : DType::kF32;
}

}  // namespace troupe::testing
