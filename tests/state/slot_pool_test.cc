// SlotPool: its four invariants, and that a planted error is caught.
#include "runtime/state/slot_pool.h"

#include "runtime/base/sources.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

namespace troupe {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(SlotPool, NeverHandsOutItsReservedPart) {
  PagePool pool(3, 1);

  EXPECT_EQ(pool.size(), 2U);
  EXPECT_EQ(pool.acquire().value().index, 1U);
  EXPECT_EQ(pool.acquire().value().index, 2U);
  EXPECT_FALSE(pool.acquire());
}

TEST(SlotPool, SaysHowFullItIs) {
  BlockPool pool(2);
  const BlockRef first = pool.acquire().value();
  EXPECT_TRUE(pool.acquire());

  const auto refused = pool.acquire();

  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind, Kind::kOverloaded);
  EXPECT_EQ(refused.error().message, "no free KV block: 2 of 2 in use, 0 quarantined");
  EXPECT_TRUE(pool.release(first));
  EXPECT_TRUE(pool.acquire());
}

TEST(SlotPool, HandsOutTheLowestFreeSlot) {
  PagePool pool(4);
  std::vector<PageRef> held;
  for (int i = 0; i < 4; ++i) {
    held.push_back(pool.acquire().value());
  }
  EXPECT_TRUE(pool.release(held[2]));
  EXPECT_TRUE(pool.release(held[1]));

  EXPECT_EQ(pool.acquire().value().index, 1U);
  EXPECT_EQ(pool.acquire().value().index, 2U);
}

TEST(SlotPool, FreesASlotWithItsLastReference) {
  PagePool pool(1);
  const PageRef page = pool.acquire().value();
  EXPECT_TRUE(pool.share(page));
  EXPECT_EQ(pool.references(page), 2U);

  EXPECT_TRUE(pool.release(page));
  EXPECT_TRUE(pool.holds(page));
  EXPECT_TRUE(pool.release(page));

  EXPECT_FALSE(pool.holds(page));
  EXPECT_EQ(pool.references(page), 0U);
  EXPECT_EQ(pool.free_count(), 1U);
}

TEST(SlotPool, ListsFreedSlotsOnceInOrder) {
  PagePool pool(3);
  const PageRef a = pool.acquire().value();
  const PageRef b = pool.acquire().value();
  EXPECT_TRUE(pool.release(b));
  EXPECT_TRUE(pool.release(a));

  EXPECT_THAT(pool.take_freed(), ElementsAre(b, a));
  EXPECT_THAT(pool.take_freed(), ElementsAre());
}

TEST(SlotPool, RefusesAReferenceOfAnEarlierLife) {
  PagePool pool(1);
  const PageRef old = pool.acquire().value();
  EXPECT_TRUE(pool.release(old));
  const PageRef now = pool.acquire().value();
  ASSERT_EQ(now.index, old.index);

  const Status refused = pool.release(old);

  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind, Kind::kInvalid);
  EXPECT_NE(now.generation, old.generation);
  EXPECT_TRUE(pool.holds(now));  // its present owner does not suffer
  EXPECT_EQ(pool.quarantined_count(), 0U);
  EXPECT_EQ(pool.imbalances(), 1U);
}

TEST(SlotPool, QuarantinesASlotThatIsReleasedTwice) {
  PagePool pool(2);
  const PageRef page = pool.acquire().value();
  EXPECT_TRUE(pool.release(page));

  const Status refused = pool.release(page);

  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message,
              HasSubstr("release of state page 0 generation 1, which is not held"));
  EXPECT_THAT(refused.error().message, HasSubstr("quarantined"));
  EXPECT_EQ(pool.quarantined_count(), 1U);
  EXPECT_EQ(pool.acquire().value().index, 1U);
  EXPECT_FALSE(pool.acquire());
  EXPECT_TRUE(pool.check_conservation());
}

TEST(SlotPool, QuarantinesASlotThatIsSharedAfterItsEnd) {
  BlockPool pool(1);
  const BlockRef block = pool.acquire().value();
  EXPECT_TRUE(pool.release(block));

  EXPECT_FALSE(pool.share(block));

  EXPECT_EQ(pool.quarantined_count(), 1U);
  EXPECT_EQ(pool.imbalances(), 1U);
  EXPECT_FALSE(pool.acquire());
}

TEST(SlotPool, RefusesASlotItDoesNotHave) {
  PagePool pool(2, 1);

  const Status beyond = pool.share(PageRef{7, 1});
  const Status reserved = pool.release(PageRef{0, 0});

  ASSERT_FALSE(beyond);
  EXPECT_THAT(beyond.error().message, HasSubstr("the pool has 2"));
  EXPECT_FALSE(reserved);
  EXPECT_EQ(pool.imbalances(), 2U);
  EXPECT_EQ(pool.quarantined_count(), 0U);
  EXPECT_TRUE(pool.check_conservation());
}

// What a pool should be, kept the slow and plain way.
struct Model {
  std::map<PageRef, std::uint32_t> references;  // of held slots
  std::vector<PageRef> ended;                   // references of earlier lives
  std::vector<bool> quarantined;
  std::uint64_t imbalances = 0;

  [[nodiscard]] PageRef any_held(Rng& rng) const {
    auto at = references.begin();
    std::advance(at, static_cast<long>(rng.below(references.size())));
    return at->first;
  }
  // What misuse of an ended reference must do: quarantine the slot if it is free and still in that
  // life.
  void misuse(PageRef ref, const std::map<std::uint32_t, std::uint32_t>& generations) {
    ++imbalances;
    const bool held = std::any_of(references.begin(), references.end(), [ref](const auto& each) {
      return each.first.index == ref.index;
    });
    if (!held && generations.at(ref.index) == ref.generation) {
      quarantined[ref.index] = true;
    }
  }
};

// One random life of a pool. `misuse_per_thousand` operations name references of earlier lives:
// planted corruption.
void live(std::uint64_t seed, std::uint64_t misuse_per_thousand) {
  constexpr std::uint32_t kSlots = 24;
  constexpr std::uint32_t kReserved = 2;
  PagePool pool(kSlots, kReserved);
  Model model;
  model.quarantined.resize(kSlots);
  std::map<std::uint32_t, std::uint32_t> generations;
  Rng rng(seed);
  for (int step = 0; step < 3000; ++step) {
    const std::uint64_t action = rng.below(step / 250 % 2 == 0 ? 3 : 6);  // fills up, then empties
    if (!model.ended.empty() && rng.below(1000) < misuse_per_thousand) {
      const PageRef stale = model.ended[rng.below(model.ended.size())];
      model.misuse(stale, generations);
      ASSERT_FALSE(action == 0 ? pool.share(stale) : pool.release(stale))
          << "seed " << seed << ", step " << step;
    } else if (action == 0 || model.references.empty()) {
      const bool room = pool.free_count() > 0;
      const auto page = pool.acquire();
      ASSERT_EQ(page.has_value(), room);
      if (page) {
        ASSERT_GE(page->index, kReserved);
        ASSERT_FALSE(model.quarantined[page->index]);
        ASSERT_GT(page->generation, generations[page->index]);
        generations[page->index] = page->generation;
        ASSERT_TRUE(model.references.emplace(*page, 1).second);
      }
    } else if (action == 1) {
      const PageRef page = model.any_held(rng);
      ASSERT_TRUE(pool.share(page));
      ++model.references[page];
    } else {
      const PageRef page = model.any_held(rng);
      ASSERT_TRUE(pool.release(page));
      if (--model.references[page] == 0) {
        model.references.erase(page);
        model.ended.push_back(page);
      }
    }
    const auto quarantined = static_cast<std::uint32_t>(
        std::count(model.quarantined.begin(), model.quarantined.end(), true));
    ASSERT_TRUE(pool.check_conservation()) << "seed " << seed << ", step " << step;
    ASSERT_EQ(pool.used_count(), model.references.size());
    ASSERT_EQ(pool.quarantined_count(), quarantined);
    ASSERT_EQ(pool.free_count(), kSlots - kReserved - quarantined - model.references.size());
    ASSERT_EQ(pool.imbalances(), model.imbalances);
    for (const auto& [page, references] : model.references) {
      ASSERT_EQ(pool.references(page), references);
    }
  }
}

TEST(SlotPool, KeepsItsBooksThroughRandomLives) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    live(seed, 0);
  }
}

TEST(SlotPool, CatchesEveryPlantedMisuse) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    live(seed, 10);
  }
}

}  // namespace
}  // namespace troupe
