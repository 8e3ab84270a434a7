// The kernels of Troupe: one declaration per operation, with shapes, types and numerics. A kernel
// is a plain function over borrowed memory; it knows no model and no actor, allocates nothing,
// waits for nothing and returns void: a wrong shape is a bug. Arguments are plain data bound when a
// program is compiled; what varies between two runs is the StepTable alone.
//
// Notation: T rows of the step, H hidden size, K inputs and N outputs of a linear, act = the
// activation type (bf16 or fp32), f32 = always fp32. All arrays are row-major; a row starts at
// `stride` elements. Sizes in elements unless called bytes.
//
// OP-1 (row independence): the bits of a row's result depend on that row's inputs, its position and
// the weights only, never on
//      other rows, the number of rows, worker count or how items are split. Every output element is
//      reduced in one fixed order.
// OP-2: all sums, norms, softmax, gates and states are fp32; results are rounded to act (nearest,
// ties to even) once, where
//      the comment says "-> act".
// OP-3: multiply-add is always an explicit fma; exp, log, sin, cos are ours (kernels/cpu/math.h);
// square root and division are
//      IEEE. The sets scalar, avx2 and avx512 give identical bits: lane-wise reductions use 16
//      virtual lanes (element i goes to lane i mod 16, ascending), then a fixed tree (lane l +=
//      lane l+8, +4, +2, +1).
// OP-4: work is split into items; any worker may run any sub-range of [0, items) in any order, each
// item exactly once. No item
//      reads what another item of the same launch writes.
#pragma once

#include "runtime/base/dtype.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace troupe {

// ---- memory -------------------------------------------------------------------------------------

enum class Arena : std::uint8_t { kNone, kWeights, kWorkspace, kPages, kKv };
inline constexpr std::size_t kArenaCount = 5;

// A place in an arena; arenas have a base address only when a program runs. Offsets are multiples
// of 64 bytes.
struct Ref {
  Arena arena = Arena::kNone;
  std::uint64_t offset = 0;  // bytes
  [[nodiscard]] bool empty() const { return arena == Arena::kNone; }
  bool operator==(const Ref&) const = default;
};

enum class Activation : std::uint8_t { kBF16, kF32 };
[[nodiscard]] constexpr std::size_t size_of(Activation act) {
  return act == Activation::kBF16 ? 2 : 4;
}

// ---- the step table: all that varies between two runs of a program ------------------------------

inline constexpr std::uint32_t kNoPage = 0xffffffffU;
inline constexpr std::uint32_t kZeroPage =
    0;  // all zeros: every sequence starts here (decision D1)
inline constexpr std::uint32_t kBlockTokens = 64;  // tokens in a KV block
inline constexpr std::uint32_t kSpanTokens =
    256;  // absolute span of keys reduced before merging (decision D2)
inline constexpr std::uint32_t kTopLogprobs = 20;  // most alternatives reported per token

struct StepRow {
  std::int32_t token =
      0;  // id; or ~r (negative): what row r of sampled output of the previous ticket chose
  std::int32_t position = 0;  // in its sequence, from 0
  std::uint32_t segment = 0;
  std::uint32_t write_page = kNoPage;  // state after this row goes to this page; kNoPage: not kept
};

// Rows first_row .. first_row+rows-1 continue one sequence at consecutive positions.
struct StepSegment {
  std::uint32_t first_row = 0;
  std::uint32_t rows = 0;
  std::uint32_t read_page = kZeroPage;  // state before the first row; may equal write_page of a
                                        // one-row segment (in place)
  std::uint32_t block_row = 0;          // row of the block table
};

struct TokenValue {  // a sparse entry: token id and a number
  std::uint32_t token = 0;
  float value = 0;
  bool operator==(const TokenValue&) const = default;
};

// Sampling of one sampled row. Order: logit bias, penalties, temperature, top-k, top-p, min-p
// (MODEL.md 5.3, decision D4).
struct SampleParams {
  float temperature = 0;    // 0: greedy (lowest id among equals)
  std::uint32_t top_k = 0;  // 0: off
  float top_p = 1;
  float min_p = 0;
  float repetition_penalty = 1;  // every token with a count: logits > 0 divided, <= 0 multiplied
  float presence_penalty =
      0;  // subtracted once for every token with a count of generated occurrences
  float frequency_penalty = 0;     // subtracted count times
  std::uint64_t key = 0;           // Philox key = the request's seed
  std::uint32_t choice = 0;        // choice index of the request
  std::uint32_t top_logprobs = 0;  // how many alternatives to report, <= kTopLogprobs
  std::uint32_t want_logprob = 0;
  std::int32_t forced = -1;  // >= 0: nothing is chosen, this token is reported (prompt logprobs)
  // [begin, end) into StepTable::values
  std::uint32_t prompt_begin = 0,
                prompt_end = 0;  // tokens of the prompt (value unused): repetition penalty only
  std::uint32_t generated_begin = 0, generated_end = 0;  // generated tokens, value = count
  std::uint32_t bias_begin = 0, bias_end = 0;            // token, bias added to the logit
};

struct SampledRow {
  std::uint32_t row = 0;  // of the step
  SampleParams params;
};

struct SampleResult {
  std::int32_t token = -1;
  float logprob =
      0;  // natural log of softmax(logits) at token, before bias, penalties and temperature
  std::uint32_t top_count = 0;
  std::array<TokenValue, kTopLogprobs> top{};  // falling logprob, then rising id
};

struct StepTable {
  std::span<const StepRow> rows;          // active rows only
  std::span<const StepSegment> segments;  // in row order
  std::span<const SampledRow> sampled;    // ascending rows; logits exist for these only
  std::span<const std::uint32_t> blocks;  // [block rows][block_width]
  std::uint32_t block_width = 0;
  std::span<const TokenValue> values;      // sparse lists of the sampling parameters
  std::span<SampleResult> results;         // one per sampled row
  std::span<const SampleResult> previous;  // of the ticket that negative tokens refer to
};

// ---- weights ------------------------------------------------------------------------------------

// Panels (decision D8): [N/16][K/32][16 pairs][16 outputs][2 inputs], N and K padded with zeros;
// one vector holds 16 outputs. A SwiGLU pair of weights is packed as gate panel 0, up panel 0, gate
// panel 1, up panel 1, ...
enum class WeightFormat : std::uint8_t { kPanelBF16, kPanelF32, kPanelF8 };
[[nodiscard]] constexpr std::size_t size_of(WeightFormat format) {
  return format == WeightFormat::kPanelF32 ? 4 : format == WeightFormat::kPanelBF16 ? 2 : 1;
}
[[nodiscard]] constexpr std::uint64_t panel_count(std::uint64_t outputs) {
  return (outputs + 15) / 16;
}
[[nodiscard]] constexpr std::uint64_t panel_elements(std::uint64_t inputs) {
  return (inputs + 31) / 32 * 32 * 16;
}

struct Weight {
  Ref data;
  Ref scales;  // kPanelF8 only: f32 [N/16][ceil(K/128)][16], multiplies the fp32 partial sum of its
               // 128 inputs
  WeightFormat format = WeightFormat::kPanelBF16;
};

// ---- operations ---------------------------------------------------------------------------------

enum class KernelId : std::uint8_t {
  kEmbed,
  kRopeTable,
  kAdd,
  kNorm,
  kLinear,
  kSiluMul,
  kGdnConv,
  kGdnScan,
  kGdnNorm,
  kAttentionPrepare,
  kAttention,
  kGateMul,
  kRouter,
  kMoePermute,
  kExpertSwiglu,
  kExpertDown,
  kMoeCombine,
  kSample,
};
inline constexpr std::size_t kKernelCount = 18;
[[nodiscard]] std::string_view name(KernelId id);

// Which rows an operation covers: all active rows, or only the sampled ones (then outputs are
// compact: [sampled][...]).
enum class RowSet : std::uint8_t { kAll, kSampled };

// out[t] = table[token of row t], the start of the residual stream. table: row-major of
// `table_type` (F32, BF16, F16), or when `panel` has data the panels of a tied head (rows are
// gathered from the panels' lanes; F8 never). items: rows.
struct EmbedArgs {
  Ref table;
  DType table_type = DType::kBF16;
  Weight panel;
  Ref out;  // f32 [T][hidden]
  std::uint32_t hidden = 0;
};

// out[t] = cos a_0 .. cos a_{half-1}, sin a_0 .. sin a_{half-1} with a_i = fp32(position) *
// inverse_frequency[i] (fp32), both times `scale` (YaRN). items: rows.
struct RopeTableArgs {
  Ref inverse_frequency;  // f32 [half]
  Ref out;                // f32 [T][2*half]
  std::uint32_t half = 0;
  float scale = 1;
};

// out = a + b. items: rows.
struct AddArgs {
  Ref a, b, out;  // f32 [T][width]; out may be a
  std::uint32_t width = 0;
};

// sum = x (+ delta; written back to x when `delta` is given);
// out = sum * (1/sqrt(mean(sum^2) + eps)) * weight -> act. `weight` already holds 1+w. Where
// out_f32 is given it holds the same before rounding.
// rows kSampled: reads rows sampled[i].row of x, writes out[i]; x is then not written unless delta
// is given, in which case only the sampled rows of x are, and no row may be sampled twice.
// items: rows of the set.
struct NormArgs {
  Ref x;        // f32 [T][width]
  Ref delta;    // f32 [T][width] or empty
  Ref weight;   // f32 [width]
  Ref out;      // act [T or sampled][width]
  Ref out_f32;  // the same unrounded, f32, or empty
  std::uint32_t width = 0;
  float eps = 1e-6F;
  RowSet rows = RowSet::kAll;
};

enum class Epilogue : std::uint8_t {
  kNone,    // out = x W^T
  kSwiglu,  // W holds gate and up panels in pairs: out = silu(gate) * up, in fp32
};

struct LinearPart {
  Weight weight;
  Ref out;                    // [T or sampled][out_stride]
  std::uint32_t outputs = 0;  // N (of one half with kSwiglu)
  std::uint32_t out_stride = 0;
  bool out_f32 = false;  // f32, else act
  Epilogue epilogue = Epilogue::kNone;
};
inline constexpr std::size_t kLinearParts = 4;

// Up to four weights applied to the same input. Reduction: one fp32 accumulator per output, inputs
// ascending in pairs (k, k+1), each an fma (fp32 sets); the pair instructions of bf16 sets keep
// ascending pairs. kPanelF8: an accumulator per 128 inputs, times its scale by fma into the
// output's sum, ascending. Padded inputs beyond K are never read from x.
struct LinearArgs {
  Ref x;                     // act (f32 when x_f32) [T or sampled][x_stride]
  std::uint32_t inputs = 0;  // K
  std::uint32_t x_stride = 0;
  bool x_f32 = false;  // x is f32, not act, and every kernel set multiplies it by fma
  RowSet rows = RowSet::kAll;
  std::uint32_t part_count = 0;
  std::array<LinearPart, kLinearParts> parts{};
};

// out = silu(gate) * up, in fp32 -> act. items: rows.
struct SiluMulArgs {
  Ref gate, up;  // f32 [T][width]
  Ref out;       // act [T][width]
  std::uint32_t width = 0;
};

// GatedDeltaNet before its recurrence (MODEL.md 3.6, steps 2 to 5). Channels of qkv: q heads | k
// heads | v heads. u = causal convolution of qkv with the window of the segment's read page, taps
// ascending by fma from 0; c = silu(u). q, k of c: x / sqrt(sum x^2 + 1e-6), q also times
// dk^-1/2 -> f32. v of c -> f32. decay = exp(a_coefficient * softplus(a + dt_bias)), beta =
// sigmoid(b) -> f32. Reads the pages, never writes them: the scan writes the new window. items:
// rows * key heads.
struct GdnConvArgs {
  Ref qkv;            // f32 [T][channels], the convolution's inputs
  Ref ba;             // f32 [T][2*nv]: b of all value heads, then a
  Ref conv;           // f32 [W][channels]: tap W-1 multiplies the current row
  Ref a_coefficient;  // f32 [nv] = -exp(A_log)
  Ref dt_bias;        // f32 [nv]
  Ref q, k;           // f32 [T][nk*dk]
  Ref v;              // f32 [T][nv*dv]
  Ref decay, beta;    // f32 [T][nv]
  std::uint32_t key_heads = 0, value_heads = 0, key_dim = 0, value_dim = 0, taps = 0;
  std::uint64_t page_bytes = 0;
  std::uint64_t window_offset = 0;  // of this layer in a page: f32 [W-1][channels], oldest first
};

// The recurrence (MODEL.md 3.6, step 6), fp32 throughout, rows of a segment in order; value head h
// uses key head h / (nv/nk):
//   S *= decay; m = S^T k (i ascending, fma from 0); d = beta * (v - m); S += k (x) d (fma); o =
//   S^T q (i ascending, fma from 0).
// Starts from the read page; after each row whose write_page is not kNoPage the state goes there,
// and that page's window becomes the last W-1 inputs of qkv. One item = (segment, value head, 64
// columns of dv), worked in tiles of S that stay in cache over all rows of a chunk. Window channels
// are written by the item that owns them: the first of a value head writes its v channels, and if
// that is the first value head of a key head also that head's q and k channels.
struct GdnScanArgs {
  Ref q, k, v, decay, beta;  // as GdnConvArgs
  Ref qkv;                   // f32 [T][channels]
  Ref out;                   // f32 [T][nv*dv]
  std::uint32_t key_heads = 0, value_heads = 0, key_dim = 0, value_dim = 0, taps = 0;
  std::uint64_t page_bytes = 0;
  std::uint64_t state_offset = 0;  // of this layer in a page: f32 [nv][dk][dv]
  std::uint64_t window_offset = 0;
};

// Per row and value head over dv: out = o * (1/sqrt(mean(o^2) + eps)) * weight * gate(z) -> act,
// gate = silu or sigmoid. items: rows.
struct GdnNormArgs {
  Ref o;       // f32 [T][heads*dim]
  Ref z;       // f32 [T][heads*dim]
  Ref weight;  // f32 [dim], plain
  Ref out;     // act [T][heads*dim]
  std::uint32_t heads = 0, dim = 0;
  float eps = 1e-6F;
  bool sigmoid_gate = false;
};

// Per head: q and k normed over D with (1+w) weights in fp32, then pairs (x, y) = (i, i+half), i <
// half, turned by the table: fma(x, cos, -(y sin)), fma(y, cos, x sin); -> act. q goes to q_out, k
// and v to the KV blocks. A block of a layer: K of all kv heads, then V of all kv heads. K of a
// head is a panel of 64 outputs (the positions) and D inputs: [4][D/2][16 positions][2]; V is
// [64][D]. D is even. Row t of segment s at position p lives in block blocks[s.block_row][p / 64],
// slot p % 64. items: rows.
struct AttentionPrepareArgs {
  Ref q;               // f32 [T][heads*dim]
  Ref k, v;            // f32 [T][kv_heads*dim]
  Ref q_norm, k_norm;  // f32 [dim], hold 1+w
  Ref rope;            // f32 [T][2*half]
  Ref q_out;           // act [T][heads*dim]
  std::uint32_t heads = 0, kv_heads = 0, dim = 0, half = 0;
  float eps = 1e-6F;
  std::uint64_t kv_offset = 0;    // of this layer in the KV arena
  std::uint64_t block_bytes = 0;  // of one layer's block: 2 * kv_heads * 64 * dim * size_of(act)
};

// Causal attention over paged keys. For a row at position p and head h (kv head h /
// (heads/kv_heads)): scores over D ascending by fma, times dim^-1/2; keys are taken in blocks of 64
// (absolute), online softmax over the blocks of a 256-position span ascending, span partials (m, l,
// o) merged ascending; o / l. Then out = o * sigmoid(gate) -> act, or with an empty gate and
// out_f32 the plain o in fp32. items: (tile of rows of one segment, kv head).
struct AttentionArgs {
  Ref q;     // act [T][heads*dim], normed and rotated
  Ref gate;  // f32 [T][heads*dim] or empty
  Ref out;   // act (f32 when out_f32) [T][heads*dim]
  bool out_f32 = false;
  std::uint32_t heads = 0, kv_heads = 0, dim = 0;
  std::uint64_t kv_offset = 0;
  std::uint64_t block_bytes = 0;
};

// out = x * sigmoid(gate) -> act. items: rows.
struct GateMulArgs {
  Ref x;     // f32 [T][width]
  Ref gate;  // f32 [T][width]
  Ref out;   // act [T][width]
  std::uint32_t width = 0;
};

// Softmax over all experts in fp32, top k by falling probability (ties: lower index), weights p /
// sum of chosen p when `renormalise`. items: rows.
struct RouterArgs {
  Ref logits;   // f32 [T][experts]
  Ref ids;      // u32 [T][top_k]
  Ref weights;  // f32 [T][top_k]
  std::uint32_t experts = 0, top_k = 0;
  bool renormalise = true;
};

// Groups the (row, choice) pairs by expert, stable: offsets[e] .. offsets[e+1] are the entries of
// expert e, an entry is row * top_k + choice; active lists the experts with entries, ascending,
// active_count how many. items: 1.
struct MoePermuteArgs {
  Ref ids;           // u32 [T][top_k]
  Ref offsets;       // u32 [experts+1]
  Ref entries;       // u32 [T*top_k]
  Ref active;        // u32 [experts]
  Ref active_count;  // u32 [1]
  std::uint32_t experts = 0, top_k = 0;
};

// For every entry of expert e: out[entry] = silu(gate_e x) * (up_e x) -> act, x = row entry /
// top_k. Experts' weights are equal in size and stand expert_bytes (scale_bytes) apart. items:
// min(experts, T*top_k) * panel groups; those beyond active_count do nothing. Reduction as kLinear.
struct ExpertSwigluArgs {
  Ref x;          // act [T][inputs]
  Weight weight;  // of expert 0: gate and up panels in pairs
  std::uint64_t expert_bytes = 0, scale_bytes = 0;
  Ref offsets, entries, active, active_count;
  Ref out;  // act [T*top_k][inner]
  std::uint32_t inputs = 0, inner = 0, experts = 0, top_k = 0;
};

// For every entry of expert e: out[entry] = down_e x[entry] -> act (rounded per (row, choice):
// decision D7).
struct ExpertDownArgs {
  Ref x;  // act [T*top_k][inner]
  Weight weight;
  std::uint64_t expert_bytes = 0, scale_bytes = 0;
  Ref offsets, entries, active, active_count;
  Ref out;  // act [T*top_k][outputs]
  std::uint32_t inner = 0, outputs = 0, experts = 0, top_k = 0;
};

// out[t] = sum over choices ascending of weights[t][c] * expert[t*top_k + c] (fma from 0), +
// sigmoid(shared_gate[t]) * shared[t] (one fma). Without a shared expert the refs are
// empty. items: rows.
struct MoeCombineArgs {
  Ref expert;       // act [T*top_k][width]
  Ref weights;      // f32 [T][top_k]
  Ref shared;       // f32 [T][width]
  Ref shared_gate;  // f32 [T][1]
  Ref out;          // f32 [T][width]
  std::uint32_t width = 0, top_k = 0;
};

// One SampleResult per sampled row; token -1 if a logit is NaN or all are -inf. Ids >= valid are
// padding; one that is forced has logprob -inf. Inverse CDF over kept ids by falling weight (all
// ids kept: by id) of the 53 upper bits of words 1, 0 of philox4x32(key, {position of the row,
// choice, 1, 0}). items: sampled rows.
struct SampleArgs {
  Ref logits;  // f32 [sampled][vocab]
  std::uint32_t vocab = 0, valid = 0;
};

// ---- kernels ------------------------------------------------------------------------------------

struct KernelEnv {
  std::array<std::byte*, kArenaCount> base{};
  const StepTable* step = nullptr;

  template <class T>
  [[nodiscard]] T* at(const Ref& ref) const {
    return reinterpret_cast<T*>(base[static_cast<std::size_t>(ref.arena)] + ref.offset);
  }
};

// Per-worker memory of a kernel, 64-byte aligned, contents undefined between items.
inline constexpr std::size_t kScratchBytes = std::size_t{4} << 20;

struct Kernel {
  std::uint32_t (*items)(const KernelEnv& env, const void* args) = nullptr;
  void (*run)(const KernelEnv& env,
              const void* args,
              std::uint32_t begin,
              std::uint32_t end,
              std::byte* scratch) = nullptr;
};

// One implementation of every operation. Immutable, lives for ever.
struct KernelSet {
  std::string_view name;          // "scalar", "avx2", "avx512", "avx512-bf16", "amx-bf16"
  bool (*available)() = nullptr;  // does this processor (and kernel) have what it takes
  bool fp32_activations = true;   // the bf16 sets have none
  std::array<std::array<Kernel, 2>, kKernelCount> kernels{};  // [id][activation]

  [[nodiscard]] const Kernel& kernel(KernelId id, Activation act) const {
    return kernels[static_cast<std::size_t>(id)][static_cast<std::size_t>(act)];
  }
};

// All sets compiled in, slowest first; available() says which may run here.
[[nodiscard]] std::span<const KernelSet* const> cpu_kernel_sets();
[[nodiscard]] const KernelSet* find_cpu_kernel_set(std::string_view name);  // null: no such set

// ---- packing (pure, one tensor or expert at a time, any thread) ---------------------------------

// What to pack: `rows` x `columns` elements; stored row of logical row r is row_map[r], or
// first_row + r without a map.
struct PackSource {
  const std::byte* data = nullptr;
  DType dtype = DType::kBF16;  // BF16, F16, F32, F8_E4M3
  std::uint32_t rows = 0, columns = 0, first_row = 0;
  const std::uint32_t* row_map = nullptr;
  const std::byte* scale =
      nullptr;  // F8: [..][scale_columns], of stored row / 128 and column / 128
  DType scale_dtype = DType::kF32;
  std::uint32_t scale_columns = 0;
};

// The format that holds a dtype exactly: BF16 -> kPanelBF16, F8 -> kPanelF8, F16 and F32 ->
// kPanelF32.
[[nodiscard]] WeightFormat panel_format(DType dtype);
[[nodiscard]] std::uint64_t packed_bytes(WeightFormat format,
                                         std::uint64_t outputs,
                                         std::uint64_t inputs);
[[nodiscard]] std::uint64_t packed_scale_bytes(std::uint64_t outputs, std::uint64_t inputs);

// Writes panel p of the source to panel first_panel + p * panel_step of `out` (step 2 interleaves
// gate and up).
void pack_panels(const PackSource& source,
                 WeightFormat format,
                 std::byte* out,
                 float* scales,  // kPanelF8 only
                 std::uint32_t first_panel = 0,
                 std::uint32_t panel_step = 1);

}  // namespace troupe
