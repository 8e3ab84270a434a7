// What the planner can tell about itself: counts, and whether its pools add up.
#include "runtime/serve/planner.h"

#include <algorithm>
#include <string>

namespace troupe {

namespace {

PoolUse use_of(const auto& pool) {
  return {.used = pool.used_count(), .total = pool.size(), .quarantined = pool.quarantined_count()};
}

}  // namespace

PlannerStatus StepPlanner::status() const {
  return {.steps = last_step_.value,
          .waiting = static_cast<std::uint32_t>(waiting_.size()),
          .running = static_cast<std::uint32_t>(running_.size()),
          .steps_away = static_cast<std::uint32_t>(away_.size()),
          .pages = use_of(pages_),
          .blocks = use_of(blocks_),
          .imbalances = pages_.imbalances() + blocks_.imbalances(),
          .preemptions = preemptions_,
          .recomputed_tokens = recomputed_tokens_,
          .failed_steps = failed_steps_};
}

Status StepPlanner::check() const {
  TROUPE_TRY(pages_.check_conservation());
  TROUPE_TRY(blocks_.check_conservation());
  std::map<PageRef, std::uint32_t> pages;
  std::map<BlockRef, std::uint32_t> blocks;
  for (const auto& [id, sequence] : sequences_) {
    if (sequence.page) {
      ++pages[*sequence.page];
    }
    for (const BlockRef block : sequence.blocks) {
      ++blocks[block];
    }
    if (waiting_.contains(id) == running_.contains(id)) {
      return error(
          Kind::kInternal,
          "request " + std::to_string(id.value) + " is neither waiting nor running, or both");
    }
  }
  for (const auto& [step, away] : away_) {
    for (const Member& member : away.members) {
      pages[member.write_page] += member.in_place ? 0 : 1;
    }
  }
  const auto adds_up = [](const auto& held, const auto& pool) {
    return held.size() == pool.used_count() &&
           std::all_of(held.begin(), held.end(), [&pool](const auto& entry) {
             return pool.references(entry.first) == entry.second;
           });
  };
  if (!adds_up(pages, pages_) || !adds_up(blocks, blocks_)) {
    return error(Kind::kInternal,
                 "the sequences hold " + std::to_string(pages.size()) + " pages and " +
                     std::to_string(blocks.size()) + " blocks, the pools say " +
                     std::to_string(pages_.used_count()) + " and " +
                     std::to_string(blocks_.used_count()));
  }
  return {};
}

void StepPlanner::check_if_checked() const {
#ifdef TROUPE_CHECKED
  const Status balance = check();
  TROUPE_CHECK(balance.has_value(), balance.error().message);
#endif
}

}  // namespace troupe
