#include "tests/deploy/program.h"

#include "runtime/base/error.h"

#include <array>
#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>

namespace troupe::deploy {
namespace {

void close_now(int& fd) {
  if (fd >= 0) {
    ::close(std::exchange(fd, -1));
  }
}

std::array<int, 2> make_pipe() {
  std::array<int, 2> ends{};
  TROUPE_CHECK(::pipe2(ends.data(), O_CLOEXEC) == 0);
  return ends;
}

int milliseconds(Time time) {
  return static_cast<int>(std::chrono::duration_cast<std::chrono::milliseconds>(time).count()) + 1;
}

int code_of(int status) {
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace

Program::Program(const std::vector<std::string>& arguments,
                 Files files,
                 const std::vector<std::string>& through) {
  ::signal(SIGPIPE, SIG_IGN);
  std::vector<std::string> words = through;
  words.emplace_back(TROUPE_PROGRAM);
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (auto& word : words) {
    argv.push_back(word.data());
  }
  argv.push_back(nullptr);
  files == Files::kPipes ? start_with_pipes(std::move(argv)) : start_with_terminal(std::move(argv));
}

void Program::start_with_pipes(std::vector<char*> argv) {
  const auto in = make_pipe();
  const auto out = make_pipe();
  const auto err = make_pipe();
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, in[0], STDIN_FILENO);
  ::posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
  ::posix_spawn_file_actions_adddup2(&actions, err[1], STDERR_FILENO);
  TROUPE_CHECK(::posix_spawn(&pid_, argv[0], &actions, nullptr, argv.data(), environ) == 0,
               argv[0]);
  ::posix_spawn_file_actions_destroy(&actions);
  for (const int fd : {in[0], out[1], err[1]}) {
    ::close(fd);
  }
  input_ = in[1];
  output_ = out[0];
  errors_ = err[0];
}

void Program::start_with_terminal(std::vector<char*> argv) {
  int terminal = -1;
  pid_ = ::forkpty(&terminal, nullptr, nullptr, nullptr);
  TROUPE_CHECK(pid_ >= 0, "no pseudo-terminal");
  if (pid_ == 0) {
    ::execv(argv[0], argv.data());
    ::_exit(127);
  }
  input_ = ::dup(terminal);
  output_ = terminal;
}

Program::~Program() {
  if (pid_ > 0) {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  for (int* fd : {&input_, &output_, &errors_}) {
    close_now(*fd);
  }
}

void Program::write(std::string_view text) {
  while (!text.empty()) {
    const auto count = ::write(input_, text.data(), text.size());
    if (count <= 0) {
      return;  // the program has ended; its exit code says more
    }
    text.remove_prefix(static_cast<std::size_t>(count));
  }
}

void Program::close_input() {
  close_now(input_);
}

void Program::close_output() {
  close_now(output_);
}

// False: the time is over, or nothing more can come.
bool Program::read_some(Time until) {
  const Time now = clock_.now();
  pollfd watched[] = {{output_, POLLIN, 0}, {errors_, POLLIN, 0}};
  if ((output_ < 0 && errors_ < 0) || now >= until ||
      ::poll(watched, 2, milliseconds(until - now)) <= 0) {
    return false;
  }
  const std::array<std::pair<int*, std::string*>, 2> sinks = {
      {{&output_, &out_}, {&errors_, &err_}}};
  for (std::size_t i = 0; i < sinks.size(); ++i) {
    if (watched[i].revents == 0) {
      continue;
    }
    std::array<char, 65536> bytes{};
    const auto count = ::read(*sinks[i].first, bytes.data(), bytes.size());
    if (count > 0) {
      sinks[i].second->append(bytes.data(), static_cast<std::size_t>(count));
    } else {
      close_now(*sinks[i].first);  // a terminal whose program has ended gives EIO
    }
  }
  return true;
}

bool Program::wait_in(const std::string& stream,
                      std::size_t& found,
                      std::string_view text,
                      Time patience) {
  const Time until = clock_.now() + patience;
  for (;;) {
    const auto at = stream.find(text, found);
    if (at != std::string::npos) {
      found = at + text.size();
      return true;
    }
    if (!read_some(until)) {
      return false;
    }
  }
}

bool Program::wait_for(std::string_view text, Time patience) {
  return wait_in(out_, found_, text, patience);
}

bool Program::wait_for_error(std::string_view text, Time patience) {
  return wait_in(err_, error_found_, text, patience);
}

void Program::signal(int number) const {
  ::kill(pid_, number);
}

Ended Program::finish(Time patience) {
  const Time begin = clock_.now();
  while (read_some(begin + patience)) {
  }
  // Its files are closed or its time is over: either it has ended, or it never will.
  Ended ended;
  ended.in_time = clock_.now() < begin + patience;
  if (!ended.in_time) {
    ::kill(pid_, SIGKILL);
  }
  int status = 0;
  ::waitpid(std::exchange(pid_, -1), &status, 0);
  ended.code = code_of(status);
  ended.out = out_;
  ended.err = err_;
  ended.seconds = in_seconds(clock_.now() - begin);
  return ended;
}

Ended run_program(const std::vector<std::string>& arguments, std::string_view input) {
  Program program(arguments);
  program.write(input);
  program.close_input();
  return program.finish();
}

}  // namespace troupe::deploy
