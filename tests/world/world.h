// A world: the actors of a node over a fake stage, clients, and everything that can go wrong, all
// drawn from one seed and run in one thread. Its checkers say whether the promises held. A failed
// seed replays exactly.
//
// Checkers, by the name that a failure starts with:
//   once     every admitted request ends exactly once and has no event after that (P2)
//   tokens   what was answered is what the oracle answers; a cut answer is a prefix of it (P1)
//   counts   the telemetry counts what has been told to clients
//   balance  no page or block is held when nothing runs (P3)
//   state    no step named a page or block that did not hold what the sequence's history says
//   ends     everything ends within bounded virtual time (P4)
//   stopped  no event after the node has stopped
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

namespace troupe {

// Bugs put in on purpose, one per checker: each must be found.
enum class PlantedBug : std::uint8_t {
  kNone,
  kEndTwice,
  kWrongToken,
  kLeak,
  kSpoilPage,
  kSilence,
  kLateEvent,
  kMiscount
};

struct WorldOptions {
  std::uint64_t seed = 0;
  bool keep_trace = false;
  PlantedBug bug = PlantedBug::kNone;
};

struct WorldOutcome {
  std::vector<std::string> failures;  // empty: all promises held
  std::uint64_t trace_hash = 0;
  std::uint64_t messages = 0;
  std::uint32_t requests = 0;
  std::uint32_t finished = 0;  // with stop or length
  std::uint32_t cancelled = 0;
  std::uint32_t failed = 0;
  std::uint64_t preemptions = 0;
  std::string knobs;              // what this seed chose
  std::deque<std::string> trace;  // with keep_trace
};

[[nodiscard]] WorldOutcome run_world(const WorldOptions& options);

}  // namespace troupe
