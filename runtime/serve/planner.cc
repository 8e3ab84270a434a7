#include "runtime/serve/planner.h"

#include <algorithm>
#include <string>
#include <utility>

namespace troupe {

StepPlanner::StepPlanner(const PlannerLimits& limits)
    : limits_(limits), pages_(limits.pages, 1), blocks_(limits.blocks) {
  TROUPE_CHECK(limits.pages >= 2 && limits.blocks > 0 && limits.step_rows_max > 0 &&
                   limits.sequences_max > 0 && limits.sequences_max <= limits.step_rows_max &&
                   limits.sequences_max <= limits.sampled_rows_max && limits.steps_max > 0 &&
                   limits.attempts_max > 0,
               "limits are positive and every running sequence has room for a sampled row");
}

Status StepPlanner::add(RequestId id,
                        std::shared_ptr<const Request> request,
                        std::uint64_t seed,
                        Time now) {
  TROUPE_CHECK(request != nullptr && !sequences_.contains(id), "a request is added once");
  // The last token that is generated is never run, so it takes no room.
  const std::uint64_t tokens = request->prompt.size() + request->max_tokens - 1;
  if (blocks_for(tokens) > blocks_.size()) {
    return error(Kind::kInvalid,
                 text_of(id) + " needs " + std::to_string(blocks_for(tokens)) + " KV blocks for " +
                     std::to_string(tokens) + " tokens; there are " +
                     std::to_string(blocks_.size()) + " (" +
                     std::to_string(std::uint64_t{blocks_.size()} * kBlockTokens) +
                     " tokens): shorten the prompt or max_tokens, or give more memory");
  }
  TROUPE_TRY(check_lists(*request, limits_.vocab, limits_.values_max));
  Sequence sequence;
  sequence.id = id;
  sequence.seed = seed;
  sequence.tokens = request->prompt;
  if (request->sampling.repetition_penalty != 1) {
    sequence.prompt_set = distinct(request->prompt);
  }
  if (request->prompt_logprobs) {
    sequence.prompt_outputs.push_back({.token = request->prompt.front(), .top = {}});
  }
  sequence.first_step = now;
  sequence.request = std::move(request);
  sequences_.emplace(id, std::move(sequence));
  waiting_.insert(id);
  return {};
}

// ---- planning -----------------------------------------------------------------------------------

bool StepPlanner::may_plan() const {
  return away_.empty() || (last_full_ && away_.size() < limits_.steps_max);
}

StepPlan StepPlanner::plan(Time now) {
  StepPlan plan;
  if (!may_plan()) {
    return plan;
  }
  // Growing may preempt younger sequences, which then are not in running_ any more: hence the copy
  // and the second look.
  const std::vector<RequestId> by_age(running_.begin(), running_.end());
  std::set<RequestId> stalled;
  for (const RequestId id : by_age) {
    if (running_.contains(id) && !sequences_.at(id).away && !grow(plan, sequences_.at(id))) {
      stalled.insert(id);
    }
  }
  admit_waiting();

  // Who waits for a next token goes first, so that no prompt holds an answer up.
  std::vector<Sequence*> ready;
  for (const bool prompts : {false, true}) {
    for (const RequestId id : running_) {
      Sequence& sequence = sequences_.at(id);
      if (!sequence.away && !stalled.contains(id) && (sequence.remaining() > 1) == prompts) {
        ready.push_back(&sequence);
      }
    }
  }
  Away away;
  for (std::size_t i = 0; i < ready.size(); ++i) {
    // Prompt logprobs leave everyone after them the sampled row of a next token.
    const std::size_t kept = plan.sampled.size() + (ready.size() - i - 1);
    const Room room{limits_.step_rows_max - static_cast<std::uint32_t>(plan.tokens.size()),
                    limits_.sampled_rows_max - static_cast<std::uint32_t>(kept)};
    add_segment(plan, away, *ready[i], room, now);
  }
  if (plan.empty()) {
    return end_stuck() ? this->plan(now) : plan;
  }
  last_step_ = StepId{last_step_.value + 1};
  plan.id = last_step_;
  for (const Member& member : away.members) {
    sequences_.at(member.id).away = plan.id;
  }
  add_block_table(plan, away);
  plan.freed_pages = pages_.take_freed();
  plan.freed_blocks = blocks_.take_freed();
  last_full_ = plan.tokens.size() == limits_.step_rows_max ||
               plan.sampled.size() == limits_.sampled_rows_max;
  away.sampled = plan.sampled.size();
  away_.emplace(plan.id, std::move(away));
  check_if_checked();
  return plan;
}

// Pages that are not promised to running sequences that have none yet.
std::uint32_t StepPlanner::spare_pages() const {
  std::uint32_t promised = 0;
  for (const RequestId id : running_) {
    const Sequence& sequence = sequences_.at(id);
    promised += sequence.page || sequence.away ? 0 : 1;
  }
  return pages_.free_count() > promised ? pages_.free_count() - promised : 0;
}

void StepPlanner::admit_waiting() {
  while (!waiting_.empty() && running_.size() < limits_.sequences_max) {
    // Strictly oldest first: a younger one that fits must not keep an older one waiting.
    if (!admit(sequences_.at(*waiting_.begin()))) {
      return;
    }
  }
}

bool StepPlanner::admit(Sequence& sequence) {
  const std::uint32_t needed = blocks_for(sequence.tokens.size());
  // A block is left to everyone who runs: else the newcomer's prompt would soon be thrown out again
  // by their growth.
  if (spare_pages() == 0 || blocks_.free_count() < needed + running_.size()) {
    return false;
  }
  for (std::uint32_t i = 0; i < needed; ++i) {
    sequence.blocks.push_back(blocks_.acquire().value());
  }
  sequence.spared = sequence.preemptions > 0 || sequence.attempts > 0;
  waiting_.erase(sequence.id);
  running_.insert(sequence.id);
  return true;
}

// Makes room for the sequence's next row; false: it sits this step out.
bool StepPlanner::grow(StepPlan& plan, Sequence& sequence) {
  if (sequence.blocks.size() >= blocks_for(sequence.tokens.size())) {
    return true;
  }
  while (blocks_.free_count() == 0) {
    Sequence* victim = youngest_victim(sequence.id);
    if (victim == nullptr) {
      return false;
    }
    preempt(plan, *victim);
  }
  sequence.blocks.push_back(blocks_.acquire().value());
  return true;
}

Sequence* StepPlanner::youngest_victim(RequestId older_than) {
  for (auto it = running_.rbegin(); it != running_.rend() && *it > older_than; ++it) {
    Sequence& sequence = sequences_.at(*it);
    if (!sequence.away && !sequence.spared && !sequence.blocks.empty()) {
      return &sequence;
    }
  }
  return nullptr;
}

void StepPlanner::preempt(StepPlan& plan, Sequence& sequence) {
  plan.preempted.emplace_back(sequence.id, sequence.computed);
  recomputed_tokens_ += sequence.computed;
  drop_state(sequence);
  ++sequence.preemptions;
  ++preemptions_;
}

// The most rows that fit: fewer when not all that would be sampled can be.
std::uint32_t StepPlanner::rows_that_fit(const Sequence& sequence, Room room) {
  std::uint32_t rows = std::min(sequence.remaining(), room.rows);
  while (rows > 0) {
    const std::uint32_t sampled = sampled_rows(sequence, rows);
    if (sampled <= room.sampled) {
      break;
    }
    rows -= sampled - room.sampled;
  }
  return rows;
}

void StepPlanner::add_segment(StepPlan& plan, Away& away, Sequence& sequence, Room room, Time now) {
  std::uint32_t rows = rows_that_fit(sequence, room);
  const bool alone = sequence.page && pages_.references(*sequence.page) == 1;
  // Without a spare page a prompt advances one row at a time in place, rather than not at all.
  const bool in_place = alone && (rows == 1 || spare_pages() == 0);
  rows = in_place ? std::min(rows, 1U) : rows;
  if (rows == 0 || (!in_place && pages_.free_count() == 0)) {
    return;
  }
  Member member{.id = sequence.id, .rows = rows, .write_page = {}, .in_place = in_place};
  member.sampled = rows == sequence.remaining();
  SampleParams next;
  if (member.sampled) {
    const std::size_t values = plan.values.size();
    next = sample_params(sequence, plan.values);
    if (plan.values.size() > limits_.values_max) {
      plan.values.resize(values);  // its lists wait for a step that has room
      return;
    }
  }
  member.write_page = in_place ? *sequence.page : pages_.acquire().value();
  if (!sequence.started) {
    sequence.started = true;
    sequence.first_step = now;
  }
  const auto block_row = static_cast<std::uint32_t>(plan.segments.size());
  plan.segments.push_back({.rows = rows,
                           .first_position = static_cast<std::int32_t>(sequence.computed),
                           .read_page = sequence.page.value_or(PageRef{}),
                           .block_row = block_row});
  plan.decode_rows += sequence.remaining() == 1 ? 1 : 0;
  for (std::uint32_t i = 0; i < rows; ++i) {
    const std::uint32_t index = sequence.computed + i;
    const auto row = static_cast<std::uint32_t>(plan.tokens.size());
    plan.tokens.push_back(static_cast<std::int32_t>(sequence.tokens[index]));
    plan.write_pages.push_back(i + 1 == rows ? member.write_page : PageRef{kNoPage, 0});
    if (sequence.reports(index)) {
      plan.sampled.push_back({row, report_params(sequence, sequence.tokens[index + 1])});
      ++member.reports;
    } else if (member.sampled && i + 1 == rows) {
      plan.sampled.push_back({row, next});
    }
  }
  away.members.push_back(member);
}

void StepPlanner::add_block_table(StepPlan& plan, const Away& away) const {
  std::size_t width = 1;
  for (const Member& member : away.members) {
    const Sequence& sequence = sequences_.at(member.id);
    width = std::max<std::size_t>(width, blocks_for(sequence.computed + member.rows));
  }
  plan.block_width = static_cast<std::uint32_t>(width);
  plan.blocks.resize(width * away.members.size());
  for (std::size_t row = 0; row < away.members.size(); ++row) {
    const auto& held = sequences_.at(away.members[row].id).blocks;
    std::copy_n(held.begin(),
                std::min(width, held.size()),
                plan.blocks.begin() + static_cast<std::ptrdiff_t>(row * width));
  }
}

// Nothing is away and nothing can be planned: only quarantined slots can bring this about. Ends the
// oldest, so that the others get a chance: waiting longer helps nobody.
bool StepPlanner::end_stuck() {
  if (!away_.empty() || sequences_.empty()) {
    return false;
  }
  Sequence& oldest = sequences_.begin()->second;
  finish(oldest,
         FinishReason::kError,
         Error{Kind::kInternal,
               text_of(oldest.id) + " can't go on: it needs a page and " +
                   std::to_string(blocks_for(oldest.tokens.size())) + " KV blocks; free are " +
                   std::to_string(pages_.free_count()) + " pages and " +
                   std::to_string(blocks_.free_count()) + " blocks, quarantined " +
                   std::to_string(pages_.quarantined_count()) + " and " +
                   std::to_string(blocks_.quarantined_count()),
               std::source_location::current()},
         {});
  return true;
}

// ---- holdings -----------------------------------------------------------------------------------

bool StepPlanner::release(PageRef page) {
  return pages_.release(page).has_value();
}

// Gives everything back and queues the sequence again; its tokens and seed say all that is needed
// to recompute the rest.
void StepPlanner::drop_state(Sequence& sequence) {
  if (sequence.page) {
    static_cast<void>(release(*std::exchange(sequence.page, std::nullopt)));
  }
  for (const BlockRef block : std::exchange(sequence.blocks, {})) {
    static_cast<void>(blocks_.release(block).has_value());
  }
  sequence.computed = 0;
  running_.erase(sequence.id);
  waiting_.insert(sequence.id);
}

// `last` has the news that come with the end, if any.
void StepPlanner::finish(Sequence& sequence,
                         FinishReason reason,
                         std::optional<Error> failure,
                         SequenceEvent last) {
  TROUPE_CHECK(!sequence.away, "a sequence ends between two steps");
  drop_state(sequence);
  waiting_.erase(sequence.id);
  last.id = sequence.id;
  last.finished = true;
  last.reason = reason;
  last.failure = std::move(failure);
  last.preemptions = sequence.preemptions;
  last.first_step = sequence.first_step;
  events_.push_back(std::move(last));
  sequences_.erase(RequestId{sequence.id});
}

}  // namespace troupe
