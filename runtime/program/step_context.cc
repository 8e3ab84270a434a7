#include "runtime/program/step_context.h"

#include <algorithm>
#include <string>
#include <utility>

namespace troupe {
namespace {

std::string of(std::uint64_t value) {
  return std::to_string(value);
}

std::uint32_t blocks_of(std::int32_t positions) {
  return (static_cast<std::uint32_t>(positions) + kBlockTokens - 1) / kBlockTokens;
}

}  // namespace

void StepContext::reserve(const StageInfo& info) {
  rows.reserve(info.max_rows);
  segments.reserve(info.max_segments);
  sampled.reserve(info.max_sampled);
  results.reserve(info.max_sampled);
  blocks.reserve(std::size_t{info.max_segments} *
                 blocks_of(static_cast<std::int32_t>(info.max_context)));
  values.reserve(info.max_values);
}

void StepContext::fill(const StepInputs& inputs,
                       std::span<const SampleResult> previous,
                       std::uint64_t key) {
  rows.clear();
  segments.clear();
  sampled.clear();
  blocks.clear();
  for (const SegmentInput& in : inputs.segments) {
    const auto segment = static_cast<std::uint32_t>(segments.size());
    const auto first = static_cast<std::uint32_t>(rows.size());
    segments.push_back({.first_row = first,
                        .rows = in.rows,
                        .read_page = in.read_page.index,
                        .block_row = in.block_row});
    for (std::uint32_t r = 0; r < in.rows; ++r) {
      rows.push_back({.token = inputs.tokens[first + r],
                      .position = in.first_position + static_cast<std::int32_t>(r),
                      .segment = segment,
                      .write_page = inputs.write_pages[first + r].index});
    }
  }
  for (const BlockRef& block : inputs.blocks) {
    blocks.push_back(block.index);
  }
  for (const SampledInput& in : inputs.sampled) {
    sampled.push_back({.row = in.row, .params = in.params});
    if (sampled.back().params.key == 0) {
      sampled.back().params.key = key;
    }
  }
  values.assign(inputs.values.begin(), inputs.values.end());
  results.assign(sampled.size(), SampleResult{});
  table = {.rows = rows,
           .segments = segments,
           .sampled = sampled,
           .blocks = blocks,
           .block_width = inputs.block_width,
           .values = values,
           .results = results,
           .previous = previous};
}

StepChecker::StepChecker(const StageInfo& info, std::uint32_t pages, std::uint32_t blocks)
    : info_(info),
      page_generations_(pages, 0),
      block_generations_(blocks, 0),
      page_writers_(pages, 0),
      block_writers_(blocks, 0) {}

Status StepChecker::check_page(PageRef page, const char* what, std::size_t index) const {
  if (page.index >= page_generations_.size()) {
    return error(Kind::kInvalid,
                 std::string(what) + " page of " + of(index) + " is " + of(page.index) +
                     ", but the stage has " + of(page_generations_.size()) + " pages");
  }
  if (page.generation < page_generations_[page.index]) {
    return error(Kind::kInvalid,
                 std::string(what) + " page of " + of(index) + ": page " + of(page.index) +
                     " generation " + of(page.generation) +
                     " is stale, the device has seen generation " +
                     of(page_generations_[page.index]));
  }
  return {};
}

Status StepChecker::check_block(BlockRef block, std::size_t segment) const {
  if (block.index >= block_generations_.size()) {
    return error(Kind::kInvalid,
                 "segment " + of(segment) + " names KV block " + of(block.index) +
                     ", but the stage has " + of(block_generations_.size()));
  }
  if (block.generation < block_generations_[block.index]) {
    return error(Kind::kInvalid,
                 "segment " + of(segment) + ": KV block " + of(block.index) + " generation " +
                     of(block.generation) + " is stale, the device has seen generation " +
                     of(block_generations_[block.index]));
  }
  return {};
}

Status StepChecker::check_segment(const StepInputs& inputs,
                                  std::size_t index,
                                  std::uint32_t first_row) {
  const SegmentInput& s = inputs.segments[index];
  const std::int64_t end = std::int64_t{s.first_position} + s.rows;
  if (s.rows == 0 || s.first_position < 0 || end > info_.max_context) {
    return error(Kind::kInvalid,
                 "segment " + of(index) + " has rows " + of(s.rows) + " from position " +
                     std::to_string(s.first_position) + "; a sequence has at most " +
                     of(info_.max_context) + " tokens");
  }
  TROUPE_TRY(check_page(s.read_page, "read", index));
  const std::uint64_t me = (stamp_ << 32) | index;
  for (std::uint32_t r = 0; r < s.rows; ++r) {
    const PageRef page = inputs.write_pages[first_row + r];
    if (page.index == kNoPage) {
      continue;
    }
    TROUPE_TRY(check_page(page, "write", first_row + r));
    const bool in_place = page.index == s.read_page.index;
    if (page.index == kZeroPage || (in_place && s.rows != 1) ||
        page_writers_[page.index] >> 32 == stamp_) {
      return error(Kind::kInvalid,
                   "row " + of(first_row + r) + " would write page " + of(page.index) +
                       (page.index == kZeroPage ? ", which is the zero page"
                        : in_place ? " in place in a segment of " + of(s.rows) + " rows"
                                   : ", which another row of this step writes"));
    }
    page_writers_[page.index] = me;
  }
  const std::uint32_t width = inputs.block_width;
  const std::uint32_t used = blocks_of(static_cast<std::int32_t>(end));
  if (used > width || (std::uint64_t{s.block_row} + 1) * width > inputs.blocks.size()) {
    return error(Kind::kInvalid,
                 "segment " + of(index) + " needs " + of(used) + " KV blocks in row " +
                     of(s.block_row) + " of a block table of " +
                     of(width == 0 ? 0 : inputs.blocks.size() / width) + " x " + of(width));
  }
  const std::uint32_t first_written = static_cast<std::uint32_t>(s.first_position) / kBlockTokens;
  for (std::uint32_t b = 0; b < used; ++b) {
    const BlockRef block = inputs.blocks[std::size_t{s.block_row} * width + b];
    TROUPE_TRY(check_block(block, index));
    if (b >= first_written) {
      if (block_writers_[block.index] >> 32 == stamp_) {
        return error(Kind::kInvalid,
                     "segment " + of(index) + " would write KV block " + of(block.index) +
                         ", which another segment of this step writes");
      }
      block_writers_[block.index] = me;
    }
  }
  return {};
}

Status StepChecker::check_segments(const StepInputs& inputs) {
  ++stamp_;
  std::uint32_t row = 0;
  for (std::size_t i = 0; i < inputs.segments.size(); ++i) {
    if (inputs.segments[i].rows > inputs.tokens.size() - row) {
      return error(Kind::kInvalid,
                   "segments up to " + of(i) + " have more rows than the " +
                       of(inputs.tokens.size()) + " tokens");
    }
    TROUPE_TRY(check_segment(inputs, i, row));
    row += inputs.segments[i].rows;
  }
  if (row != inputs.tokens.size()) {
    return error(Kind::kInvalid,
                 of(inputs.tokens.size()) + " tokens, but the segments have " + of(row) + " rows");
  }
  // A page that one segment writes may be read by that segment only (in place).
  for (std::size_t i = 0; i < inputs.segments.size(); ++i) {
    const std::uint64_t writer = page_writers_[inputs.segments[i].read_page.index];
    if (writer >> 32 == stamp_ && (writer & 0xffffffffU) != i) {
      return error(Kind::kInvalid,
                   "segment " + of(i) + " reads page " + of(inputs.segments[i].read_page.index) +
                       ", which segment " + of(writer & 0xffffffffU) + " of this step writes");
    }
  }
  return {};
}

Status StepChecker::check_rows(const StepInputs& inputs, std::uint32_t previous) const {
  for (std::size_t r = 0; r < inputs.tokens.size(); ++r) {
    const std::int32_t token = inputs.tokens[r];
    if (token >= 0 ? static_cast<std::uint32_t>(token) >= info_.vocab
                   : static_cast<std::uint32_t>(~token) >= previous) {
      return error(
          Kind::kInvalid,
          "token of row " + of(r) + " is " + std::to_string(token) + ": ids are 0 to " +
              of(info_.vocab - 1) +
              (previous > 0 ? ", -1 to -" + of(previous) + " mean sampled rows of the source ticket"
                            : ""));
    }
  }
  return {};
}

Status StepChecker::check_sampled(const StepInputs& inputs) const {
  std::int64_t last = -1;
  const std::size_t values = inputs.values.size();
  for (const SampledInput& s : inputs.sampled) {
    const SampleParams& p = s.params;
    if (s.row >= inputs.tokens.size() || std::int64_t{s.row} <= last) {
      return error(Kind::kInvalid,
                   "sampled row " + of(s.row) + ": sampled rows ascend and lie below " +
                       of(inputs.tokens.size()));
    }
    last = s.row;
    if (p.top_logprobs > kTopLogprobs) {
      return error(Kind::kInvalid,
                   "sampled row " + of(s.row) + " asks for " + of(p.top_logprobs) +
                       " alternatives, at most " + of(kTopLogprobs) + " are reported");
    }
    if (p.forced >= 0 && static_cast<std::uint32_t>(p.forced) >= info_.vocab) {
      return error(Kind::kInvalid,
                   "sampled row " + of(s.row) + " forces token " + std::to_string(p.forced) +
                       ": ids are 0 to " + of(info_.vocab - 1));
    }
    const auto bad = [values](std::uint32_t begin, std::uint32_t end) {
      return begin > end || end > values;
    };
    if (bad(p.prompt_begin, p.prompt_end) || bad(p.generated_begin, p.generated_end) ||
        bad(p.bias_begin, p.bias_end)) {
      return error(
          Kind::kInvalid,
          "sampled row " + of(s.row) + " names list entries beyond the " + of(values) + " given");
    }
  }
  for (const TokenValue& value : inputs.values) {
    if (value.token >= info_.vocab) {
      return error(Kind::kInvalid,
                   "a sampling list names token " + of(value.token) + ": ids are 0 to " +
                       of(info_.vocab - 1));
    }
  }
  return {};
}

Status StepChecker::check(const StepInputs& inputs, std::uint32_t previous) {
  if (inputs.tokens.empty() || inputs.tokens.size() > info_.max_rows || inputs.segments.empty() ||
      inputs.segments.size() > info_.max_segments || inputs.sampled.size() > info_.max_sampled ||
      inputs.values.size() > info_.max_values) {
    return error(Kind::kInvalid,
                 "a step of " + of(inputs.tokens.size()) + " rows, " + of(inputs.segments.size()) +
                     " segments, " + of(inputs.sampled.size()) + " sampled rows and " +
                     of(inputs.values.size()) + " list entries; the stage takes 1 to " +
                     of(info_.max_rows) + ", 1 to " + of(info_.max_segments) + ", at most " +
                     of(info_.max_sampled) + " and " + of(info_.max_values));
  }
  if (inputs.write_pages.size() != inputs.tokens.size()) {
    return error(
        Kind::kInvalid,
        of(inputs.write_pages.size()) + " write pages for " + of(inputs.tokens.size()) + " rows");
  }
  if (inputs.block_width > blocks_of(static_cast<std::int32_t>(info_.max_context))) {
    return error(Kind::kInvalid,
                 "a block table " + of(inputs.block_width) +
                     " blocks wide; a sequence has at most " +
                     of(blocks_of(static_cast<std::int32_t>(info_.max_context))));
  }
  if (inputs.blocks.size() > std::size_t{info_.max_segments} * inputs.block_width) {
    return error(Kind::kInvalid,
                 "a block table of " + of(inputs.blocks.size()) + " entries for at most " +
                     of(info_.max_segments) + " rows of " + of(inputs.block_width));
  }
  TROUPE_TRY(check_segments(inputs));
  TROUPE_TRY(check_rows(inputs, previous));
  return check_sampled(inputs);
}

void StepChecker::accept(const StepInputs& inputs) {
  const auto see = [](std::vector<std::uint32_t>& seen, auto ref) {
    if (ref.index < seen.size()) {
      seen[ref.index] = std::max(seen[ref.index], ref.generation);
    }
  };
  for (const SegmentInput& segment : inputs.segments) {
    see(page_generations_, segment.read_page);
    const auto used = blocks_of(segment.first_position + static_cast<std::int32_t>(segment.rows));
    for (std::uint32_t b = 0; b < used; ++b) {
      see(block_generations_,
          inputs.blocks[std::size_t{segment.block_row} * inputs.block_width + b]);
    }
  }
  for (const PageRef& page : inputs.write_pages) {
    see(page_generations_, page);
  }
}

}  // namespace troupe
