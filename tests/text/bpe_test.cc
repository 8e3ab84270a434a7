#include "runtime/text/bpe.h"

#include "runtime/base/sources.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <string>
#include <vector>

namespace troupe {
namespace {

using Ids = std::vector<std::uint32_t>;

std::array<std::uint32_t, 256> identity() {
  std::array<std::uint32_t, 256> ids{};
  std::iota(ids.begin(), ids.end(), 0U);
  return ids;
}

Ids encode(const std::vector<Merge>& merges, std::string_view piece) {
  Ids out;
  BytePairEncoder(identity(), merges).encode(piece, out);
  return out;
}

// The definition, word for word: look for the best pair, merge its first place, begin again.
Ids encode_by_definition(const std::vector<Merge>& merges, std::string_view piece) {
  Ids ids(piece.size());
  std::transform(
      piece.begin(), piece.end(), ids.begin(), [](char c) { return static_cast<std::uint8_t>(c); });
  for (;;) {
    std::size_t best_rank = merges.size();
    std::size_t best_at = 0;
    for (std::size_t at = 0; at + 1 < ids.size(); ++at) {
      for (std::size_t rank = 0; rank < best_rank; ++rank) {
        if (merges[rank].left == ids[at] && merges[rank].right == ids[at + 1]) {
          best_rank = rank;
          best_at = at;
        }
      }
    }
    if (best_rank == merges.size()) {
      return ids;
    }
    ids[best_at] = merges[best_rank].result;
    ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(best_at) + 1);
  }
}

TEST(BytePairEncoder, GivesNothingForNothing) {
  EXPECT_EQ(encode({}, ""), Ids{});
}

TEST(BytePairEncoder, SpellsBytesWhereNothingMerges) {
  EXPECT_EQ(encode({}, "ab"), (Ids{'a', 'b'}));
}

TEST(BytePairEncoder, MergesTheLowestRankFirst) {
  const std::vector<Merge> merges{{'b', 'c', 300}, {'a', 'b', 301}};

  EXPECT_EQ(encode(merges, "abc"), (Ids{'a', 300}));
}

TEST(BytePairEncoder, MergesTheLeftmostOfEquals) {
  const std::vector<Merge> merges{{'a', 'a', 300}};

  EXPECT_EQ(encode(merges, "aaa"), (Ids{300, 'a'}));
}

TEST(BytePairEncoder, MergesWhatMergingMade) {
  const std::vector<Merge> merges{{'a', 'a', 300}, {300, 300, 301}, {301, 'a', 302}};

  EXPECT_EQ(encode(merges, "aaaaaaaaa"), (Ids{301, 302}));
}

TEST(BytePairEncoder, LetsTheLaterOfTwoEqualPairsCount) {
  const std::vector<Merge> merges{{'a', 'b', 300}, {'b', 'c', 301}, {'a', 'b', 300}};

  EXPECT_EQ(encode(merges, "abc"), (Ids{'a', 301}));
}

TEST(BytePairEncoder, FollowsItsDefinitionOnRandomMergesAndTexts) {
  Rng rng(7);
  for (int round = 0; round < 300; ++round) {
    std::vector<Merge> merges;
    std::uint32_t next = 256;
    const auto symbol = [&rng, &next]() {
      const std::uint64_t pick = rng.below(4 + next - 256);
      return static_cast<std::uint32_t>(pick < 4 ? 'a' + pick : 256 + pick - 4);
    };
    for (std::uint64_t i = rng.below(24); i > 0; --i) {
      const std::uint32_t left = symbol();
      const std::uint32_t right = symbol();
      const bool known =
          std::any_of(merges.begin(), merges.end(), [left, right](const Merge& merge) {
            return merge.left == left && merge.right == right;
          });
      if (!known) {
        merges.push_back({left, right, next++});
      }
    }
    std::string text;
    for (std::uint64_t i = rng.below(60); i > 0; --i) {
      text.push_back(static_cast<char>('a' + rng.below(4)));
    }

    EXPECT_EQ(encode(merges, text), encode_by_definition(merges, text))
        << "round " << round << ", text " << text;
  }
}

// The definition would take 10^12 steps.
TEST(BytePairEncoder, MergesAMillionEqualBytes) {
  const std::vector<Merge> merges{{'a', 'a', 300}, {300, 300, 301}};

  EXPECT_EQ(encode(merges, std::string(1'000'000, 'a')).size(), 250'000U);
}

}  // namespace
}  // namespace troupe
