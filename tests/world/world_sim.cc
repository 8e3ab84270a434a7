// world_sim --seeds N [--first S] | --seed S [--trace]: runs worlds, prints what failed and how to
// replay it. Exit code 1 when a promise was broken.
#include "tests/world/world.h"

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>

namespace {

struct Arguments {
  std::uint64_t first = 0;
  std::uint64_t count = 100;
  bool trace = false;
};

std::optional<Arguments> parse(int argc, char** argv) {
  Arguments arguments;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--trace") == 0) {
      arguments.trace = true;
      continue;
    }
    if (i + 1 == argc) {
      return std::nullopt;
    }
    char* end = nullptr;
    const std::uint64_t value = std::strtoull(argv[i + 1], &end, 10);
    if (end == argv[i + 1] || *end != '\0') {
      return std::nullopt;
    }
    if (std::strcmp(argv[i], "--seeds") == 0) {
      arguments.count = value;
    } else if (std::strcmp(argv[i], "--first") == 0) {
      arguments.first = value;
    } else if (std::strcmp(argv[i], "--seed") == 0) {
      arguments.first = value;
      arguments.count = 1;
    } else {
      return std::nullopt;
    }
    ++i;
  }
  return arguments;
}

void print(std::uint64_t seed, const troupe::WorldOutcome& outcome) {
  std::printf(
      "seed %llu: %u requests, %u finished, %u cancelled, %u failed, %llu preemptions, %llu "
      "messages, hash %016llx\n",
      static_cast<unsigned long long>(seed),
      outcome.requests,
      outcome.finished,
      outcome.cancelled,
      outcome.failed,
      static_cast<unsigned long long>(outcome.preemptions),
      static_cast<unsigned long long>(outcome.messages),
      static_cast<unsigned long long>(outcome.trace_hash));
  std::printf("  %s\n", outcome.knobs.c_str());
  for (const auto& failure : outcome.failures) {
    std::printf("  FAILED %s\n", failure.c_str());
  }
}

}  // namespace

int main(int argc, char** argv) {
  const auto arguments = parse(argc, argv);
  if (!arguments) {
    std::fprintf(stderr, "usage: world_sim --seeds N [--first S] | --seed S [--trace]\n");
    return 2;
  }
  std::uint64_t failed = 0;
  troupe::WorldOutcome sum;
  for (std::uint64_t seed = arguments->first; seed < arguments->first + arguments->count; ++seed) {
    const auto outcome = troupe::run_world({.seed = seed, .keep_trace = arguments->trace});
    for (const auto& line : outcome.trace) {
      std::printf("%s\n", line.c_str());
    }
    if (arguments->count == 1 || !outcome.failures.empty()) {
      print(seed, outcome);
    }
    if (!outcome.failures.empty()) {
      ++failed;
      std::printf("  replay: world_sim --seed %llu --trace\n",
                  static_cast<unsigned long long>(seed));
    }
    sum.requests += outcome.requests;
    sum.finished += outcome.finished;
    sum.cancelled += outcome.cancelled;
    sum.failed += outcome.failed;
    sum.preemptions += outcome.preemptions;
    sum.messages += outcome.messages;
  }
  std::printf(
      "%llu worlds, %llu failed: %u requests, %u finished, %u cancelled, %u with errors, %llu "
      "preemptions, %llu "
      "messages\n",
      static_cast<unsigned long long>(arguments->count),
      static_cast<unsigned long long>(failed),
      sum.requests,
      sum.finished,
      sum.cancelled,
      sum.failed,
      static_cast<unsigned long long>(sum.preemptions),
      static_cast<unsigned long long>(sum.messages));
  return failed == 0 ? 0 : 1;
}
