#include "runtime/serve/planner.h"

#include <algorithm>
#include <string>
#include <utility>

namespace troupe {

namespace {

std::vector<std::uint32_t> distinct(std::vector<std::uint32_t> tokens) {
  std::sort(tokens.begin(), tokens.end());
  tokens.erase(std::unique(tokens.begin(), tokens.end()), tokens.end());
  return tokens;
}

TokenOutput output_of(const SampleResult& result) {
  TokenOutput output;
  output.token = static_cast<std::uint32_t>(result.token);
  output.logprob = result.logprob;
  output.top.assign(result.top.begin(),
                    result.top.begin() + std::min(result.top_count, kTopLogprobs));
  return output;
}

bool contains(const std::vector<std::uint32_t>& tokens, std::uint32_t token) {
  return std::find(tokens.begin(), tokens.end(), token) != tokens.end();
}

std::string text(RequestId id) {
  return "request " + std::to_string(id.value);
}

}  // namespace

StepPlanner::StepPlanner(const PlannerLimits& limits)
    : limits_(limits), pages_(limits.pages, 1), blocks_(limits.blocks) {
  TROUPE_CHECK(limits.pages >= 2 && limits.blocks > 0 && limits.step_rows_max > 0 &&
                   limits.sequences_max > 0 && limits.sequences_max <= limits.step_rows_max &&
                   limits.steps_max > 0 && limits.attempts_max > 0,
               "limits are positive and every running sequence has room for a row");
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
                 text(id) + " needs " + std::to_string(blocks_for(tokens)) + " KV blocks for " +
                     std::to_string(tokens) + " tokens; there are " +
                     std::to_string(blocks_.size()) + " (" +
                     std::to_string(std::uint64_t{blocks_.size()} * kBlockTokens) +
                     " tokens): shorten the prompt or max_tokens, or give more memory");
  }
  Sequence sequence;
  sequence.id = id;
  sequence.seed = seed;
  sequence.tokens = request->prompt;
  if (request->sampling.repetition_penalty != 1) {
    sequence.prompt_set = distinct(request->prompt);
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
    if (running_.contains(id) && !sequences_.at(id).away && !grow(sequences_.at(id))) {
      stalled.insert(id);
    }
  }
  admit_waiting();

  Away away;
  for (const bool prompts : {false, true}) {
    for (const RequestId id : running_) {
      Sequence& sequence = sequences_.at(id);
      const auto rows_left = limits_.step_rows_max - static_cast<std::uint32_t>(plan.tokens.size());
      if (!sequence.away && !stalled.contains(id) && rows_left > 0 &&
          (sequence.remaining() > 1) == prompts) {
        add_segment(plan, away, sequence, rows_left, now);
      }
    }
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
  last_full_ = plan.tokens.size() == limits_.step_rows_max;
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
bool StepPlanner::grow(Sequence& sequence) {
  if (sequence.blocks.size() >= blocks_for(sequence.tokens.size())) {
    return true;
  }
  while (blocks_.free_count() == 0) {
    Sequence* victim = youngest_victim(sequence.id);
    if (victim == nullptr) {
      return false;
    }
    preempt(*victim);
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

void StepPlanner::preempt(Sequence& sequence) {
  drop_state(sequence);
  ++sequence.preemptions;
  ++preemptions_;
}

void StepPlanner::add_segment(
    StepPlan& plan, Away& away, Sequence& sequence, std::uint32_t rows_left, Time now) {
  std::uint32_t rows = std::min(sequence.remaining(), rows_left);
  const bool alone = sequence.page && pages_.references(*sequence.page) == 1;
  // Without a spare page a prompt advances one row at a time in place, rather than not at all.
  const bool in_place = alone && (rows == 1 || spare_pages() == 0);
  PageRef write_page;
  if (in_place) {
    rows = 1;
    write_page = *sequence.page;
  } else {
    const auto page = pages_.acquire();
    if (!page) {
      return;
    }
    write_page = *page;
  }
  if (!sequence.started) {
    sequence.started = true;
    sequence.first_step = now;
  }
  const auto block_row = static_cast<std::uint32_t>(plan.segments.size());
  plan.segments.push_back({.rows = rows,
                           .first_position = static_cast<std::int32_t>(sequence.computed),
                           .read_page = sequence.page.value_or(PageRef{}),
                           .block_row = block_row});
  for (std::uint32_t i = 0; i < rows; ++i) {
    plan.tokens.push_back(static_cast<std::int32_t>(sequence.tokens[sequence.computed + i]));
    plan.write_pages.push_back(i + 1 == rows ? write_page : PageRef{kNoPage, 0});
  }
  const bool sampled = rows == sequence.remaining();
  if (sampled) {
    plan.sampled.push_back(
        {static_cast<std::uint32_t>(plan.tokens.size() - 1), sample_params(sequence, plan.values)});
  }
  away.members.push_back({sequence.id, rows, write_page, in_place, sampled});
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
               text(oldest.id) + " can't go on: it needs a page and " +
                   std::to_string(blocks_for(oldest.tokens.size())) + " KV blocks; free are " +
                   std::to_string(pages_.free_count()) + " pages and " +
                   std::to_string(blocks_.free_count()) + " blocks, quarantined " +
                   std::to_string(pages_.quarantined_count()) + " and " +
                   std::to_string(blocks_.quarantined_count()),
               std::source_location::current()},
         {});
  return true;
}

// ---- what came back -----------------------------------------------------------------------------

Status StepPlanner::complete(StepId step, std::span<const SampleResult> results) {
  const auto found = away_.find(step);
  if (found == away_.end()) {
    return error(Kind::kInvalid,
                 "step " + std::to_string(step.value) + " is not away: its completion is stale");
  }
  if (found->second.sampled != results.size()) {
    return fail(step,
                Error{Kind::kInternal,
                      "step " + std::to_string(step.value) + " came back with " +
                          std::to_string(results.size()) + " results for " +
                          std::to_string(found->second.sampled) + " sampled rows",
                      std::source_location::current()});
  }
  const Away away = std::move(found->second);
  away_.erase(found);
  std::size_t next = 0;
  for (const Member& member : away.members) {
    const SampleResult* result = member.sampled ? &results[next++] : nullptr;
    advance(sequences_.at(member.id), member, result);
  }
  check_if_checked();
  return {};
}

void StepPlanner::advance(Sequence& sequence, const Member& member, const SampleResult* result) {
  sequence.away.reset();
  bool balanced = true;
  if (!member.in_place) {
    balanced = !sequence.page || release(*sequence.page);
    sequence.page = member.write_page;
  }
  sequence.computed += member.rows;
  if (sequence.cancelled) {
    finish(sequence, FinishReason::kCancelled, {}, {});
  } else if (!balanced) {
    finish(sequence,
           FinishReason::kError,
           Error{Kind::kInternal,
                 text(sequence.id) + " lost a state page; see the count of imbalances",
                 std::source_location::current()},
           {});
  } else if (result != nullptr) {
    emit(sequence, *result);
  }
}

void StepPlanner::emit(Sequence& sequence, const SampleResult& result) {
  if (result.token < 0 || static_cast<std::uint32_t>(result.token) >= limits_.vocab) {
    finish(sequence,
           FinishReason::kError,
           Error{Kind::kInternal,
                 text(sequence.id) + " sampled token " + std::to_string(result.token) +
                     "; the vocabulary has " + std::to_string(limits_.vocab) +
                     ": the logits may hold no number",
                 std::source_location::current()},
           {});
    return;
  }
  std::vector<TokenOutput> tokens{output_of(result)};
  const std::uint32_t token = tokens.front().token;
  sequence.tokens.push_back(token);
  ++sequence.counts[token];
  sequence.spared = false;
  sequence.attempts = 0;
  const Request& request = *sequence.request;
  if (!request.ignore_stop_tokens && contains(request.stop_tokens, token)) {
    finish(sequence, FinishReason::kStop, {}, std::move(tokens));
  } else if (sequence.generated() >= request.max_tokens) {
    finish(sequence, FinishReason::kLength, {}, std::move(tokens));
  } else {
    events_.push_back({.id = sequence.id,
                       .tokens = std::move(tokens),
                       .failure = {},
                       .preemptions = sequence.preemptions,
                       .first_step = sequence.first_step});
  }
}

Status StepPlanner::fail(StepId step, const Error& why) {
  const auto found = away_.find(step);
  if (found == away_.end()) {
    return error(Kind::kInvalid,
                 "step " + std::to_string(step.value) + " is not away: its failure is stale");
  }
  const Away away = std::move(found->second);
  away_.erase(found);
  ++failed_steps_;
  for (const Member& member : away.members) {
    retry(sequences_.at(member.id), member, why);
  }
  check_if_checked();
  return {};
}

void StepPlanner::retry(Sequence& sequence, const Member& member, const Error& why) {
  sequence.away.reset();
  const bool balanced = member.in_place || release(member.write_page);
  if (sequence.cancelled) {
    finish(sequence, FinishReason::kCancelled, {}, {});
    return;
  }
  ++sequence.attempts;
  if (!balanced || sequence.attempts >= limits_.attempts_max) {
    finish(sequence,
           FinishReason::kError,
           Error{why.kind,
                 text(sequence.id) + " failed " + std::to_string(sequence.attempts) +
                     " times, the last time with: " + why.message,
                 why.where},
           {});
    return;
  }
  if (member.in_place) {
    drop_state(sequence);
  }
}

void StepPlanner::cancel(RequestId id) {
  const auto found = sequences_.find(id);
  if (found == sequences_.end()) {
    return;
  }
  found->second.cancelled = true;
  if (!found->second.away) {
    finish(found->second, FinishReason::kCancelled, {}, {});
  }
}

void StepPlanner::abort(const Error& why) {
  for (const auto& [step, away] : away_) {
    for (const Member& member : away.members) {
      sequences_.at(member.id).away.reset();
      if (!member.in_place) {
        static_cast<void>(release(member.write_page));
      }
    }
  }
  away_.clear();
  while (!sequences_.empty()) {
    Sequence& sequence = sequences_.begin()->second;
    if (sequence.cancelled) {
      finish(sequence, FinishReason::kCancelled, {}, {});
    } else {
      finish(sequence, FinishReason::kError, why, {});
    }
  }
  check_if_checked();
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

void StepPlanner::finish(Sequence& sequence,
                         FinishReason reason,
                         std::optional<Error> failure,
                         std::vector<TokenOutput> tokens) {
  TROUPE_CHECK(!sequence.away, "a sequence ends between two steps");
  drop_state(sequence);
  waiting_.erase(sequence.id);
  events_.push_back({.id = sequence.id,
                     .tokens = std::move(tokens),
                     .finished = true,
                     .reason = reason,
                     .failure = std::move(failure),
                     .preemptions = sequence.preemptions,
                     .first_step = sequence.first_step});
  sequences_.erase(RequestId{sequence.id});
}

}  // namespace troupe
