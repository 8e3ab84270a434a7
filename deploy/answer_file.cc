#include "deploy/service.h"

#include <cstdio>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace troupe::deploy {
namespace {

// Most requests that are with the node at once: it runs 64, the others wait there so that a place
// is never empty.
constexpr std::size_t kInFlightMax = 128;

// The requests of a file on their way through a session. Lines are printed as soon as all before
// them are.
class FileRun final {
 public:
  FileRun(const ModelFiles& files,
          const std::vector<Question>& questions,
          const RunOptions& run,
          Service& service,
          World& world)
      : files_(files), questions_(questions), run_(run), service_(service), world_(world) {}

  Result<ExitCode> run() {
    TROUPE_TRY(fill());
    while (service_.session().running() > 0) {
      switch (service_.session().wait(!interrupted_)) {
        case Session::Wake::kSilent:
          return report_silence();
        case Session::Wake::kSignal:
          interrupted_ = true;
          service_.session().cancel_all();
          break;
        case Session::Wake::kEvents:
          TROUPE_TRY(take());
          TROUPE_TRY(fill());
      }
    }
    print_stats();
    return interrupted_ ? ExitCode::kFailed : code_;
  }

 private:
  struct Item {
    std::vector<std::uint32_t> prompt;
    bool logprobs = false;
    Answer answer;
  };

  Status fill() {
    while (!interrupted_ && next_ < questions_.size() &&
           service_.session().running() < kInFlightMax) {
      const std::size_t index = next_++;
      if (auto submitted = submit(index); !submitted) {
        TROUPE_TRY(finish(index, failed(submitted.error(), index)));
      }
    }
    return {};
  }

  Status submit(std::size_t index) {
    TROUPE_ASSIGN(auto request,
                  make_request(files_, questions_[index], run_.chat, service_.max_context()));
    items_[index] = {request.prompt, request.logprobs.has_value(), {}};
    return service_.session().submit(index, std::move(request));
  }

  Status take() {
    for (const auto& event : service_.session().take()) {
      Item& item = items_[event.tag];
      append(item.answer, event.event);
      if (event.event.finished) {
        tokens_ += item.answer.tokens.size();
        TROUPE_TRY(finish(
            event.tag,
            item.answer.failure
                ? failed(*item.answer.failure, event.tag)
                : answer_json(
                      item.prompt, item.answer, item.logprobs, service_.setting(), event.tag)));
      }
    }
    return {};
  }

  // The first failure decides the exit code; the others go on.
  std::string failed(const Error& error, std::size_t index) {
    if (code_ == ExitCode::kDone) {
      code_ = exit_code(error.kind);
    }
    return failure_json(error, index);
  }

  Status finish(std::size_t index, std::string line) {
    items_.erase(index);
    lines_[index] = std::move(line);
    while (!lines_.empty() && lines_.begin()->first == printed_) {
      TROUPE_TRY(world_.output.write(lines_.begin()->second));
      lines_.erase(lines_.begin());
      ++printed_;
    }
    return {};
  }

  void print_stats() const {
    if (run_.stats) {
      const auto text =
          std::to_string(printed_) + " answers, " + std::to_string(tokens_) + " tokens, " +
          rate_text(static_cast<double>(tokens_), in_seconds(world_.clock.now() - begin_)) +
          " tokens/s\n" + setting_text(service_.setting(), resident_bytes());
      std::fputs(text.c_str(), stderr);
    }
  }

  const ModelFiles& files_;
  const std::vector<Question>& questions_;
  const RunOptions& run_;
  Service& service_;
  World& world_;
  const Time begin_ = world_.clock.now();
  std::map<std::size_t, Item> items_;         // with the node
  std::map<std::size_t, std::string> lines_;  // ended, but one before them has not
  std::size_t next_ = 0;
  std::size_t printed_ = 0;
  std::size_t tokens_ = 0;
  bool interrupted_ = false;
  ExitCode code_ = ExitCode::kDone;
};

}  // namespace

Result<ExitCode> answer_file(const ModelFiles& files,
                             const std::vector<Question>& questions,
                             const RunOptions& run,
                             Service& service,
                             World& world) {
  return FileRun(files, questions, run, service, world).run();
}

}  // namespace troupe::deploy
