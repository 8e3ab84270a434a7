#include "runtime/state/slot_pool.h"

#include "runtime/base/error.h"

#include <string>
#include <utility>

namespace troupe {

template <class Tag>
SlotPool<Tag>::SlotPool(std::uint32_t count, std::uint32_t reserved)
    : reserved_(reserved), slots_(count) {
  TROUPE_CHECK(count >= reserved, "a pool is at least as large as its reserved part");
  for (std::uint32_t i = 0; i < count; ++i) {
    slots_[i].life = i < reserved ? Life::kReserved : Life::kFree;
    if (i >= reserved) {
      free_.insert(i);
    }
  }
}

template <class Tag>
Result<SlotRef<Tag>> SlotPool<Tag>::acquire() {
  if (free_.empty()) {
    return error(Kind::kOverloaded,
                 std::string("no free ") + Tag::kName + ": " + std::to_string(used_) + " of " +
                     std::to_string(size()) + " in use, " + std::to_string(quarantined_) +
                     " quarantined");
  }
  const std::uint32_t index = *free_.begin();
  free_.erase(free_.begin());
  Slot& slot = slots_[index];
  slot.life = Life::kHeld;
  slot.references = 1;
  ++slot.generation;
  ++used_;
  return Ref{index, slot.generation};
}

template <class Tag>
bool SlotPool<Tag>::holds(Ref ref) const {
  return ref.index < slots_.size() && slots_[ref.index].life == Life::kHeld &&
         slots_[ref.index].generation == ref.generation;
}

template <class Tag>
std::uint32_t SlotPool<Tag>::references(Ref ref) const {
  return holds(ref) ? slots_[ref.index].references : 0;
}

template <class Tag>
Status SlotPool<Tag>::refuse(Ref ref, const char* what) {
  ++imbalances_;
  std::string text = std::string(what) + " of " + Tag::kName + " " + std::to_string(ref.index) +
                     " generation " + std::to_string(ref.generation);
  if (ref.index >= slots_.size()) {
    return error(Kind::kInvalid, text + ": the pool has " + std::to_string(slots_.size()));
  }
  Slot& slot = slots_[ref.index];
  text += ", which is not held (its generation is " + std::to_string(slot.generation) + ")";
  // A free slot that somebody still names may be written by him: keep it out of circulation. A slot
  // in a later life belongs to another owner, and the stale reference is merely refused.
  if (slot.life == Life::kFree && slot.generation == ref.generation) {
    free_.erase(ref.index);
    slot.life = Life::kQuarantined;
    ++quarantined_;
    text += "; quarantined";
  }
  return error(Kind::kInvalid, std::move(text));
}

template <class Tag>
Status SlotPool<Tag>::share(Ref ref) {
  if (!holds(ref)) {
    return refuse(ref, "share");
  }
  ++slots_[ref.index].references;
  return {};
}

template <class Tag>
Status SlotPool<Tag>::release(Ref ref) {
  if (!holds(ref)) {
    return refuse(ref, "release");
  }
  Slot& slot = slots_[ref.index];
  if (--slot.references == 0) {
    slot.life = Life::kFree;
    free_.insert(ref.index);
    freed_.push_back(ref);
    --used_;
  }
  return {};
}

template <class Tag>
std::vector<SlotRef<Tag>> SlotPool<Tag>::take_freed() {
  return std::exchange(freed_, {});
}

template <class Tag>
Status SlotPool<Tag>::check_conservation() const {
  std::uint32_t held = 0;
  std::uint32_t quarantined = 0;
  for (std::uint32_t i = 0; i < slots_.size(); ++i) {
    const Slot& slot = slots_[i];
    const bool listed = free_.contains(i);
    held += slot.life == Life::kHeld ? 1 : 0;
    quarantined += slot.life == Life::kQuarantined ? 1 : 0;
    if (listed != (slot.life == Life::kFree) ||
        (slot.life == Life::kHeld) != (slot.references > 0)) {
      return error(Kind::kInternal,
                   std::string(Tag::kName) + " " + std::to_string(i) +
                       " does not add up: " + std::to_string(slot.references) + " references, " +
                       (listed ? "" : "not ") + "on the free list");
    }
  }
  if (held != used_ || quarantined != quarantined_ || held + quarantined + free_.size() != size()) {
    return error(Kind::kInternal,
                 std::string(Tag::kName) + "s do not add up: " + std::to_string(held) + " held (" +
                     std::to_string(used_) + " counted), " + std::to_string(quarantined) +
                     " quarantined, " + std::to_string(free_.size()) + " free, of " +
                     std::to_string(size()));
  }
  return {};
}

template class SlotPool<PageTag>;
template class SlotPool<BlockTag>;

}  // namespace troupe
