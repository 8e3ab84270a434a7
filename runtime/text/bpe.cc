#include "runtime/text/bpe.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <functional>
#include <limits>
#include <queue>
#include <utility>

namespace troupe {
namespace {

constexpr std::uint32_t kNone = std::numeric_limits<std::uint32_t>::max();
constexpr std::uint64_t kEmpty =
    std::numeric_limits<std::uint64_t>::max();  // ids are far below 2^32 - 1

std::uint64_t pair_of(std::uint32_t left, std::uint32_t right) {
  return (static_cast<std::uint64_t>(left) << 32U) | right;
}

std::uint64_t mix(std::uint64_t x) {
  x *= 0x9E3779B97F4A7C15ULL;  // 2^64 / golden ratio; the high bits are the good ones
  return x ^ (x >> 29U);
}

struct Symbol {
  std::uint32_t id = kNone;  // kNone: was merged into its left neighbour
  std::uint32_t previous = kNone;
  std::uint32_t next = kNone;
};

struct Candidate {
  std::uint32_t rank = 0;
  std::uint32_t at = 0;  // index of the left symbol
  std::uint32_t left = 0;
  std::uint32_t right = 0;
  std::uint32_t result = 0;

  bool operator>(const Candidate& other) const {
    return rank != other.rank ? rank > other.rank : at > other.at;
  }
};

using Queue = std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>>;

}  // namespace

BytePairEncoder::BytePairEncoder(const std::array<std::uint32_t, 256>& byte_ids,
                                 const std::vector<Merge>& merges)
    : byte_ids_(byte_ids) {
  const std::size_t slots = std::bit_ceil(std::max<std::size_t>(2 * merges.size(), 16));
  slots_.assign(slots, Slot{kEmpty, 0, 0});
  mask_ = slots - 1;
  std::uint32_t rank = 0;
  for (const Merge& merge : merges) {
    const std::uint64_t pair = pair_of(merge.left, merge.right);
    slot_of(pair) = Slot{pair, rank++, merge.result};
  }
}

BytePairEncoder::Slot& BytePairEncoder::slot_of(std::uint64_t pair) {
  std::uint64_t at = mix(pair) & mask_;
  while (slots_[at].pair != kEmpty && slots_[at].pair != pair) {
    at = (at + 1) & mask_;
  }
  return slots_[at];
}

const BytePairEncoder::Slot* BytePairEncoder::find(std::uint32_t left, std::uint32_t right) const {
  const std::uint64_t pair = pair_of(left, right);
  std::uint64_t at = mix(pair) & mask_;
  while (slots_[at].pair != kEmpty) {
    if (slots_[at].pair == pair) {
      return &slots_[at];
    }
    at = (at + 1) & mask_;
  }
  return nullptr;
}

void BytePairEncoder::encode(std::string_view piece, std::vector<std::uint32_t>& out) const {
  const auto count = static_cast<std::uint32_t>(piece.size());
  std::vector<Symbol> symbols(count);
  for (std::uint32_t i = 0; i < count; ++i) {
    symbols[i] = {byte_ids_[static_cast<std::uint8_t>(piece[i])],
                  i == 0 ? kNone : i - 1,
                  i + 1 == count ? kNone : i + 1};
  }

  std::vector<Candidate> first;
  first.reserve(count);
  const auto candidate_at = [this, &symbols](std::uint32_t at) -> Candidate {
    const std::uint32_t next = symbols[at].next;
    const Slot* slot = next == kNone ? nullptr : find(symbols[at].id, symbols[next].id);
    if (slot == nullptr) {
      return {kNone, at, 0, 0, 0};
    }
    return {slot->rank, at, symbols[at].id, symbols[next].id, slot->result};
  };
  for (std::uint32_t i = 0; i < count; ++i) {
    if (const Candidate candidate = candidate_at(i); candidate.rank != kNone) {
      first.push_back(candidate);
    }
  }
  Queue queue(std::greater<>{}, std::move(first));

  while (!queue.empty()) {
    const Candidate best = queue.top();
    queue.pop();
    Symbol& left = symbols[best.at];
    // A candidate outlives its symbols: it counts only while both are still what they were.
    if (left.id != best.left || left.next == kNone || symbols[left.next].id != best.right) {
      continue;
    }
    Symbol& right = symbols[left.next];
    left.id = best.result;
    left.next = right.next;
    right.id = kNone;
    if (left.next != kNone) {
      symbols[left.next].previous = best.at;
    }
    for (const std::uint32_t at : {left.previous, best.at}) {
      if (at == kNone) {
        continue;
      }
      if (const Candidate candidate = candidate_at(at); candidate.rank != kNone) {
        queue.push(candidate);
      }
    }
  }

  for (std::uint32_t at = 0; at < count && at != kNone; at = symbols[at].next) {
    out.push_back(symbols[at].id);
  }
}

}  // namespace troupe
