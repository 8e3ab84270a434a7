// Memory and a step for running one kernel: values go in as floats, whatever the activation type,
// and come out as floats.
#pragma once

#include "kernels/cpu/kernel_set.h"
#include "kernels/ops.h"
#include "runtime/base/dtype.h"
#include "runtime/base/sources.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <ostream>
#include <string>
#include <vector>

namespace troupe::testing {

enum class Order { kAtOnce, kOneByOne, kBackwards };

class Rig final {
 public:
  explicit Rig(Activation act) : act_(act) {}

  [[nodiscard]] Activation act() const { return act_; }

  // Room for `bytes` of an arena, filled with 0xff: as bf16, fp32 and double a NaN.
  Ref room(std::size_t bytes, Arena arena = Arena::kWorkspace) {
    auto& memory = memory_[static_cast<std::size_t>(arena)];
    const std::size_t offset = (memory.size() + 63) / 64 * 64;
    memory.resize(offset + bytes, std::byte{0xff});
    return {arena, offset};
  }
  Ref act_room(std::size_t count) { return room(count * size_of(act_)); }

  template <class T>
  Ref put(const std::vector<T>& elements, Arena arena = Arena::kWorkspace) {
    const Ref ref = room(elements.size() * sizeof(T), arena);
    std::memcpy(at<T>(ref), elements.data(), elements.size() * sizeof(T));
    return ref;
  }
  Ref put_act(const std::vector<float>& elements) {
    const Ref ref = act_room(elements.size());
    for (std::size_t i = 0; i < elements.size(); ++i) {
      set_act(ref, i, elements[i]);
    }
    return ref;
  }
  void set_act(const Ref& ref, std::size_t index, float value) {
    if (act_ == Activation::kBF16) {
      at<bf16>(ref)[index] = f32_to_bf16(value);
    } else {
      at<float>(ref)[index] = value;
    }
  }

  template <class T>
  [[nodiscard]] std::vector<T> get(const Ref& ref, std::size_t count) {
    return std::vector<T>(at<T>(ref), at<T>(ref) + count);
  }
  [[nodiscard]] std::vector<float> get_act(const Ref& ref, std::size_t count) {
    std::vector<float> elements(count);
    for (std::size_t i = 0; i < count; ++i) {
      elements[i] = load_as_f32(
          at<std::byte>(ref), act_ == Activation::kBF16 ? DType::kBF16 : DType::kF32, i);
    }
    return elements;
  }

  template <class T>
  [[nodiscard]] T* at(const Ref& ref) {
    return reinterpret_cast<T*>(memory_[static_cast<std::size_t>(ref.arena)].data() + ref.offset);
  }

  // The step. A segment's rows are appended; positions count up from `position`.
  std::vector<StepRow> rows;
  std::vector<StepSegment> segments;
  std::vector<SampledRow> sampled;
  std::vector<std::uint32_t> blocks;
  std::uint32_t block_width = 0;
  std::vector<TokenValue> values;
  std::vector<SampleResult> results;
  std::vector<SampleResult> previous;

  void add_segment(std::uint32_t count,
                   std::int32_t position = 0,
                   std::uint32_t read_page = kZeroPage,
                   std::uint32_t write_page = kNoPage,
                   std::uint32_t block_row = 0) {
    segments.push_back({static_cast<std::uint32_t>(rows.size()), count, read_page, block_row});
    for (std::uint32_t i = 0; i < count; ++i) {
      const bool last = i + 1 == count;
      rows.push_back({0,
                      position + static_cast<std::int32_t>(i),
                      static_cast<std::uint32_t>(segments.size() - 1),
                      last ? write_page : kNoPage});
    }
  }

  void run(const KernelSet& set, KernelId id, const void* args, Order order = Order::kAtOnce) {
    results.resize(sampled.size());
    StepTable table{rows, segments, sampled, blocks, block_width, values, results, previous};
    KernelEnv env;
    for (std::size_t arena = 0; arena < kArenaCount; ++arena) {
      env.base[arena] = memory_[arena].data();
    }
    env.step = &table;
    std::vector<std::byte> scratch(kScratchBytes + 64);
    auto* aligned = reinterpret_cast<std::byte*>(
        (reinterpret_cast<std::uintptr_t>(scratch.data()) + 63) / 64 * 64);
    const Kernel& kernel = set.kernel(id, act_);
    const std::uint32_t items = kernel.items(env, args);
    for (std::uint32_t i = 0; i < items && order != Order::kAtOnce; ++i) {
      const std::uint32_t item = order == Order::kOneByOne ? i : items - 1 - i;
      kernel.run(env, args, item, item + 1, aligned);
    }
    if (order == Order::kAtOnce) {
      kernel.run(env, args, 0, items, aligned);
    }
  }

 private:
  Activation act_;
  std::array<std::vector<std::byte>, kArenaCount> memory_;
};

// Made-up values in [-scale, scale], exact in bf16 so that both activation types see the same.
inline std::vector<float> noise(std::uint64_t seed, std::size_t count, float scale = 1.0F) {
  Rng rng(seed);
  std::vector<float> values(count);
  for (float& value : values) {
    value = bf16_to_f32(f32_to_bf16(scale * static_cast<float>(2 * rng.uniform() - 1)));
  }
  return values;
}

inline double sigmoid(double x) {
  return 1 / (1 + std::exp(-x));
}
inline double silu(double x) {
  return x * sigmoid(x);
}

// What a kernel computed, as bits that can be compared.
inline std::vector<std::uint32_t> bits_of(const std::vector<float>& values) {
  std::vector<std::uint32_t> bits(values.size());
  std::memcpy(bits.data(), values.data(), values.size() * sizeof(float));
  return bits;
}

// fp32 outputs: relative to 1 or to the value; outputs rounded to bf16 also half a unit in their
// last place.
inline void expect_near(const std::vector<float>& got,
                        const std::vector<double>& want,
                        Activation rounded_to,
                        double tolerance = 1e-5) {
  ASSERT_EQ(got.size(), want.size());
  const double relative = rounded_to == Activation::kBF16 ? 0x1p-8 : 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    const double allowed = tolerance * (1 + std::abs(want[i])) + relative * std::abs(want[i]);
    ASSERT_LE(std::abs(static_cast<double>(got[i]) - want[i]), allowed)
        << "element " << i << ": " << got[i] << ", not " << want[i];
  }
}

// Tests of one kernel set with one activation type.
struct Variant {
  const KernelSet* set;
  Activation act;
};
inline void PrintTo(const Variant& variant, std::ostream* out) {
  *out << variant.set->name << (variant.act == Activation::kBF16 ? " bf16" : " f32");
}
inline std::vector<Variant> all_variants(bool with_bf16 = true) {
  std::vector<Variant> variants;
  for (const KernelSet* set : cpu_kernel_sets()) {
    if (with_bf16) {
      variants.push_back({set, Activation::kBF16});
    }
    if (set->fp32_activations) {
      variants.push_back({set, Activation::kF32});
    }
  }
  return variants;
}
inline std::string variant_name(const ::testing::TestParamInfo<Variant>& info) {
  std::string name(info.param.set->name);
  for (char& letter : name) {
    letter = letter == '-' ? '_' : letter;
  }
  return name + (info.param.act == Activation::kBF16 ? "_bf16" : "_f32");
}

class OnEverySet : public ::testing::TestWithParam<Variant> {
 protected:
  void SetUp() override {
    if (!set().available()) {
      GTEST_SKIP() << "this processor lacks what the kernel set " << set().name << " needs";
    }
  }
  [[nodiscard]] static const KernelSet& set() { return *GetParam().set; }
  [[nodiscard]] static Activation act() { return GetParam().act; }
  [[nodiscard]] static const KernelSet& scalar() { return *find_cpu_kernel_set("scalar"); }

  // `run` gives all outputs of a kernel as floats. They don't depend on how items are dealt out,
  // nor on the set.
  static void expect_one_truth(
      const std::function<std::vector<float>(const KernelSet&, Order)>& run) {
    const auto bits = bits_of(run(set(), Order::kAtOnce));
    EXPECT_EQ(bits, bits_of(run(set(), Order::kOneByOne)));
    EXPECT_EQ(bits, bits_of(run(set(), Order::kBackwards)));
    EXPECT_EQ(bits, bits_of(run(scalar(), Order::kAtOnce)));
  }
};

#define TROUPE_ON_EVERY_SET(suite) \
  INSTANTIATE_TEST_SUITE_P(Kernels, suite, ::testing::ValuesIn(all_variants()), variant_name)
#define TROUPE_ON_FP32_SETS(suite) \
  INSTANTIATE_TEST_SUITE_P(Kernels, suite, ::testing::ValuesIn(all_variants(false)), variant_name)

}  // namespace troupe::testing
