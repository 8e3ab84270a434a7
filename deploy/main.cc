// The composition root: parses the command line, makes what every command needs, runs one command,
// turns its result into an exit code.
#include "deploy/commands.h"
#include "deploy/options.h"
#include "runtime/base/sources.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <cstdio>
#include <ctime>
#include <exception>
#include <fcntl.h>
#include <memory>
#include <unistd.h>

namespace troupe::deploy {
namespace {

// A file opened later must not become standard output because the caller closed that.
void hold_standard_files() {
  int fd = 0;
  while (fd >= 0 && fd <= STDERR_FILENO) {
    fd = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  }
  ::close(fd);
}

void start_log(const std::string& level) {
  spdlog::set_default_logger(std::make_shared<spdlog::logger>(
      "troupe", std::make_shared<spdlog::sinks::stderr_sink_mt>()));
  spdlog::set_level(spdlog::level::from_str(level));
  spdlog::set_pattern("troupe: %l: %v");
}

Result<ExitCode> run(const Options& options, World& world) {
  switch (options.command) {
    case Command::kRun:
      return run_command(options, world);
    case Command::kServe:
      return serve_command(options, world);
    case Command::kBench:
      return bench_command(options, world);
    case Command::kDevices:
      return devices_command(options, world);
    case Command::kPlan:
      break;
  }
  return plan_command(options, world);
}

ExitCode execute(Options options) {
  start_log(options.common.log_level);
  options.run.chat.now_unix_s = static_cast<std::int64_t>(std::time(nullptr));
  auto signals = Signals::open();
  if (!signals) {
    print_error(signals.error().message);
    return ExitCode::kFailed;
  }
  const SteadyClock clock;
  Output output(STDOUT_FILENO, signals->get());
  World world{clock, **signals, output};
  const auto code = run(options, world);
  if (code) {
    return *code;
  }
  if (output.closed()) {  // whoever read has seen enough
    return ExitCode::kDone;
  }
  print_error(code.error().message);
  return exit_code(code.error().kind);
}

}  // namespace
}  // namespace troupe::deploy

int main(int argc, char** argv) {
  using namespace troupe::deploy;
  hold_standard_files();
  try {
    auto parsed = parse_options(argc, argv);
    if (!parsed.options) {
      if (parsed.code == ExitCode::kDone) {
        std::fputs(parsed.text.c_str(), stdout);
      } else {
        print_error(parsed.text + "\nRun with --help for more information.");
      }
      return static_cast<int>(parsed.code);
    }
    return static_cast<int>(execute(*std::move(parsed.options)));
  } catch (const std::exception& problem) {
    print_error(problem.what());
  }
  return static_cast<int>(ExitCode::kFailed);
}
