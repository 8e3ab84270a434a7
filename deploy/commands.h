// The commands of the program, one function each. They print results to standard output and
// everything else to standard error. Main thread. An error returned is printed by main and decides
// the exit code.
#pragma once

#include "deploy/exit_code.h"
#include "deploy/options.h"
#include "deploy/output.h"
#include "deploy/signals.h"
#include "runtime/base/error.h"
#include "runtime/base/sources.h"

namespace troupe::deploy {

// What main has made before any command runs.
struct World {
  const Clock& clock;
  Signals& signals;
  Output& output;
};

[[nodiscard]] Result<ExitCode> run_command(const Options& options, World& world);
[[nodiscard]] Result<ExitCode> serve_command(const Options& options, World& world);
[[nodiscard]] Result<ExitCode> bench_command(const Options& options, World& world);
[[nodiscard]] Result<ExitCode> devices_command(const Options& options, World& world);
[[nodiscard]] Result<ExitCode> plan_command(const Options& options, World& world);

}  // namespace troupe::deploy
