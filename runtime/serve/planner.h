// StepPlanner: decides which rows the next step has and which pages and blocks they use. It is the
// one owner of both pools' book-keeping and of every admitted sequence of a stage. Owned by one
// stage coordinator; one thread; a value machine: time comes in as a parameter, nothing is waited
// for. What it has to tell collects in take_events().
//
// SL-1: a sequence is in at most one step that has not come back; its page and blocks stay held
//       until then, cancelled or not.
// SL-2: older sequences go first (RequestId is the age). A sequence takes blocks only from
//       younger ones, and one that was resumed is spared until it has emitted a token. It holds the
//       blocks for that from its admission on, so the oldest sequence always advances and every
//       sequence ends (decision D12).
// SL-3: a page is written in place only by a one-row segment that holds the page's only
//       reference (decision D1). When such a step fails the sequence is recomputed from its tokens;
//       any other one is replayed from its read page.
// SL-4: pages and blocks add up after every call (check()); in checked builds a violation ends
//       the process, else the pool counts it, quarantines the slot, and the sequence ends with
//       kInternal.
// SL-5: a second step is planned while one is away only when that one was full: otherwise the
//       batch would fall apart into halves that read the weights twice.
// SL-6: prompt logprobs are reported once for each token, in order, whatever the chunks and
//       however often the sequence was recomputed; they take sampled rows that nobody needs for a
//       next token.
#pragma once

#include "runtime/base/error.h"
#include "runtime/base/ids.h"
#include "runtime/base/sources.h"
#include "runtime/serve/request.h"
#include "runtime/serve/sequence.h"
#include "runtime/serve/step.h"
#include "runtime/state/slot_pool.h"

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <vector>

namespace troupe {

struct PlannerLimits {
  std::uint32_t pages = 0;             // state pages, the zero page included; at least 2
  std::uint32_t blocks = 0;            // KV blocks
  std::uint32_t step_rows_max = 0;     // rows of a step
  std::uint32_t sampled_rows_max = 0;  // of them, the most that are sampled
  std::uint32_t sequences_max =
      0;  // sequences that run at once, at most the rows, segments and sampled rows of a step
  std::uint32_t steps_max = 2;     // steps away at once
  std::uint32_t attempts_max = 3;  // failed steps in a row that a sequence survives but the last
  std::uint32_t vocab = 0;         // sampled ids are below
  std::uint32_t values_max = 1U << 16;  // entries of all sparse sampling lists of a step
};

struct PoolUse {
  std::uint32_t used = 0;
  std::uint32_t total = 0;  // of pages: without the zero page
  std::uint32_t quarantined = 0;
};

struct PlannerStatus {
  std::uint64_t steps = 0;  // planned so far
  std::uint32_t waiting = 0;
  std::uint32_t running = 0;
  std::uint32_t steps_away = 0;
  PoolUse pages;
  PoolUse blocks;
  std::uint64_t imbalances = 0;
  std::uint64_t preemptions = 0;
  std::uint64_t recomputed_tokens = 0;  // whose state was dropped before the answer was done
  std::uint64_t failed_steps = 0;
};

class StepPlanner final {
 public:
  explicit StepPlanner(const PlannerLimits& limits);  // REQUIRES: every limit positive, pages >= 2

  // Queues a checked request (check_request). kInvalid, with the arithmetic, when the pools or a
  // step's lists could never hold it.
  Status add(RequestId id, std::shared_ptr<const Request> request, std::uint64_t seed, Time now);

  // The next step, or an empty one when nothing can be done now. O(sequences + rows + block table).
  [[nodiscard]] StepPlan plan(Time now);

  // A step came back. kInvalid for a step that is not away; nothing changes then.
  Status complete(StepId step, std::span<const SampleResult> results);
  Status fail(StepId step, const Error& why);

  // Ends the sequence now, or when its step comes back. Unknown and ended ids are ignored.
  void cancel(RequestId id);
  // Ends every sequence with this error and forgets the steps that are away: the device is gone.
  void abort(const Error& why);

  [[nodiscard]] std::vector<SequenceEvent> take_events() { return std::exchange(events_, {}); }
  [[nodiscard]] PlannerStatus status() const;
  [[nodiscard]] bool idle() const { return sequences_.empty(); }
  // Recounts both pools against the sequences' holdings. kInternal names what does not add up.
  // O(pools).
  [[nodiscard]] Status check() const;

 private:
  struct Member {  // a sequence's part of a step
    RequestId id;
    std::uint32_t rows = 0;
    PageRef write_page;
    bool in_place = false;
    std::uint32_t reports = 0;  // rows that report on the prompt
    bool sampled = false;       // its last row brings the next token
  };
  struct Away {
    std::vector<Member> members;
    std::size_t sampled = 0;
  };

  struct Room {
    std::uint32_t rows = 0;
    std::uint32_t sampled = 0;
  };

  [[nodiscard]] bool may_plan() const;
  void admit_waiting();
  [[nodiscard]] bool admit(Sequence& sequence);
  [[nodiscard]] bool grow(StepPlan& plan, Sequence& sequence);
  [[nodiscard]] Sequence* youngest_victim(RequestId older_than);
  void preempt(StepPlan& plan, Sequence& sequence);
  [[nodiscard]] static std::uint32_t rows_that_fit(const Sequence& sequence, Room room);
  void add_segment(StepPlan& plan, Away& away, Sequence& sequence, Room room, Time now);
  void add_block_table(StepPlan& plan, const Away& away) const;
  [[nodiscard]] bool end_stuck();

  void advance(Sequence& sequence, const Member& member, std::span<const SampleResult> results);
  [[nodiscard]] bool collect_reports(Sequence& sequence, std::span<const SampleResult> results);
  void end_without_number(Sequence& sequence, const SampleResult& result);
  void emit(Sequence& sequence, const SampleResult& result);
  void retry(Sequence& sequence, const Member& member, const Error& why);
  void drop_state(Sequence& sequence);
  [[nodiscard]] bool release(PageRef page);
  void finish(Sequence& sequence,
              FinishReason reason,
              std::optional<Error> failure,
              SequenceEvent last);
  [[nodiscard]] std::uint32_t spare_pages() const;
  void check_if_checked() const;

  PlannerLimits limits_;
  PagePool pages_;
  BlockPool blocks_;
  std::map<RequestId, Sequence> sequences_;  // all that have not ended
  std::set<RequestId> waiting_;
  std::set<RequestId> running_;
  std::map<StepId, Away> away_;
  std::vector<SequenceEvent> events_;
  StepId last_step_;
  bool last_full_ = false;
  std::uint64_t preemptions_ = 0;
  std::uint64_t recomputed_tokens_ = 0;
  std::uint64_t failed_steps_ = 0;
};

}  // namespace troupe
