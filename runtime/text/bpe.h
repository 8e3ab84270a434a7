// Byte pair encoding of one piece of text. Why not the textbook loop: it is quadratic, and pieces
// of 20,000 equal characters occur. Neighbours live in a linked list and candidate merges in a
// heap, so a piece of n bytes costs O(n log n). Immutable after construction; any thread.
//
// BP-1: of all possible merges the one with the lowest rank goes first, the leftmost of equals.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

namespace troupe {

struct Merge {
  std::uint32_t left = 0;
  std::uint32_t right = 0;
  std::uint32_t result = 0;
};

class BytePairEncoder final {
 public:
  // merges[i] has rank i; of two with the same pair the later one counts.
  BytePairEncoder(const std::array<std::uint32_t, 256>& byte_ids, const std::vector<Merge>& merges);

  // Appends the ids of `piece`. REQUIRES: fewer than 2^32 bytes.
  void encode(std::string_view piece, std::vector<std::uint32_t>& out) const;

 private:
  struct Slot {
    std::uint64_t pair = 0;
    std::uint32_t rank = 0;
    std::uint32_t result = 0;
  };

  [[nodiscard]] const Slot* find(std::uint32_t left, std::uint32_t right) const;
  [[nodiscard]] Slot& slot_of(std::uint64_t pair);

  std::array<std::uint32_t, 256> byte_ids_;
  std::vector<Slot> slots_;  // open addressing, at most half full
  std::uint64_t mask_ = 0;
};

}  // namespace troupe
