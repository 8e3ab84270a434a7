// kLinear, kExpertSwiglu and kExpertDown for one instruction set (contracts: ops.h), over an engine
// that multiplies blocks: FmaEngine (gemm_tile.inl.h), PairEngine (bf16_engine.inl.h) or TileEngine
// (amx_engine.inl.h).
//
// An item is a group of four panels (64 outputs; eight with many rows) and a block of rows. Inputs
// are taken in spans short enough that the group's weights of a span stay in the second-level cache
// while the rows pass, kRows at a time; between spans the exact fp32 sums wait in scratch. Few rows
// need no such reuse: they take long spans, and memory streams.
//
// GE-1: spans, row blocks, groups and tiles never change a sum's chain (ops.h, OP-1).
// GE-2: nothing is written beyond the outputs of a part, nothing read beyond K of a row.
#pragma once

#include "kernels/cpu/access.h"
#include "kernels/cpu/gemm_expand.inl.h"
#include "kernels/cpu/gemm_tile.inl.h"
#include "kernels/cpu/math.h"
#include "kernels/cpu/vec.h"

namespace troupe::cpu::TROUPE_ISA {

inline constexpr std::uint32_t kFewPanels = 4;  // of a group: many items, for many workers
inline constexpr std::uint32_t kManyPanels =
    8;  // with more than kManyRows rows: inputs are expanded half as often
inline constexpr std::uint32_t kManyRows = 32;
inline constexpr std::uint32_t kGroupOutputs = kManyPanels * kLanes;
inline constexpr std::uint32_t kRowBlock =
    192;  // rows of an item: a multiple of every engine's kRows
inline constexpr std::uint32_t kScaleSpan = 128;  // inputs under one F8 scale
inline constexpr std::uint32_t kLongSpan = 4096;  // inputs at a time with one chunk of rows
inline constexpr std::uint32_t kShortSpan = 512;  // with more
inline constexpr std::uint32_t kF8Span =
    256;  // F8 with one chunk: the expanded weights stay in the first-level cache
inline constexpr std::uint32_t kF8Ahead =
    2;  // spans between asking for F8 panels and expanding them
inline constexpr std::uint32_t kRowsMax = 32;  // of any engine's chunk

// A group of panels times a block of rows.
struct Product {
  const std::byte* x = nullptr;
  std::size_t x_stride = 0;                // elements between input rows
  const std::uint32_t* entries = nullptr;  // null: row r reads row r and writes row r
  std::uint32_t divide = 1;                // entry e reads row e / divide and writes row e
  std::uint32_t first_row = 0, rows = 0;   // rows, or entries
  std::uint32_t inputs = 0;

  WeightFormat format = WeightFormat::kPanelBF16;
  const std::byte* weights = nullptr;  // of the group's first panel
  const float* scales = nullptr;
  std::uint32_t panels = 0;

  std::byte* out = nullptr;
  std::size_t out_stride = 0;
  bool out_f32 = false;
  bool swiglu = false;
  std::uint32_t first_output = 0,
                outputs = 0;  // of the group; [0, outputs) of the part may be written
};

// The parts of a worker's scratch.
struct Scratch {
  std::byte* x;    // kRowsMax rows of kLongSpan expanded inputs
  float* sums;     // [kRowBlock][kGroupOutputs]
  float* partial;  // [kRowsMax][kGroupOutputs], of one F8 scale
  bf16* expanded;  // F8 panels of a span as bf16
};
inline constexpr std::size_t kXBytes = std::size_t{kRowsMax} * (kLongSpan + 16) * sizeof(float);
inline constexpr std::size_t kSumBytes = std::size_t{kRowBlock} * kGroupOutputs * sizeof(float);
inline constexpr std::size_t kPartialBytes = std::size_t{kRowsMax} * kGroupOutputs * sizeof(float);
inline constexpr std::size_t kExpandedBytes =
    std::size_t{kShortSpan} * kGroupOutputs * sizeof(bf16);
static_assert(kF8Span <= kShortSpan);
static_assert(kXBytes + kSumBytes + kPartialBytes + kExpandedBytes <= kScratchBytes);

TROUPE_LANE Scratch split(std::byte* scratch) {
  return {scratch,
          reinterpret_cast<float*>(scratch + kXBytes),
          reinterpret_cast<float*>(scratch + kXBytes + kSumBytes),
          reinterpret_cast<bf16*>(scratch + kXBytes + kSumBytes + kPartialBytes)};
}

TROUPE_LANE std::uint32_t least(std::uint32_t a, std::uint32_t b) {
  return a < b ? a : b;
}
TROUPE_LANE std::uint32_t round_up(std::uint32_t value, std::uint32_t to) {
  return (value + to - 1) / to * to;
}
TROUPE_LANE std::uint32_t divide_up(std::uint32_t value, std::uint32_t by) {
  return (value + by - 1) / by;
}

TROUPE_LANE std::size_t input_row(const Product& product, std::uint32_t row) {
  return product.entries != nullptr ? product.entries[row] / product.divide : row;
}
TROUPE_LANE std::size_t output_row(const Product& product, std::uint32_t row) {
  return product.entries != nullptr ? product.entries[row] : row;
}

// sums += scale * partial, per output.
inline void add_scaled(float* sums,
                       const float* partial,
                       const float* scales,
                       std::size_t scale_stride,
                       std::uint32_t rows,
                       std::uint32_t panels,
                       bool fresh) {
  for (std::uint32_t panel = 0; panel < panels; ++panel) {
    const V16 scale = load(scales + panel * scale_stride);
    for (std::uint32_t row = 0; row < rows; ++row) {
      const std::size_t at = std::size_t{row} * kGroupOutputs + panel * kLanes;
      store(sums + at, fma(scale, load(partial + at), fresh ? zero() : load(sums + at)));
    }
  }
}

template <class Act>
void write_row(const Product& product, std::uint32_t row, const float* sums) {
  const std::uint32_t step = product.swiglu ? 2 : 1;
  std::uint32_t output = product.first_output;
  for (std::uint32_t panel = 0; panel < product.panels; panel += step, output += kLanes) {
    V16 value = load(sums + panel * kLanes);
    if (product.swiglu) {
      value = mul(silu(value), load(sums + (panel + 1) * kLanes));
    }
    const std::uint32_t count = least(kLanes, product.outputs - output);
    const std::size_t at = output_row(product, row) * product.out_stride + output;
    if (product.out_f32) {
      store_upto(reinterpret_cast<float*>(product.out) + at, value, count);
    } else {
      store_upto(reinterpret_cast<Act*>(product.out) + at, value, count);
    }
  }
}

// One span of inputs for one chunk of rows: sums are those of the chunk's first row.
template <class Engine, class W>
void multiply_span(Engine& engine,
                   const Product& product,
                   Block<typename Engine::X, W> block,
                   std::uint32_t first,
                   std::uint32_t count,
                   float* partial) {
  if (product.format != WeightFormat::kPanelF8) {
    block.pairs = divide_up(count, 2);
    engine.run(block);
    return;
  }
  const auto* x = block.x;
  const auto* weights = block.weights;
  float* sums = block.sums;
  const std::size_t scale_stride = std::size_t{divide_up(product.inputs, kScaleSpan)} * kLanes;
  const bool first_span = block.fresh;
  block.sums = partial;
  block.fresh = true;
  for (std::uint32_t input = 0; input < count; input += kScaleSpan) {
    block.x = Engine::at_input(x, input);
    block.weights = weights + std::size_t{input} * kLanes;
    block.pairs = divide_up(least(kScaleSpan, count - input), 2);
    engine.run(block);
    const float* scales = product.scales + std::size_t{(first + input) / kScaleSpan} * kLanes;
    add_scaled(
        sums, partial, scales, scale_stride, block.rows, block.panels, first_span && input == 0);
  }
}

// The next chunk's inputs: short pieces of rows far apart, which the processor does not foresee.
template <class Act>
void prefetch_rows(const Product& product,
                   std::uint32_t row,
                   std::uint32_t rows,
                   std::uint32_t first,
                   std::uint32_t count) {
  const std::uint32_t end = least(row + rows, product.rows);
  for (; row < end; ++row) {
    const std::size_t at = input_row(product, product.first_row + row) * product.x_stride + first;
    const std::byte* from = product.x + at * sizeof(Act);
    for (std::size_t byte = 0; byte < count * sizeof(Act); byte += 64) {
      __builtin_prefetch(from + byte);
    }
  }
}

// W: the element that the engine multiplies by. F8 panels are expanded to bf16 first unless W is
// F8.
template <class Act, class Engine, class W>
void multiply(const Product& product, std::byte* memory) {
  const Scratch scratch = split(memory);
  auto* x = reinterpret_cast<typename Engine::X*>(scratch.x);
  const std::size_t panel = std::size_t{round_up(product.inputs, 32)} * kLanes;  // elements
  const bool expand = product.format == WeightFormat::kPanelF8 && sizeof(W) != sizeof(F8);
  const std::uint32_t span = product.rows > Engine::kRows ? kShortSpan
                             : expand                     ? kF8Span
                                                          : kLongSpan;
  const std::uint32_t stride = round_up(least(span, product.inputs), 32) + Engine::kPad;
  Engine engine;
  for (std::uint32_t first = 0; first < product.inputs; first += span) {
    const std::uint32_t count = least(span, product.inputs - first);
    const std::uint32_t padded = round_up(count, 32);
    Block<typename Engine::X, W> block{};
    block.x = x;
    block.x_stride = stride;
    block.panels = product.panels;
    block.sum_stride = kGroupOutputs;
    block.fresh = first == 0;
    if (expand) {
      const auto* from =
          reinterpret_cast<const std::uint8_t*>(product.weights) + std::size_t{first} * kLanes;
      block.panel_stride = std::size_t{padded} * kLanes;
      // What is expanded kF8Ahead spans later: of this group, then of the next.
      const std::size_t ahead = std::size_t{kF8Ahead} * span * kLanes;
      const std::size_t left = panel - std::size_t{first} * kLanes;
      const std::uint8_t* later = from + ahead + (ahead < left ? 0 : (product.panels - 1) * panel);
      for (std::uint32_t p = 0; p < product.panels; ++p) {
        expand_f8(from + p * panel,
                  scratch.expanded + p * block.panel_stride,
                  block.panel_stride,
                  later + p * panel);
      }
      block.weights = reinterpret_cast<const W*>(scratch.expanded);
    } else {
      block.panel_stride = panel;
      block.weights = reinterpret_cast<const W*>(product.weights) + std::size_t{first} * kLanes;
    }
    for (std::uint32_t row = 0; row < product.rows; row += Engine::kRows) {
      block.rows = least(Engine::kRows, product.rows - row);
      block.sums = scratch.sums + std::size_t{row} * kGroupOutputs;
      for (std::uint32_t r = 0; r < block.rows; ++r) {
        const std::size_t from =
            input_row(product, product.first_row + row + r) * product.x_stride + first;
        Engine::put_row(
            x, stride, r, reinterpret_cast<const Act*>(product.x) + from, count, padded);
      }
      prefetch_rows<Act>(product, row + Engine::kRows, Engine::kRows, first, count);
      multiply_span(engine, product, block, first, count, scratch.partial);
    }
  }
  for (std::uint32_t row = 0; row < product.rows; ++row) {
    write_row<Act>(
        product, product.first_row + row, scratch.sums + std::size_t{row} * kGroupOutputs);
  }
}

// Any number of rows, any format.
template <class Act, class Engine>
void multiply_rows(Product product, std::byte* scratch) {
  const std::uint32_t end = product.first_row + product.rows;
  for (; product.first_row < end; product.first_row += kRowBlock) {
    product.rows = least(kRowBlock, end - product.first_row);
    if (product.format == WeightFormat::kPanelF32) {
      multiply<Act, FmaEngine, float>(product, scratch);
    } else if (product.format == WeightFormat::kPanelF8 && product.rows <= Engine::kF8Rows) {
      if constexpr (Engine::kF8Rows != 0) {
        multiply<Act, Engine, F8>(product, scratch);
      }
    } else {
      multiply<Act, Engine, bf16>(product, scratch);
    }
  }
}

// How the panels of a weight are cut into groups.
struct Grouping {
  std::uint32_t total;   // panels
  std::uint32_t panels;  // of a group
  std::uint32_t groups;
};
TROUPE_LANE Grouping group_panels(std::uint32_t outputs, bool swiglu, bool many_rows) {
  const std::uint32_t total = divide_up(outputs, kLanes) * (swiglu ? 2 : 1);
  const std::uint32_t panels = many_rows ? kManyPanels : kFewPanels;
  return {total, panels, divide_up(total, panels)};
}

// Points `product` at group `group` of a weight.
inline void choose_group(Product& product,
                         const KernelEnv& env,
                         const Weight& weight,
                         const Grouping& grouping,
                         std::uint32_t group) {
  const std::uint32_t first = group * grouping.panels;
  const std::size_t inputs = round_up(product.inputs, 32);
  const std::size_t element = weight.format == WeightFormat::kPanelF32    ? 4
                              : weight.format == WeightFormat::kPanelBF16 ? 2
                                                                          : 1;
  product.format = weight.format;
  product.weights = address(env, weight.data) + first * inputs * kLanes * element;
  product.panels = least(grouping.panels, grouping.total - first);
  product.first_output = first * kLanes / (product.swiglu ? 2 : 1);
  if (weight.format == WeightFormat::kPanelF8) {
    product.scales = reinterpret_cast<const float*>(address(env, weight.scales)) +
                     std::size_t{first} * divide_up(product.inputs, kScaleSpan) * kLanes;
  }
}

template <class Act, class Engine>
struct Linear {
  static std::uint32_t row_count(const KernelEnv& env, const LinearArgs& args) {
    const StepView step = view(env);
    return args.rows == RowSet::kAll ? step.row_count : step.sampled_count;
  }

  static Grouping grouping_of(const LinearPart& part, std::uint32_t rows) {
    return group_panels(part.outputs, part.epilogue == Epilogue::kSwiglu, rows > kManyRows);
  }

  static std::uint32_t items(const KernelEnv& env, const void* raw_args) {
    const auto& args = *static_cast<const LinearArgs*>(raw_args);
    const auto* parts = reinterpret_cast<const LinearPart*>(&args.parts);
    const std::uint32_t rows = row_count(env, args);
    std::uint32_t groups = 0;
    for (std::uint32_t p = 0; p < args.part_count; ++p) {
      groups += grouping_of(parts[p], rows).groups;
    }
    return groups * divide_up(rows, kRowBlock);
  }

  // Items of one group stand together, so that a shared cache sees its weights once.
  static void run(const KernelEnv& env,
                  const void* raw_args,
                  std::uint32_t begin,
                  std::uint32_t end,
                  std::byte* scratch) {
    const auto& args = *static_cast<const LinearArgs*>(raw_args);
    const auto* parts = reinterpret_cast<const LinearPart*>(&args.parts);
    const std::uint32_t rows = row_count(env, args);
    const std::uint32_t blocks = divide_up(rows, kRowBlock);
    for (std::uint32_t item = begin; item < end; ++item) {
      std::uint32_t group = item / blocks;
      const LinearPart* part = parts;
      Grouping grouping = grouping_of(*part, rows);
      while (group >= grouping.groups) {
        group -= grouping.groups;
        grouping = grouping_of(*++part, rows);
      }
      Product product;
      product.x = address(env, args.x);
      product.x_stride = args.x_stride;
      product.first_row = item % blocks * kRowBlock;
      product.rows = least(kRowBlock, rows - product.first_row);
      product.inputs = args.inputs;
      product.out = address(env, part->out);
      product.out_stride = part->out_stride;
      product.out_f32 = part->out_f32;
      product.swiglu = part->epilogue == Epilogue::kSwiglu;
      product.outputs = part->outputs;
      choose_group(product, env, part->weight, grouping, group);
      if (args.x_f32) {
        multiply_rows<float, FmaEngine>(product, scratch);
      } else {
        multiply_rows<Act, Engine>(product, scratch);
      }
    }
  }
};

// What the two expert kernels differ in.
struct ExpertShape {
  std::uint32_t inputs, outputs, divide;
  bool swiglu;
};
TROUPE_LANE ExpertShape shape_of(const ExpertSwigluArgs& args) {
  return {args.inputs, args.inner, args.top_k, true};
}
TROUPE_LANE ExpertShape shape_of(const ExpertDownArgs& args) {
  return {args.inner, args.outputs, 1, false};
}

template <class Act, class Engine, class Args>
struct Expert {
  // Rows of an expert are known only to the run: the mean decides.
  static Grouping grouping_of(const KernelEnv& env, const Args& args) {
    const ExpertShape shape = shape_of(args);
    return group_panels(
        shape.outputs, shape.swiglu, view(env).row_count * args.top_k / args.experts > kManyRows);
  }

  static std::uint32_t items(const KernelEnv& env, const void* raw_args) {
    const auto& args = *static_cast<const Args*>(raw_args);
    return least(args.experts, view(env).row_count * args.top_k) * grouping_of(env, args).groups;
  }

  static void run(const KernelEnv& env,
                  const void* raw_args,
                  std::uint32_t begin,
                  std::uint32_t end,
                  std::byte* scratch) {
    const auto& args = *static_cast<const Args*>(raw_args);
    const ExpertShape shape = shape_of(args);
    const auto* offsets = reinterpret_cast<const std::uint32_t*>(address(env, args.offsets));
    const auto* active = reinterpret_cast<const std::uint32_t*>(address(env, args.active));
    const std::uint32_t active_count =
        *reinterpret_cast<const std::uint32_t*>(address(env, args.active_count));
    const Grouping grouping = grouping_of(env, args);
    for (std::uint32_t item = begin; item < end && item / grouping.groups < active_count; ++item) {
      const std::uint32_t expert = active[item / grouping.groups];
      Product product;
      product.x = address(env, args.x);
      product.x_stride = shape.inputs;
      product.entries =
          reinterpret_cast<const std::uint32_t*>(address(env, args.entries)) + offsets[expert];
      product.divide = shape.divide;
      product.rows = offsets[expert + 1] - offsets[expert];
      product.inputs = shape.inputs;
      product.out = address(env, args.out);
      product.out_stride = shape.outputs;
      product.swiglu = shape.swiglu;
      product.outputs = shape.outputs;
      Weight weight = args.weight;
      weight.data.offset += expert * args.expert_bytes;
      weight.scales.offset += expert * args.scale_bytes;
      choose_group(product, env, weight, grouping, item % grouping.groups);
      multiply_rows<Act, Engine>(product, scratch);
    }
  }
};

template <class Act, class Engine>
constexpr void fill_gemm_kernels(KernelSet& set, Activation act) {
  const auto column = static_cast<std::size_t>(act);
  set.kernels[static_cast<std::size_t>(KernelId::kLinear)][column] = {Linear<Act, Engine>::items,
                                                                      Linear<Act, Engine>::run};
  set.kernels[static_cast<std::size_t>(KernelId::kExpertSwiglu)][column] = {
      Expert<Act, Engine, ExpertSwigluArgs>::items, Expert<Act, Engine, ExpertSwigluArgs>::run};
  set.kernels[static_cast<std::size_t>(KernelId::kExpertDown)][column] = {
      Expert<Act, Engine, ExpertDownArgs>::items, Expert<Act, Engine, ExpertDownArgs>::run};
}

}  // namespace troupe::cpu::TROUPE_ISA
