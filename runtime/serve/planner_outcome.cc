// What the planner does with what came back: completed and failed steps, cancelled and lost
// sequences.
#include "runtime/serve/planner.h"

#include <algorithm>
#include <string>
#include <utility>

namespace troupe {

namespace {

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

}  // namespace

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
  for (const Member& member : away.members) {
    const std::size_t count = member.reports + (member.sampled ? 1 : 0);
    advance(sequences_.at(member.id), member, results.first(count));
    results = results.subspan(count);
  }
  check_if_checked();
  return {};
}

void StepPlanner::advance(Sequence& sequence,
                          const Member& member,
                          std::span<const SampleResult> results) {
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
                 text_of(sequence.id) + " lost a state page; see the count of imbalances",
                 std::source_location::current()},
           {});
  } else if (collect_reports(sequence, results.first(member.reports)) && member.sampled) {
    emit(sequence, results.back());
  }
}

// Keeps what the rows of a prompt have reported; false: one has nothing to report, and the sequence
// has ended.
bool StepPlanner::collect_reports(Sequence& sequence, std::span<const SampleResult> results) {
  for (const SampleResult& result : results) {
    if (result.token < 0) {
      end_without_number(sequence, result);
      return false;
    }
    sequence.prompt_outputs.push_back(output_of(result));
  }
  return true;
}

void StepPlanner::end_without_number(Sequence& sequence, const SampleResult& result) {
  finish(sequence,
         FinishReason::kError,
         Error{Kind::kInternal,
               text_of(sequence.id) + " sampled token " + std::to_string(result.token) +
                   "; the vocabulary has " + std::to_string(limits_.vocab) +
                   ": the logits may hold no number",
               std::source_location::current()},
         {});
}

void StepPlanner::emit(Sequence& sequence, const SampleResult& result) {
  if (result.token < 0 || static_cast<std::uint32_t>(result.token) >= limits_.vocab) {
    end_without_number(sequence, result);
    return;
  }
  SequenceEvent event;
  event.tokens.push_back(output_of(result));
  event.prompt = std::exchange(sequence.prompt_outputs, {});  // whole with the first token
  const std::uint32_t token = event.tokens.front().token;
  sequence.tokens.push_back(token);
  ++sequence.counts[token];
  sequence.spared = false;
  sequence.attempts = 0;
  const Request& request = *sequence.request;
  if (!request.ignore_stop_tokens && contains(request.stop_tokens, token)) {
    finish(sequence, FinishReason::kStop, {}, std::move(event));
  } else if (sequence.generated() >= request.max_tokens) {
    finish(sequence, FinishReason::kLength, {}, std::move(event));
  } else {
    event.id = sequence.id;
    event.preemptions = sequence.preemptions;
    event.first_step = sequence.first_step;
    events_.push_back(std::move(event));
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
                 text_of(sequence.id) + " failed " + std::to_string(sequence.attempts) +
                     " times, the last time with: " + why.message,
                 why.where},
           {});
    return;
  }
  if (member.in_place) {
    recomputed_tokens_ += sequence.computed;
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

}  // namespace troupe
