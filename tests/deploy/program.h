// The built program as a child process: pipes or a pseudo-terminal on its standard files. Test
// thread.
#pragma once

#include "runtime/base/sources.h"

#include <chrono>
#include <string>
#include <string_view>
#include <sys/types.h>
#include <vector>

namespace troupe::deploy {

inline constexpr Time kPatience = std::chrono::seconds(60);

struct Ended {
  bool in_time = false;  // false: killed, because it had not ended
  int code = -1;         // exit code, or 128 + the signal that ended it
  std::string out;
  std::string err;     // of a terminal: empty, `out` has both
  double seconds = 0;  // of the last wait for the end
};

class Program final {
 public:
  enum class Files { kPipes, kTerminal };

  // `through`: a command and its arguments that ends by executing the program, such as prlimit.
  explicit Program(const std::vector<std::string>& arguments,
                   Files files = Files::kPipes,
                   const std::vector<std::string>& through = {});
  ~Program();  // kills what still runs
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  void write(std::string_view text);  // to standard input
  void close_input();
  void close_output();  // nobody reads its results any more
  // Reads until the output (of a terminal: also the errors) has `text`, after what earlier calls
  // have found.
  [[nodiscard]] bool wait_for(std::string_view text, Time patience = kPatience);
  [[nodiscard]] bool wait_for_error(std::string_view text,
                                    Time patience = kPatience);  // the same on standard error
  void signal(int number) const;
  // Reads the rest and waits.
  [[nodiscard]] Ended finish(Time patience = kPatience);

 private:
  void start_with_pipes(std::vector<char*> argv);
  void start_with_terminal(std::vector<char*> argv);
  bool read_some(Time until);
  bool wait_in(const std::string& stream, std::size_t& found, std::string_view text, Time patience);

  SteadyClock clock_;
  pid_t pid_ = -1;
  int input_ = -1;
  int output_ = -1;
  int errors_ = -1;
  std::string out_;
  std::string err_;
  std::size_t found_ = 0;        // in out_, by wait_for
  std::size_t error_found_ = 0;  // in err_
};

// Starts, gives `input`, waits for the end.
[[nodiscard]] Ended run_program(const std::vector<std::string>& arguments,
                                std::string_view input = {});

}  // namespace troupe::deploy
