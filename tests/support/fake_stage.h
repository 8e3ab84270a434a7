// FakeStage: a stage without arithmetic whose tokens depend on everything that must be right. Its
// "state page" holds a hash of all tokens seen, its "blocks" hold the tokens themselves; a step is
// checked against both, and the next token is a hash of history and sampling parameters, so that
// any mistake in pages, blocks, positions or parameters shows as a refusal, a noted violation or
// another token. Runs steps in commit order, at once or when told to. Thread-safe where Executable
// is called from one thread and deferred work runs on another.
#pragma once

#include "runtime/device/device.h"
#include "runtime/program/stage.h"
#include "runtime/serve/request.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace troupe {

enum class FakeFault : std::uint8_t {
  kNone,
  kFail,        // the ticket ends with kInternal; what it would have written is garbage
  kSilent,      // the ticket never ends, and none after it
  kTwice,       // its completion is reported twice
  kSpoilPage,   // the pages it writes are wrong although it reports success
  kWrongToken,  // the tokens it reports are wrong
};

struct FakeStageOptions {
  std::uint32_t pages = 9;  // the zero page included
  std::uint32_t blocks = 16;
  std::uint32_t contexts = 2;
  std::uint32_t max_rows = 16;
  std::uint32_t max_segments = 8;
  std::uint32_t max_sampled = 0;  // 0: as many as segments
  std::uint32_t vocab = 64;
  std::uint32_t max_context = 0;  // 0: what the blocks hold
  // Runs the given work later, exactly once; empty: within commit_no_wait. Work that outlives the
  // stage does nothing.
  std::function<void(std::function<void()>)> defer;
  std::function<FakeFault(TicketId)> fault;  // asked at commit; empty: never
};

class FakeStage : public Stage {
 public:
  // What was wrong with the steps so far; must stay empty.
  [[nodiscard]] virtual std::vector<std::string> violations() const = 0;
  [[nodiscard]] virtual std::uint64_t tickets() const = 0;
};

[[nodiscard]] std::unique_ptr<FakeStage> make_fake_stage(const FakeStageOptions& options);
[[nodiscard]] std::unique_ptr<Device> make_fake_device();

// The answer that a correct engine gives with a fake stage: tokens as reported, stop token
// included.
struct FakeAnswer {
  std::vector<std::uint32_t> tokens;
  std::vector<TokenOutput> outputs;  // the same tokens with what is reported of them
  std::vector<TokenOutput> prompt;   // with Request::prompt_logprobs
  FinishReason reason = FinishReason::kLength;
};
[[nodiscard]] FakeAnswer fake_answer(const Request& request,
                                     std::uint64_t seed,
                                     std::uint32_t vocab);

}  // namespace troupe
