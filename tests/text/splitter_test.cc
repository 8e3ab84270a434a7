#include "runtime/text/splitter.h"

#include "runtime/text/tokenizer.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {
namespace {

using Texts = std::vector<std::string>;

Texts split(std::string_view pattern, std::string_view text) {
  std::vector<std::string_view> pieces;
  EXPECT_TRUE(Splitter::open(pattern).value()->split(text, pieces));
  return {pieces.begin(), pieces.end()};
}

TEST(Splitter, KeepsWhatThePatternDoesNotMatch) {
  EXPECT_EQ(split("b+", "abbcbd"), (Texts{"a", "bb", "c", "b", "d"}));
}

TEST(Splitter, CountsNoEmptyMatches) {
  EXPECT_EQ(split("b*", "aba"), (Texts{"a", "b", "a"}));
}

TEST(Splitter, GivesBackOneSpaceBeforeAWord) {
  EXPECT_EQ(split(kQwen2Pattern, "a   b"), (Texts{"a", "  ", " b"}));
}

// U+180E left White_Space in Unicode 6.3; it splits off as a mark without its neighbours.
TEST(Splitter, TakesNoMongolianVowelSeparatorForASpace) {
  EXPECT_EQ(split(R"(\s+)", "a\u180E b"), (Texts{"a\u180E", " ", "b"}));
  EXPECT_EQ(split(R"([\s]+)", "a\u180E b"), (Texts{"a\u180E", " ", "b"}));
  EXPECT_EQ(split(R"(\S+)", "a\u180E b"), (Texts{"a\u180E", " ", "b"}));
}

TEST(Splitter, TakesEveryOtherWhiteSpaceForASpace) {
  const std::string spaces =
      "\t\n\v\f\r \u0085\u00A0\u1680\u2000\u200A\u2028\u2029\u202F\u205F\u3000";

  EXPECT_EQ(split(R"(\s+)", "a" + spaces + "b"), (Texts{"a", spaces, "b"}));
}

TEST(Splitter, NamesWhereAPatternIsBroken) {
  const auto splitter = Splitter::open("a|(b");

  ASSERT_FALSE(splitter);
  EXPECT_EQ(splitter.error().message, "missing closing parenthesis, near \"a|(b\"");
}

TEST(Splitter, RefusesAnEmptyPattern) {
  EXPECT_EQ(Splitter::open("").error().message, "a pattern of 0 bytes; expected 1 to 16384");
}

TEST(Splitter, StopsAPatternThatBacktracksWithoutEnd) {
  std::vector<std::string_view> pieces;

  const auto status = Splitter::open("(x+x+)+[yz]").value()->split(std::string(64, 'x'), pieces);

  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().message,
            "splitting 64 bytes of text failed at byte 0: match limit exceeded; the model's "
            "pre-tokenizer pattern is at "
            "fault");
}

TEST(Splitter, AddsUpToTheTextForLongRunsOfEveryKind) {
  for (const std::string unit :
       {"a", " ", "\n", " \n", "1", "!", "\u00e9", "\u0e01\u0e33", "\U0001F642", "\r\n", "'s"}) {
    std::string text;
    while (text.size() < 1'000'000) {
      text += unit;
    }
    std::vector<std::string_view> pieces;

    ASSERT_TRUE(Splitter::open(kQwen35Pattern).value()->split(text, pieces)) << unit;

    EXPECT_EQ(
        std::accumulate(pieces.begin(),
                        pieces.end(),
                        std::size_t{0},
                        [](std::size_t sum, std::string_view piece) { return sum + piece.size(); }),
        text.size());
  }
}

}  // namespace
}  // namespace troupe
