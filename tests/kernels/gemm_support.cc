#include "tests/kernels/gemm_support.h"

#include "runtime/base/error.h"
#include "tests/kernels/bf16_emulation.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace troupe::testing {
namespace {

constexpr std::size_t kFence = 64;

std::byte* aligned(std::vector<std::byte>& bytes) {
  const auto address = reinterpret_cast<std::uintptr_t>(bytes.data());
  return bytes.data() + (64 - address % 64) % 64;
}

std::uint16_t f16_bits(float value) {  // of a number that fp16 holds exactly
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffffU) == 0) {
    return static_cast<std::uint16_t>(bits >> 16);
  }
  const std::uint32_t exponent = ((bits >> 23) & 0xffU) - 112U;
  return static_cast<std::uint16_t>(((bits >> 16) & 0x8000U) | (exponent << 10) |
                                    ((bits >> 13) & 0x3ffU));
}

}  // namespace

const KernelSet& matrix_set(std::string_view name) {
  if (name == emulated_pair_set().name) {
    return emulated_pair_set();
  }
  if (name == emulated_tile_set().name) {
    return emulated_tile_set();
  }
  const KernelSet* set = find_cpu_kernel_set(name);
  TROUPE_CHECK(set != nullptr, "no such kernel set");
  return *set;
}

Memory::Memory(std::size_t bytes_max)
    : bytes_(bytes_max + 64, std::byte{0xa5}), scratch_bytes_(kScratchBytes + 64, std::byte{0xff}) {
  base_ = aligned(bytes_);
  scratch_ = aligned(scratch_bytes_);  // 0xff..: NaN in every type, so that a kernel that trusts
                                       // old scratch is found
}

Ref Memory::allocate(std::size_t bytes) {
  const Ref ref{Arena::kWorkspace, used_ + kFence};
  used_ += kFence + (bytes + kFence - 1) / kFence * kFence;
  TROUPE_CHECK(used_ + kFence <= bytes_.size() - 64, "the test's memory is too small");
  return ref;
}

KernelEnv Memory::env(const StepTable& step) {
  KernelEnv env;
  env.base[static_cast<std::size_t>(Arena::kWorkspace)] = base_;
  env.step = &step;
  return env;
}

double Matrix::scaled(std::uint32_t row, std::uint32_t column) const {
  if (dtype != DType::kF8E4M3) {
    return value(row, column);
  }
  return value(row, column) *
         scales[std::size_t{row} / 128 * ((columns + 127) / 128) + column / 128];
}

Matrix random_matrix(std::uint32_t rows, std::uint32_t columns, DType dtype, Rng& rng) {
  Matrix matrix{.rows = rows, .columns = columns, .dtype = dtype};
  const std::size_t count = std::size_t{rows} * columns;
  matrix.bytes.resize(count * size_of(dtype));
  matrix.values.resize(count);
  for (std::size_t i = 0; i < count; ++i) {
    const auto number = static_cast<float>(rng.uniform() * 2 - 1);
    std::byte* to = matrix.bytes.data() + i * size_of(dtype);
    if (dtype == DType::kBF16) {
      const bf16 bits = f32_to_bf16(number);
      std::memcpy(to, &bits, sizeof bits);
    } else if (dtype == DType::kF16) {
      const std::uint16_t bits =
          f16_bits(static_cast<float>(static_cast<int>(number * 1024)) / 1024);
      std::memcpy(to, &bits, sizeof bits);
    } else if (dtype == DType::kF8E4M3) {
      // Mostly normal codes, so that whole lines are: subnormal ones take another path.
      const std::uint64_t magnitude = rng.below(64) == 0 ? rng.below(8) : 8 + rng.below(49);
      *to = static_cast<std::byte>(rng.below(2) * 128 + magnitude);
    } else {
      std::memcpy(to, &number, sizeof number);
    }
    matrix.values[i] = load_as_f32(matrix.bytes.data(), dtype, i);
  }
  if (dtype == DType::kF8E4M3) {
    matrix.scales.resize(std::size_t{(rows + 127) / 128} * ((columns + 127) / 128));
    for (float& scale : matrix.scales) {
      scale = static_cast<float>(0.5 + 1.5 * rng.uniform());
    }
  }
  return matrix;
}

PackSource source_of(const Matrix& matrix) {
  PackSource source{.data = matrix.bytes.data(),
                    .dtype = matrix.dtype,
                    .rows = matrix.rows,
                    .columns = matrix.columns};
  if (!matrix.scales.empty()) {
    source.scale = reinterpret_cast<const std::byte*>(matrix.scales.data());
    source.scale_columns = (matrix.columns + 127) / 128;
  }
  return source;
}

namespace {

Weight pack_some(const std::vector<const Matrix*>& matrices, Memory& memory) {
  const Matrix& first = *matrices.front();
  const WeightFormat format = panel_format(first.dtype);
  const auto outputs = static_cast<std::uint32_t>(panel_count(first.rows) * 16 * matrices.size());
  Weight weight;
  weight.format = format;
  weight.data = memory.allocate(packed_bytes(format, outputs, first.columns));
  if (format == WeightFormat::kPanelF8) {
    weight.scales = memory.allocate(packed_scale_bytes(outputs, first.columns));
  }
  for (std::uint32_t i = 0; i < matrices.size(); ++i) {
    pack_panels(source_of(*matrices[i]),
                format,
                memory.at<std::byte>(weight.data),
                weight.scales.empty() ? nullptr : memory.at<float>(weight.scales),
                i,
                static_cast<std::uint32_t>(matrices.size()));
  }
  return weight;
}

}  // namespace

Weight pack_weight(const Matrix& matrix, Memory& memory) {
  return pack_some({&matrix}, memory);
}
Weight pack_pair(const Matrix& gate, const Matrix& up, Memory& memory) {
  return pack_some({&gate, &up}, memory);
}

Exact exact_dot(const Matrix& x, std::uint32_t row, const Matrix& weight, std::uint32_t output) {
  Exact exact;
  double size = 0;
  for (std::uint32_t k = 0; k < x.columns; ++k) {
    const double product = x.value(row, k) * weight.scaled(output, k);
    exact.value += product;
    size += std::abs(product);
  }
  // At most one rounding for each input, two for each scale, and a sum of three per 32 inputs, each
  // relative to at most `size`.
  const double roundings = x.columns + 4.0 * (x.columns / 32.0 + 1);
  exact.bound = roundings * 0x1p-24 * size * 1.01 + 1e-30;
  return exact;
}

Exact exact_swiglu(const Exact& gate, const Exact& up) {
  const double silu = gate.value / (1 + std::exp(-gate.value));
  const double silu_bound = 1.1 * gate.bound + 8 * 0x1p-24 * std::abs(silu);  // |silu'| < 1.1
  Exact exact;
  exact.value = silu * up.value;
  exact.bound = silu_bound * (std::abs(up.value) + up.bound) + std::abs(silu) * up.bound +
                0x1p-23 * std::abs(exact.value);
  return exact;
}

Exact exact_rounded(const Exact& exact, Activation act) {
  const double step = act == Activation::kBF16 ? 0x1p-8 : 0x1p-24;
  return {exact.value, exact.bound + step * (std::abs(exact.value) + exact.bound) + 1e-38};
}

void run_kernel(const KernelSet& set,
                KernelId id,
                Activation act,
                const KernelEnv& env,
                const void* args,
                std::byte* scratch) {
  const Kernel& kernel = set.kernel(id, act);
  kernel.run(env, args, 0, kernel.items(env, args), scratch);
}

void run_backwards(const KernelSet& set,
                   KernelId id,
                   Activation act,
                   const KernelEnv& env,
                   const void* args,
                   std::byte* scratch) {
  const Kernel& kernel = set.kernel(id, act);
  for (std::uint32_t item = kernel.items(env, args); item > 0; --item) {
    kernel.run(env, args, item - 1, item, scratch);
  }
}

}  // namespace troupe::testing
