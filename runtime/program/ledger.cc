#include "runtime/program/ledger.h"

#include "kernels/ops.h"

#include <algorithm>
#include <array>
#include <limits>

namespace troupe {
namespace {

std::string line(const std::string& what, std::uint64_t bytes, const std::string& how) {
  std::string text = bytes_text(bytes);
  text.insert(0, text.size() < 12 ? 12 - text.size() : 0, ' ');
  return "  " + text + "  " + what + (how.empty() ? "" : " (" + how + ")") + "\n";
}

}  // namespace

std::string bytes_text(std::uint64_t bytes) {
  constexpr std::array<const char*, 4> kUnits = {"KiB", "MiB", "GiB", "TiB"};
  if (bytes < 1024) {
    return std::to_string(bytes) + " bytes";
  }
  std::size_t unit = 0;
  std::uint64_t whole = bytes;
  std::uint64_t rest = 0;
  while (true) {
    rest = whole % 1024;
    whole /= 1024;
    if (whole < 1024 || unit + 1 == kUnits.size()) {
      break;
    }
    ++unit;
  }
  return std::to_string(whole) + "." + std::to_string(rest * 10 / 1024) + " " + kUnits[unit];
}

std::string MemoryLedger::text() const {
  const auto times = [](std::uint64_t count, std::uint64_t bytes) {
    return std::to_string(count) + " x " + bytes_text(bytes);
  };
  std::string out = "memory\n";
  out += line("weights", weight_bytes, "");
  out += line(
      "state pages", page_bytes * pages, times(pages, page_bytes) + ", page 0 is the zero page");
  out += line("KV blocks",
              block_bytes * blocks,
              times(blocks, block_bytes) + ", " + std::to_string(kBlockTokens) + " tokens each");
  out += line("workspaces", workspace_bytes * contexts, times(contexts, workspace_bytes));
  out += line(
      "in all", total(), available_bytes == 0 ? "" : bytes_text(available_bytes) + " available");
  return out;
}

Result<MemoryLedger> make_ledger(const ModelConfig& config,
                                 const StageOptions& options,
                                 const WeightLayout& weights,
                                 const StateLayout& states,
                                 std::uint64_t workspace_bytes,
                                 std::uint64_t available_bytes) {
  MemoryLedger ledger{.weight_bytes = weights.bytes,
                      .page_bytes = states.page_bytes,
                      .block_bytes = states.block_bytes(),
                      .workspace_bytes = workspace_bytes,
                      .contexts = options.contexts,
                      .available_bytes = available_bytes};
  constexpr std::uint32_t kLeastPages = 3;  // the zero page, one to read and one to write
  const std::uint32_t full_context =
      (config.max_position_embeddings + kBlockTokens - 1) / kBlockTokens;
  const std::uint64_t fixed =
      weights.bytes + workspace_bytes * options.contexts + options.reserve_bytes;
  const std::uint64_t room = available_bytes == 0      ? std::numeric_limits<std::uint64_t>::max()
                             : available_bytes > fixed ? available_bytes - fixed
                                                       : 0;
  const auto most = [](std::uint64_t budget, std::uint64_t each, std::uint64_t wanted) {
    return static_cast<std::uint32_t>(each == 0 ? wanted : std::min(budget / each, wanted));
  };
  ledger.pages =
      options.pages != 0
          ? options.pages + 1
          : std::max(
                kLeastPages,
                most(room / 4, ledger.page_bytes, 2 * std::uint64_t{options.max_segments} + 1));
  ledger.blocks =
      options.blocks != 0
          ? options.blocks
          : std::max<std::uint32_t>(
                1, most(room / 2, ledger.block_bytes, std::max<std::uint64_t>(full_context, 1024)));
  if (available_bytes != 0 && ledger.total() > available_bytes) {
    return error(
        Kind::kOverloaded,
        "the model does not fit: " + bytes_text(ledger.total()) + " needed, " +
            bytes_text(available_bytes) +
            " available; use fewer rows, pages or blocks, or a machine with more memory\n" +
            ledger.text());
  }
  return ledger;
}

}  // namespace troupe
