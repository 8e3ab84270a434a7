// Layout: where everything a plan touches lies: workspace offsets of the edges, offsets of the
// packed parameters in the weights arena, of each layer's state in a page and of its keys and
// values in the KV arena. Pure and deterministic.
//
// LA-1: two edges whose lifetimes overlap never share a byte of workspace, but for declared
// in-place pairs (proved by
//       check_layout on every layout that is made).
// LA-2: every offset is a multiple of 64 bytes.
#pragma once

#include "kernels/ops.h"
#include "runtime/base/error.h"
#include "runtime/circuit/circuit.h"
#include "runtime/circuit/fusion_plan.h"

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

// ---- workspace
// ----------------------------------------------------------------------------------------------------------------

struct EdgePlace {
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
  std::uint32_t first_group = 0;  // written
  std::uint32_t last_group = 0;   // last read
  bool used = false;
};

struct WorkspaceLayout {
  std::vector<EdgePlace> places;  // by edge; unused for states and fused-away edges
  std::uint64_t bytes = 0;
};

[[nodiscard]] WorkspaceLayout make_workspace_layout(const Circuit& circuit, const FusionPlan& plan);
// LA-1 and LA-2; kInternal names the two edges.
[[nodiscard]] Status check_layout(const Circuit& circuit,
                                  const FusionPlan& plan,
                                  const WorkspaceLayout& layout);

// ---- parameters
// ----------------------------------------------------------------------------------------------------------------

enum class Packing : std::uint8_t {
  kPanels,       // a linear's weight, or gate and up in pairs, of one matrix or of all experts of a
                 // layer
  kTable,        // the embedding, row-major, as stored
  kVector,       // fp32 as it is
  kOnePlus,      // fp32 1 + w
  kNegativeExp,  // fp32 -exp(w)
  kTransposed,   // fp32 [columns][rows]: the convolution's taps
};

// One block of the weights arena.
struct PackedParameter {
  Packing packing = Packing::kPanels;
  std::vector<std::string>
      names;  // panels: per matrix 1 or 2 (gate, up) names; experts: all of them in order
  std::uint32_t per_matrix = 1;  // names of a matrix
  WeightFormat format = WeightFormat::kPanelBF16;
  DType table_type = DType::kBF16;
  std::uint32_t rows = 0;  // of one name
  std::uint32_t columns = 0;
  std::uint64_t offset = 0;
  std::uint64_t matrix_bytes = 0;
  std::uint64_t scale_offset = 0;  // kPanelF8
  std::uint64_t scale_bytes = 0;   // of one matrix
  [[nodiscard]] std::uint32_t matrices() const {
    return static_cast<std::uint32_t>(names.size()) / per_matrix;
  }
};

// The dtype a parameter is stored in; decides the panel format. All BF16 when no checkpoint is at
// hand.
using ParameterType = std::function<DType(std::string_view name)>;

struct WeightLayout {
  std::vector<PackedParameter> parameters;
  std::map<std::string, std::pair<std::uint32_t, std::uint32_t>, std::less<>>
      index;                      // name -> (parameter, place in names)
  std::uint64_t rope_offset = 0;  // fp32 inverse frequencies, computed, not loaded
  std::uint64_t bytes = 0;
  [[nodiscard]] const PackedParameter& of(std::string_view name) const;
};

// Errors: kUnsupported when gate and up of one pair, or the experts of a layer, are stored in
// different formats, naming both.
[[nodiscard]] Result<WeightLayout> make_weight_layout(const Circuit& circuit,
                                                      const FusionPlan& plan,
                                                      const ParameterType& type);

// ---- states
// --------------------------------------------------------------------------------------------------------------------

struct GdnPlace {
  std::uint32_t layer = 0;
  std::uint64_t state_offset = 0;  // in a page
  std::uint64_t window_offset = 0;
};

struct StateLayout {
  std::vector<GdnPlace> gdn;  // by rising layer
  std::uint64_t page_bytes = 0;
  std::vector<std::uint32_t> attention_layers;  // rising; KV arena is [attention layer][block]
  std::uint64_t layer_block_bytes = 0;          // one block of one layer
  [[nodiscard]] std::uint64_t block_bytes() const {
    return layer_block_bytes * attention_layers.size();
  }
};

[[nodiscard]] StateLayout make_state_layout(const Circuit& circuit, Activation activation);

}  // namespace troupe
