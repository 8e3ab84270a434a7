#include "deploy/bench_run.h"

#include <algorithm>
#include <chrono>
#include <span>

namespace troupe::deploy {
namespace {

constexpr std::uint64_t kPromptSeed = 20240607;

std::uint32_t blocks_of(const BenchShape& shape) {
  return (shape.prompt_tokens + shape.output_tokens + kBlockTokens - 1) / kBlockTokens;
}

}  // namespace

std::vector<double> Figures::sorted() const {
  auto values = values_;
  std::sort(values.begin(), values.end());
  return values;
}

double Figures::min() const {
  return empty() ? 0 : sorted().front();
}

double Figures::median() const {
  return empty() ? 0 : sorted()[(values_.size() - 1) / 2];
}

double Figures::max() const {
  return empty() ? 0 : sorted().back();
}

// One page a sequence and a spare one: prompts run one after another, decoding writes in place.
std::uint32_t bench_pages(const BenchShape& shape) {
  return shape.batch + 1;
}

std::uint32_t bench_blocks(const BenchShape& shape) {
  return shape.batch * blocks_of(shape);
}

BenchRun::BenchRun(Stage& stage, const BenchShape& shape, const Clock& clock)
    : stage_(stage),
      shape_(shape),
      clock_(clock),
      pages_(stage.info().ledger.pages, 1),
      blocks_(stage.info().ledger.blocks),
      sequences_(shape.batch) {
  Rng rng(kPromptSeed);
  for (auto& sequence : sequences_) {
    // One more than the prompt: what a sequence without a prompt decodes first.
    for (std::uint32_t i = 0; i <= shape.prompt_tokens; ++i) {
      sequence.prompt.push_back(static_cast<std::int32_t>(rng.below(shape.vocab)));
    }
  }
}

Status BenchRun::begin() {
  for (auto& sequence : sequences_) {
    if (sequence.page != PageRef{}) {
      TROUPE_TRY(pages_.release(sequence.page));
    }
    for (const auto block : sequence.blocks) {
      TROUPE_TRY(blocks_.release(block));
    }
    sequence.blocks.clear();
    for (std::uint32_t i = 0; i < blocks_of(shape_); ++i) {
      TROUPE_ASSIGN(const auto block, blocks_.acquire());
      sequence.blocks.push_back(block);
    }
    sequence.page = {};
    sequence.position = 0;
    sequence.token = sequence.prompt.back();
  }
  return {};
}

void BenchRun::add_segment(const Sequence& sequence,
                           std::span<const std::int32_t> tokens,
                           PageRef write) {
  plan_.segments.push_back({.rows = static_cast<std::uint32_t>(tokens.size()),
                            .first_position = sequence.position,
                            .read_page = sequence.page,
                            .block_row = static_cast<std::uint32_t>(plan_.segments.size())});
  plan_.tokens.insert(plan_.tokens.end(), tokens.begin(), tokens.end());
  plan_.write_pages.insert(plan_.write_pages.end(), tokens.size() - 1, PageRef{kNoPage, 0});
  plan_.write_pages.push_back(write);
  plan_.blocks.insert(plan_.blocks.end(), sequence.blocks.begin(), sequence.blocks.end());
  plan_.sampled.push_back(
      {.row = static_cast<std::uint32_t>(plan_.tokens.size() - 1), .params = {}});
}

Result<StepOutputs> BenchRun::step() {
  plan_.block_width = blocks_of(shape_);
  plan_.freed_pages = pages_.take_freed();
  plan_.freed_blocks = blocks_.take_freed();
  auto outputs = stage_.executable().run_raw(plan_.inputs());
  plan_ = {};
  return outputs;
}

Status BenchRun::prefill(Sequence& sequence) {
  auto rest = std::span<const std::int32_t>(sequence.prompt).first(shape_.prompt_tokens);
  while (!rest.empty()) {
    const auto chunk = rest.first(std::min<std::size_t>(rest.size(), stage_.info().max_rows));
    TROUPE_ASSIGN(const PageRef write, pages_.acquire());
    add_segment(sequence, chunk, write);
    TROUPE_ASSIGN(const auto outputs, step());
    if (sequence.page != PageRef{}) {
      TROUPE_TRY(pages_.release(sequence.page));
    }
    sequence.page = write;
    sequence.position += static_cast<std::int32_t>(chunk.size());
    sequence.token = outputs.results.front().token;
    rest = rest.subspan(chunk.size());
  }
  return {};
}

Status BenchRun::decode() {
  for (auto& sequence : sequences_) {
    PageRef write = sequence.page;
    if (write == PageRef{}) {
      TROUPE_ASSIGN(write, pages_.acquire());
    }
    add_segment(sequence, std::span(&sequence.token, 1), write);
    sequence.page = write;
  }
  TROUPE_ASSIGN(const auto outputs, step());
  for (std::size_t i = 0; i < sequences_.size(); ++i) {
    sequences_[i].token = outputs.results[i].token;
    ++sequences_[i].position;
  }
  return {};
}

Result<BenchRun::Seconds> BenchRun::run() {
  TROUPE_TRY(begin());
  const Time start = clock_.now();
  for (auto& sequence : sequences_) {
    TROUPE_TRY(prefill(sequence));
  }
  const Time middle = clock_.now();
  for (std::uint32_t i = 0; i < shape_.output_tokens; ++i) {
    TROUPE_TRY(decode());
  }
  return Seconds{in_seconds(middle - start), in_seconds(clock_.now() - middle)};
}

}  // namespace troupe::deploy
