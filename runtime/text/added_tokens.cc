#include "runtime/text/added_tokens.h"

namespace troupe {
namespace {

std::uint64_t edge(std::uint32_t node, char c) {
  return (static_cast<std::uint64_t>(node) << 8U) | static_cast<std::uint8_t>(c);
}

}  // namespace

AddedTokenFinder::AddedTokenFinder(const std::vector<AddedToken>& tokens) : ids_(1) {
  for (const AddedToken& token : tokens) {
    first_[static_cast<std::uint8_t>(token.content.front())] = true;
    std::uint32_t node = 0;
    for (const char c : token.content) {
      const auto [child, fresh] =
          children_.try_emplace(edge(node, c), static_cast<std::uint32_t>(ids_.size()));
      if (fresh) {
        ids_.emplace_back();
      }
      node = child->second;
    }
    ids_[node] = token.id;
  }
}

std::optional<AddedTokenFinder::Found> AddedTokenFinder::find(std::string_view text,
                                                              std::size_t from) const {
  for (std::size_t begin = from; begin < text.size(); ++begin) {
    if (!first_[static_cast<std::uint8_t>(text[begin])]) {
      continue;
    }
    std::optional<Found> longest;
    std::uint32_t node = 0;
    for (std::size_t at = begin; at < text.size(); ++at) {
      const auto child = children_.find(edge(node, text[at]));
      if (child == children_.end()) {
        break;
      }
      node = child->second;
      if (ids_[node]) {
        longest = Found{begin, at + 1, *ids_[node]};
      }
    }
    if (longest) {
      return longest;
    }
  }
  return std::nullopt;
}

}  // namespace troupe
