// Finds added tokens ("<|im_start|>", "<think>") in raw text. Immutable after construction; any
// thread.
//
// AT-1: of all occurrences the leftmost wins, and of those that start there the longest.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace troupe {

struct AddedToken {
  std::uint32_t id = 0;
  std::string content;
  bool special = false;  // control tokens; decoding can leave them out
  bool operator==(const AddedToken&) const = default;
};

class AddedTokenFinder final {
 public:
  struct Found {
    std::size_t begin = 0;
    std::size_t end = 0;
    std::uint32_t id = 0;
  };

  // REQUIRES: contents are not empty and differ.
  explicit AddedTokenFinder(const std::vector<AddedToken>& tokens);

  // The first occurrence at or after `from`. Cost: the length of the text passed over, times the
  // longest content.
  [[nodiscard]] std::optional<Found> find(std::string_view text, std::size_t from) const;

 private:
  // A trie: (node, byte) -> node. Contents are few and short, so a hash map is small; first_ keeps
  // it off the usual path.
  std::unordered_map<std::uint64_t, std::uint32_t> children_;
  std::vector<std::optional<std::uint32_t>> ids_;  // by node
  std::array<bool, 256> first_{};
};

}  // namespace troupe
