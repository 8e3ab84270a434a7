#include "deploy/line_reader.h"
#include "deploy/service.h"

#include <cstdio>
#include <string>
#include <unistd.h>
#include <utility>
#include <vector>

namespace troupe::deploy {
namespace {

constexpr const char* kHelp =
    "/reset  forget the conversation\n/quit   end (as Ctrl-D does)\n/help   this\n"
    "Ctrl-C during an answer stops the answer; at the prompt it ends the chat.\n";

// A conversation: what was said so far, and how a turn goes.
class Conversation final {
 public:
  Conversation(const ModelFiles& files, const RunOptions& run, Service& service, World& world)
      : files_(files),
        run_(run),
        service_(service),
        world_(world),
        terminal_(::isatty(STDIN_FILENO) == 1) {}

  Result<ExitCode> run() {
    say("Talk to " + files_.directory.lexically_normal().filename().string() +
        "; /help says what else there is.\n");
    LineReader reader(STDIN_FILENO, world_.signals);
    for (std::string line;;) {
      say("> ");
      switch (reader.read(line)) {
        case LineReader::Got::kEnd:
        case LineReader::Got::kSignal:
          say("\n");
          return code_;
        case LineReader::Got::kTooLong:
          note(error(Kind::kOverloaded, "that line is too long; at most 16 MiB").value());
          continue;
        case LineReader::Got::kLine:
          break;
      }
      if (line == "/quit") {
        return code_;
      }
      if (!command(line)) {
        TROUPE_ASSIGN(const bool go_on, turn(line));
        if (!go_on) {
          return code_;
        }
      }
    }
  }

 private:
  // For people only; results go through the output.
  void say(const std::string& text) const {
    if (terminal_) {
      std::fputs(text.c_str(), stderr);
    }
  }

  // A turn that failed does not end the chat. Without a terminal the first failure decides the exit
  // code.
  void note(const Error& error) {
    print_error(error.message);
    if (!terminal_ && code_ == ExitCode::kDone) {
      code_ = exit_code(error.kind);
    }
  }

  // True: the line was no turn.
  bool command(const std::string& line) {
    if (line.find_first_not_of(" \t") == std::string::npos) {
      return true;
    }
    if (line == "/reset") {
      history_.clear();
      return true;
    }
    if (line == "/help") {
      say(kHelp);
      return true;
    }
    return false;
  }

  // False: the chat is over.
  Result<bool> turn(const std::string& line) {
    history_.push_back({"user", line});
    Question question;
    question.messages = history_;
    question.answer = run_.answer;
    auto request = make_request(files_, question, run_.chat, service_.max_context());
    if (!request) {
      history_.pop_back();
      note(request.error());
      return true;
    }
    const auto show = [this](const std::string& text) { return world_.output.write(text); };
    TROUPE_ASSIGN(auto asked, ask(service_.session(), *std::move(request), show));
    if (asked.silent) {
      code_ = report_silence();
      return false;
    }
    TROUPE_TRY(asked.output);
    return end_turn(asked);
  }

  Result<bool> end_turn(const Asked& asked) {
    TROUPE_TRY(world_.output.write("\n"));
    if (asked.answer.failure) {
      history_.pop_back();
      note(*asked.answer.failure);
      return true;
    }
    history_.push_back({"assistant", asked.answer.text});
    if (run_.stats) {
      std::fputs(stats_text(asked.answer).c_str(), stderr);
    }
    if (asked.interrupted && !terminal_) {  // a signal to a script's chat is meant for all of it
      code_ = ExitCode::kFailed;
      return false;
    }
    if (asked.interrupted) {
      world_.signals.acknowledge();
    }
    return true;
  }

  const ModelFiles& files_;
  const RunOptions& run_;
  Service& service_;
  World& world_;
  bool terminal_;
  std::vector<ChatMessage> history_;
  ExitCode code_ = ExitCode::kDone;
};

}  // namespace

Result<ExitCode> chat(const ModelFiles& files,
                      const RunOptions& run,
                      Service& service,
                      World& world) {
  return Conversation(files, run, service, world).run();
}

}  // namespace troupe::deploy
