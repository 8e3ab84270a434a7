#include "runtime/circuit/layout.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

namespace troupe {
namespace {

constexpr std::uint64_t kAlign = 64;

std::uint64_t aligned(std::uint64_t bytes) {
  return (bytes + kAlign - 1) / kAlign * kAlign;
}

std::uint64_t edge_bytes(const Edge& edge, const FusionPlan& plan) {
  const std::uint64_t rows = edge.rows == RowSet::kAll ? plan.shape.rows : plan.shape.sampled;
  const std::uint64_t entries = edge.per_row == 0 ? 1 : rows * edge.per_row;
  const std::uint64_t element =
      edge.element == Element::kAct ? size_of(plan.catalog.activation) : 4;
  return aligned(entries * edge.width * element);
}

// Offsets of the live places, ascending: the first gap that fits is taken.
std::uint64_t first_fit(std::vector<std::pair<std::uint64_t, std::uint64_t>> taken,
                        std::uint64_t bytes) {
  std::sort(taken.begin(), taken.end());
  std::uint64_t offset = 0;
  for (const auto& [begin, size] : taken) {
    if (begin >= offset + bytes) {
      break;
    }
    offset = std::max(offset, begin + size);
  }
  return offset;
}

}  // namespace

WorkspaceLayout make_workspace_layout(const Circuit& circuit, const FusionPlan& plan) {
  WorkspaceLayout layout;
  layout.places.resize(circuit.edges.size());
  const auto last = static_cast<std::uint32_t>(plan.groups.size());
  for (EdgeIndex e = 0; e < circuit.edges.size(); ++e) {
    // What enters or leaves the stage lives through the whole step.
    if (circuit.edges[e].kind == EdgeKind::kExchange) {
      layout.places[e] = {.bytes = edge_bytes(circuit.edges[e], plan),
                          .first_group = 0,
                          .last_group = last,
                          .used = true};
    }
  }
  for (std::uint32_t g = 0; g < plan.groups.size(); ++g) {
    for (const EdgeIndex e : plan.groups[g].writes) {
      EdgePlace& place = layout.places[e];
      if (!place.used) {
        place = {.bytes = edge_bytes(circuit.edges[e], plan),
                 .first_group = g,
                 .last_group = g,
                 .used = true};
      }
    }
    for (const EdgeIndex e : plan.groups[g].reads) {
      layout.places[e].last_group = std::max(layout.places[e].last_group, g);
    }
  }
  std::vector<std::optional<EdgeIndex>> replaces(circuit.edges.size());
  for (const Group& group : plan.groups) {
    for (const auto& [written, read] : group.in_place) {
      if (circuit.edges[written].kind == EdgeKind::kTensor) {
        replaces[written] = read;
      }
    }
  }
  std::vector<EdgeIndex> order;
  for (EdgeIndex e = 0; e < circuit.edges.size(); ++e) {
    if (layout.places[e].used) {
      order.push_back(e);
    }
  }
  std::stable_sort(order.begin(), order.end(), [&layout](EdgeIndex a, EdgeIndex b) {
    return layout.places[a].first_group < layout.places[b].first_group;
  });
  std::vector<EdgeIndex> live;
  for (const EdgeIndex e : order) {
    EdgePlace& place = layout.places[e];
    std::erase_if(
        live, [&](EdgeIndex other) { return layout.places[other].last_group < place.first_group; });
    if (replaces[e]) {
      place.offset = layout.places[*replaces[e]].offset;
    } else {
      std::vector<std::pair<std::uint64_t, std::uint64_t>> taken;
      for (const EdgeIndex other : live) {
        taken.emplace_back(layout.places[other].offset, layout.places[other].bytes);
      }
      place.offset = first_fit(std::move(taken), place.bytes);
    }
    live.push_back(e);
    layout.bytes = std::max(layout.bytes, place.offset + place.bytes);
  }
  return layout;
}

Status check_layout(const Circuit& circuit, const FusionPlan& plan, const WorkspaceLayout& layout) {
  const auto declared = [&plan](EdgeIndex a, EdgeIndex b, std::uint32_t group) {
    if (group >= plan.groups.size()) {
      return false;
    }
    const auto& pairs = plan.groups[group].in_place;
    return std::any_of(pairs.begin(), pairs.end(), [&](const auto& pair) {
      return (pair.first == a && pair.second == b) || (pair.first == b && pair.second == a);
    });
  };
  for (EdgeIndex a = 0; a < layout.places.size(); ++a) {
    const EdgePlace& x = layout.places[a];
    if (!x.used) {
      continue;
    }
    if (x.offset % kAlign != 0 || x.offset + x.bytes > layout.bytes) {
      return error(
          Kind::kInternal,
          "edge " + circuit.edges[a].name + " lies outside the workspace or off its alignment");
    }
    for (EdgeIndex b = a + 1; b < layout.places.size(); ++b) {
      const EdgePlace& y = layout.places[b];
      const bool space = y.used && x.offset < y.offset + y.bytes && y.offset < x.offset + x.bytes;
      const std::uint32_t from = std::max(x.first_group, y.first_group);
      const std::uint32_t to = std::min(x.last_group, y.last_group);
      if (space && from <= to && !(from == to && declared(a, b, from))) {
        return error(Kind::kInternal,
                     "edges " + circuit.edges[a].name + " and " + circuit.edges[b].name +
                         " share workspace while both are alive at group " + std::to_string(from));
      }
    }
  }
  return {};
}

StateLayout make_state_layout(const Circuit& circuit, Activation activation) {
  const ModelConfig& c = circuit.config;
  StateLayout layout;
  for (std::uint32_t i = circuit.range.first; i < circuit.range.last; ++i) {
    if (c.layers[i].mixer == Mixer::kAttention) {
      layout.attention_layers.push_back(i);
      continue;
    }
    GdnPlace place{.layer = i, .state_offset = layout.page_bytes};
    layout.page_bytes +=
        aligned(std::uint64_t{c.gdn_value_heads} * c.gdn_key_dim * c.gdn_value_dim * 4);
    place.window_offset = layout.page_bytes;
    layout.page_bytes += aligned(std::uint64_t{c.conv_kernel - 1} * c.gdn_conv_channels() * 4);
    layout.gdn.push_back(place);
  }
  layout.layer_block_bytes =
      aligned(std::uint64_t{2} * c.kv_heads * kBlockTokens * c.head_dim * size_of(activation));
  return layout;
}

}  // namespace troupe
