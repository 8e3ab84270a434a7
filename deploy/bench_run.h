// BenchRun: drives an Executable as a server would, without requests: prompts of random ids, then
// decoding of all sequences together. Nothing here knows options or output. Main thread.
#pragma once

#include "runtime/base/error.h"
#include "runtime/base/sources.h"
#include "runtime/program/stage.h"
#include "runtime/serve/step.h"
#include "runtime/state/slot_pool.h"

#include <cstdint>
#include <string>
#include <vector>

namespace troupe::deploy {

// Figures of one kind, one a repetition.
class Figures final {
 public:
  void add(double value) { values_.push_back(value); }
  [[nodiscard]] bool empty() const { return values_.empty(); }
  [[nodiscard]] double min() const;     // these three: 0 when empty
  [[nodiscard]] double median() const;  // the lower of two middle ones
  [[nodiscard]] double max() const;

 private:
  [[nodiscard]] std::vector<double> sorted() const;
  std::vector<double> values_;
};

struct BenchShape {
  std::uint32_t prompt_tokens = 0;
  std::uint32_t output_tokens = 0;
  std::uint32_t batch = 1;
  std::uint32_t vocab = 0;  // ids of prompts are below
};

// Pages and KV blocks that the shape needs.
[[nodiscard]] std::uint32_t bench_pages(const BenchShape& shape);
[[nodiscard]] std::uint32_t bench_blocks(const BenchShape& shape);

class BenchRun final {
 public:
  // The stage has at least the pages and blocks above; stage and clock outlive the run. The same
  // prompts in every run.
  BenchRun(Stage& stage, const BenchShape& shape, const Clock& clock);

  struct Seconds {
    double prefill = 0;  // all prompts
    double decode = 0;   // all steps
  };
  // Prompts, then output_tokens decode steps of all sequences; begins anew every time.
  [[nodiscard]] Result<Seconds> run();

 private:
  struct Sequence {
    std::vector<std::int32_t> prompt;
    PageRef page;  // {0, 0}: none yet
    std::vector<BlockRef> blocks;
    std::int32_t position = 0;
    std::int32_t token = 0;  // the next one's input
  };

  Status begin();
  Status prefill(Sequence& sequence);
  Status decode();
  // Adds rows of a sequence to the step; the last one is sampled and its state goes to `write`.
  void add_segment(const Sequence& sequence, std::span<const std::int32_t> tokens, PageRef write);
  [[nodiscard]] Result<StepOutputs> step();

  Stage& stage_;
  BenchShape shape_;
  const Clock& clock_;
  PagePool pages_;
  BlockPool blocks_;
  std::vector<Sequence> sequences_;
  StepPlan plan_;
};

}  // namespace troupe::deploy
