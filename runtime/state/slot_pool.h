// SlotPool: the book-keeping of fixed, equal, reference-counted slots. State pages and KV blocks
// are two instances; only the size of a slot differs, and the memory itself belongs to the device.
// Owned by one stage coordinator; one thread; a value machine without clocks or I/O.
//
// SP-1: a slot is free, referenced or quarantined, never two of these; their counts add up to the
// pool's size. SP-2: every acquire() starts a new generation of the slot; a reference from an
// earlier life is refused, never obeyed. SP-3: slots are handed out lowest index first, so that a
// replay names the same slots. SP-4: a caught imbalance (release or share of a slot that is not
// held) quarantines the slot and is counted: the one bug
//       that does not end the process (promise P3).
#pragma once

#include "runtime/base/error.h"

#include <compare>
#include <cstdint>
#include <set>
#include <vector>

namespace troupe {

// Names one life of one slot.
template <class Tag>
struct SlotRef {
  std::uint32_t index = 0;
  std::uint32_t generation = 0;
  auto operator<=>(const SlotRef&) const = default;
};

template <class Tag>
class SlotPool final {
 public:
  using Ref = SlotRef<Tag>;

  // `reserved` slots from index 0 are never handed out (page 0 is the zero page); they do not count
  // as used or free.
  explicit SlotPool(std::uint32_t count, std::uint32_t reserved = 0);

  // A slot with one reference, or kOverloaded naming the pool's numbers.
  [[nodiscard]] Result<Ref> acquire();
  // One more reference. Errors: kInvalid for a stale or unheld slot.
  Status share(Ref ref);
  // One reference less; at zero the slot becomes free and is listed by take_freed(). Errors as
  // share().
  Status release(Ref ref);

  // True when the slot is referenced in exactly this life.
  [[nodiscard]] bool holds(Ref ref) const;
  [[nodiscard]] std::uint32_t references(Ref ref) const;  // 0 when not held
  [[nodiscard]] std::uint32_t size() const {
    return static_cast<std::uint32_t>(slots_.size()) - reserved_;
  }
  [[nodiscard]] std::uint32_t free_count() const {
    return static_cast<std::uint32_t>(free_.size());
  }
  [[nodiscard]] std::uint32_t used_count() const { return used_; }
  [[nodiscard]] std::uint32_t quarantined_count() const { return quarantined_; }
  [[nodiscard]] std::uint64_t imbalances() const { return imbalances_; }

  // Slots freed since the last call, in the order of their release: a device in a checked build
  // poisons them before reuse.
  [[nodiscard]] std::vector<Ref> take_freed();

  // Recounts everything (SP-1). kInternal names the first slot that does not add up. O(size).
  [[nodiscard]] Status check_conservation() const;

 private:
  enum class Life : std::uint8_t { kReserved, kFree, kHeld, kQuarantined };
  struct Slot {
    std::uint32_t generation = 0;
    std::uint32_t references = 0;
    Life life = Life::kFree;
  };
  Status refuse(Ref ref, const char* what);

  std::uint32_t reserved_;
  std::vector<Slot> slots_;
  std::set<std::uint32_t> free_;
  std::vector<Ref> freed_;
  std::uint32_t used_ = 0;
  std::uint32_t quarantined_ = 0;
  std::uint64_t imbalances_ = 0;
};

struct PageTag {
  static constexpr const char* kName = "state page";
};
struct BlockTag {
  static constexpr const char* kName = "KV block";
};
using PageRef = SlotRef<PageTag>;
using BlockRef = SlotRef<BlockTag>;
using PagePool = SlotPool<PageTag>;
using BlockPool = SlotPool<BlockTag>;

extern template class SlotPool<PageTag>;
extern template class SlotPool<BlockTag>;

}  // namespace troupe
