// Builds the table of a kernel set at compile time (kernel_set.h, KS-1). Included by the isa_*.cc
// files, which say for which instruction set.
#pragma once

#include "kernels/cpu/gemm.inl.h"
#include "kernels/cpu/kernel_set.h"
#include "kernels/cpu/vector_ops.inl.h"

namespace troupe::cpu::TROUPE_ISA {

consteval KernelSet make_fma_set(const char* name, bool (*available)()) {
  KernelSet set;
  set.name = name;
  set.available = available;
  fill_vector_kernels(set);
  fill_gemm_kernels<bf16, FmaEngine>(set, Activation::kBF16);
  fill_gemm_kernels<float, FmaEngine>(set, Activation::kF32);
  return set;
}

// Engine multiplies bf16 panels, and F8 panels once expanded; fp32 panels are left to the
// FmaEngine, fp32 inputs to other sets.
template <class Engine>
consteval KernelSet make_bf16_set(const char* name, bool (*available)()) {
  KernelSet set;
  set.name = name;
  set.available = available;
  set.fp32_activations = false;
  fill_vector_kernels(set);
  for (auto& kernels : set.kernels) {
    kernels[static_cast<std::size_t>(Activation::kF32)] = {};
  }
  fill_gemm_kernels<bf16, Engine>(set, Activation::kBF16);
  return set;
}

}  // namespace troupe::cpu::TROUPE_ISA
