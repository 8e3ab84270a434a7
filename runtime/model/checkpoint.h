// Checkpoint: the weights of a Hugging Face directory as memory-mapped, verified tensors under
// Troupe's own names, whatever released layout the files have (fused or split GDN projections,
// per-expert or fused experts, any prefix). The arithmetic of the layouts is MODEL.md section 2.
// Owned by whoever loads a model; read by the loader's threads; immutable after open.
//
// CK-1: after open() every tensor the config demands exists with exactly the expected shape and an
// accepted dtype,
//       and every tensor in the files is either demanded, recognised (mtp., visual.) or an error.
// CK-2: nothing is converted here: a view says where the bytes are and which rows they are; packing
// decides the rest. CK-3: every view's data and scale are aligned to their elements. CK-4: block
// FP8 occurs only in matrices that releases quantise: never in embed, conv, gdn.a, gdn.b,
// moe.router,
//       moe.shared_gate or a 1-D tensor.
#pragma once

#include "runtime/base/dtype.h"
#include "runtime/base/error.h"
#include "runtime/model/config.h"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

// A 2-D (or 1-D: rows == 1) tensor in a mapped file. Row r of the logical tensor is stored row
// row_map[r] where a map is given (fused layouts are un-fused by maps, never by copies), stored row
// first_row + r otherwise.
struct TensorView {
  std::string name;  // Troupe's name, see below and parameters.h
  DType dtype = DType::kBF16;
  std::uint32_t rows = 0;
  std::uint32_t columns = 0;
  const std::byte* data = nullptr;  // of stored row 0; row-major, `columns` elements a row
  std::uint32_t first_row = 0;
  std::vector<std::uint32_t> row_map;  // empty, or `rows` entries: stored row of each logical row

  // Block FP8 only: scale of stored element (i, j) is scale[i / 128][j / 128], BF16 or F32.
  const std::byte* scale = nullptr;
  DType scale_dtype = DType::kF32;
  std::uint32_t scale_columns = 0;

  [[nodiscard]] std::uint32_t stored_row(std::uint32_t row) const {
    return row_map.empty() ? first_row + row : row_map[row];
  }
};

// Troupe's parameter names. N = layer index, E = expert index; shapes [rows, columns] as MODEL.md
// section 2:
//   embed  [V,H] · final_norm [1,H] · head [V,H] (present when stored, even if the config ties;
//   absent = use embed) layers.N.mixer_norm [1,H] · layers.N.ffn_norm [1,H] GDN:  layers.N.gdn.{qkv
//   [2Kd+Vd,H], z [Vd,H], b [nv,H], a [nv,H], conv [2Kd+Vd,W], a_log [1,nv], dt_bias [1,nv],
//         norm [1,dv], out [H,Vd]}                     (rows of qkv: all q heads | all k heads |
//         all v heads)
//   attn: layers.N.attn.{q [Nq*D,H], gate [Nq*D,H] (if gated), k [Nkv*D,H], v [Nkv*D,H], q_norm
//   [1,D], k_norm [1,D], o [H,Nq*D]} dense: layers.N.mlp.{gate [Im,H], up [Im,H], down [H,Im]} MoE:
//   layers.N.moe.router [E,H] · layers.N.moe.experts.E.{gate [I,H], up [I,H], down [H,I]} ·
//         layers.N.moe.shared.{gate [Is,H], up [Is,H], down [H,Is]} · layers.N.moe.shared_gate
//         [1,H]
// The MTP layer (absent, or whole): mtp.{fc [H,2H], embedding_norm, hidden_norm, norm [1,H]} and
// mtp.layers.0.… as above.
class Checkpoint {
 public:
  // Maps and verifies the model's files: those that model.safetensors.index.json lists; without an
  // index model.safetensors and model-*.safetensors; without these every *.safetensors. From other
  // *.safetensors in the directory and in mtp/ only mtp tensors are taken. No weight byte is read.
  // Errors: kInvalid names file, tensor, expected and found; kUnsupported names a quantisation or
  // export that Troupe does not run.
  [[nodiscard]] static Result<std::unique_ptr<Checkpoint>> open(
      const std::filesystem::path& directory, const ModelConfig& config);
  virtual ~Checkpoint() = default;

  [[nodiscard]] virtual std::span<const TensorView> tensors() const = 0;
  [[nodiscard]] virtual const TensorView* find(
      std::string_view name) const = 0;  // null when absent
  [[nodiscard]] virtual bool has_mtp() const = 0;
  [[nodiscard]] virtual std::uint64_t file_bytes() const = 0;
  // Names and sizes of the files and every header: what the model hash of the arithmetic digest
  // covers (weight bytes are not read for it).
  [[nodiscard]] virtual std::string header_digest() const = 0;
  // Changes when anybody replaces one of the files or writes to it, whatever the bytes: names,
  // inodes, sizes and times of change. For what is kept beside the files.
  [[nodiscard]] virtual std::string file_identity() const = 0;
  // Tells the kernel that the pages of this tensor are not needed any more (after packing).
  // Thread-safe.
  virtual void release(const TensorView& tensor) const = 0;
};

}  // namespace troupe
