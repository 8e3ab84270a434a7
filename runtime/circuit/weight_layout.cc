#include "runtime/circuit/layout.h"

#include <algorithm>
#include <utility>

namespace troupe {
namespace {

std::uint64_t aligned(std::uint64_t bytes) {
  return (bytes + 63) / 64 * 64;
}

std::string_view text_of(WeightFormat format) {
  switch (format) {
    case WeightFormat::kPanelBF16:
      return "bf16";
    case WeightFormat::kPanelF32:
      return "fp32";
    case WeightFormat::kPanelF8:
      return "fp8";
  }
  return "?";
}

class WeightPlanner final {
 public:
  WeightPlanner(const Circuit& circuit, const ParameterType& type)
      : circuit_(circuit), type_(type) {}

  Status group(const Group& group) {
    for (const PlanPart& part : group.parts) {
      const std::uint32_t columns =
          circuit_.edges[circuit_.nodes[group.nodes.front()].inputs[0]].width;
      TROUPE_TRY(panels(part.parameters,
                        static_cast<std::uint32_t>(part.parameters.size()),
                        part.outputs,
                        columns));
    }
    for (const NodeIndex n : group.nodes) {
      TROUPE_TRY(node(circuit_.nodes[n]));
    }
    return {};
  }

  WeightLayout finish() {
    layout_.rope_offset = layout_.bytes;
    layout_.bytes += aligned(circuit_.config.rope.rotary_dims / 2 * 4);
    return std::move(layout_);
  }

 private:
  Status node(const CircuitNode& node) {
    const ModelConfig& c = circuit_.config;
    const auto& names = node.parameters;
    switch (node.op) {
      case Op::kEmbed:
        // A tied head's panels serve both uses: rows are gathered from them.
        if (!(c.tie_word_embeddings && circuit_.has_head())) {
          table(names[0], c.vocab_size, c.hidden_size);
        }
        return {};
      case Op::kNorm:
        vector(names[0], Packing::kOnePlus, 1, c.hidden_size);
        return {};
      case Op::kGdnConv:
        vector(names[0], Packing::kTransposed, c.gdn_conv_channels(), c.conv_kernel);
        vector(names[1], Packing::kNegativeExp, 1, c.gdn_value_heads);
        vector(names[2], Packing::kVector, 1, c.gdn_value_heads);
        return {};
      case Op::kGdnNorm:
        vector(names[0], Packing::kVector, 1, c.gdn_value_dim);
        return {};
      case Op::kAttentionPrepare:
        vector(names[0], Packing::kOnePlus, 1, c.head_dim);
        vector(names[1], Packing::kOnePlus, 1, c.head_dim);
        return {};
      case Op::kExpertSwiglu:
        return panels(names, 2, c.moe_intermediate_size, c.hidden_size);
      case Op::kExpertDown:
        return panels(names, 1, c.hidden_size, c.moe_intermediate_size);
      default:
        return {};
    }
  }

  PackedParameter& add(std::vector<std::string> names) {
    const auto place = static_cast<std::uint32_t>(layout_.parameters.size());
    for (std::uint32_t i = 0; i < names.size(); ++i) {
      layout_.index.emplace(names[i], std::pair(place, i));
    }
    layout_.parameters.push_back({.names = std::move(names), .offset = layout_.bytes});
    return layout_.parameters.back();
  }

  Status panels(std::vector<std::string> names,
                std::uint32_t per_matrix,
                std::uint32_t rows,
                std::uint32_t columns) {
    if (layout_.index.contains(names.front())) {
      return {};
    }
    const WeightFormat format = panel_format(type_(names.front()));
    for (const std::string& name : names) {
      const WeightFormat other = panel_format(type_(name));
      if (other != format) {
        return error(Kind::kUnsupported,
                     "parameters " + names.front() + " (" + std::string(text_of(format)) +
                         ") and " + name + " (" + std::string(text_of(other)) +
                         ") are computed together and must be stored in the same type");
      }
    }
    PackedParameter& p = add(std::move(names));
    p.packing = Packing::kPanels;
    p.per_matrix = per_matrix;
    p.format = format;
    p.rows = rows;
    p.columns = columns;
    // A pair is packed panel by panel, so each half is padded to whole panels.
    const std::uint64_t outputs = panel_count(rows) * 16 * per_matrix;
    p.matrix_bytes = packed_bytes(format, outputs, columns);
    layout_.bytes = aligned(layout_.bytes + p.matrix_bytes * p.matrices());
    if (format == WeightFormat::kPanelF8) {
      p.scale_offset = layout_.bytes;
      p.scale_bytes = packed_scale_bytes(outputs, columns);
      layout_.bytes = aligned(layout_.bytes + p.scale_bytes * p.matrices());
    }
    return {};
  }

  void vector(const std::string& name, Packing packing, std::uint32_t rows, std::uint32_t columns) {
    if (layout_.index.contains(name)) {
      return;
    }
    PackedParameter& p = add({name});
    p.packing = packing;
    p.rows = rows;
    p.columns = columns;
    p.matrix_bytes = aligned(std::uint64_t{rows} * columns * 4);
    layout_.bytes += p.matrix_bytes;
  }

  void table(const std::string& name, std::uint32_t rows, std::uint32_t columns) {
    PackedParameter& p = add({name});
    p.packing = Packing::kTable;
    p.table_type = type_(name);
    p.rows = rows;
    p.columns = columns;
    p.matrix_bytes = aligned(std::uint64_t{rows} * columns * size_of(p.table_type));
    layout_.bytes += p.matrix_bytes;
  }

  const Circuit& circuit_;
  const ParameterType& type_;
  WeightLayout layout_;
};

}  // namespace

const PackedParameter& WeightLayout::of(std::string_view name) const {
  const auto found = index.find(name);
  TROUPE_CHECK(found != index.end(), name);
  return parameters[found->second.first];
}

Result<WeightLayout> make_weight_layout(const Circuit& circuit,
                                        const FusionPlan& plan,
                                        const ParameterType& type) {
  WeightPlanner planner(circuit, type);
  for (const Group& group : plan.groups) {
    TROUPE_TRY(planner.group(group));
  }
  return planner.finish();
}

}  // namespace troupe
