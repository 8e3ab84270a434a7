#include "runtime/serve/stop_strings.h"

#include "runtime/base/sources.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace troupe {
namespace {

std::string all_of(StopMatcher& matcher, const std::vector<std::string>& pieces) {
  std::string out;
  for (const auto& piece : pieces) {
    out += matcher.push(piece);
  }
  return out + matcher.flush();
}

TEST(StopMatcher, PassesTextWithoutStopStrings) {
  StopMatcher matcher({});

  EXPECT_EQ(matcher.push("hello"), "hello");
  EXPECT_EQ(matcher.flush(), "");
}

TEST(StopMatcher, HoldsBackWhatMayBecomeAStopString) {
  StopMatcher matcher({"END"});

  EXPECT_EQ(matcher.push("the E"), "the ");
  EXPECT_EQ(matcher.push("N"), "");
  EXPECT_EQ(matcher.push("ORMOUS"), "ENORMOUS");
  EXPECT_EQ(matcher.push("EN"), "");
  EXPECT_EQ(matcher.flush(), "EN");
  EXPECT_FALSE(matcher.matched());
}

TEST(StopMatcher, CutsTheTextBeforeTheStopStringAndStaysSilent) {
  StopMatcher matcher({"\n\n"});

  EXPECT_EQ(matcher.push("one\n"), "one");
  EXPECT_EQ(matcher.push("\ntwo"), "");
  EXPECT_TRUE(matcher.matched());
  EXPECT_EQ(matcher.push("three"), "");
  EXPECT_EQ(matcher.flush(), "");
}

TEST(StopMatcher, FindsAStopStringThatStartsInsideAFailedOne) {
  StopMatcher matcher({"aab"});

  EXPECT_EQ(all_of(matcher, {"aa", "ab", "c"}), "a");
  EXPECT_TRUE(matcher.matched());
}

TEST(StopMatcher, TakesTheLongestOfThoseThatEndTogether) {
  StopMatcher matcher({"c", "abc"});

  EXPECT_EQ(all_of(matcher, {"xab", "c"}), "x");
}

TEST(StopMatcher, GivesTheSameAnswerHoweverTheTextIsCut) {
  Rng rng(7);
  for (int round = 0; round < 500; ++round) {
    std::vector<std::string> stops;
    for (std::uint64_t i = rng.below(3) + 1; i > 0; --i) {
      stops.emplace_back();
      for (std::uint64_t n = rng.below(4) + 1; n > 0; --n) {
        stops.back() += static_cast<char>('a' + rng.below(2));
      }
    }
    std::string text;
    for (int i = 0; i < 24; ++i) {
      text += static_cast<char>('a' + rng.below(3));
    }
    std::vector<std::string> pieces;
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t length = rng.below(5) + 1;
      pieces.push_back(text.substr(at, length));
      at += length;
    }
    // By definition: the first byte that completes a stop string ends the text.
    std::string expected = text;
    for (std::size_t end = 1; end <= text.size() && expected == text; ++end) {
      std::size_t cut = 0;
      for (const auto& stop : stops) {
        if (stop.size() <= end && text.compare(end - stop.size(), stop.size(), stop) == 0) {
          cut = std::max(cut, stop.size());
        }
      }
      expected = cut > 0 ? text.substr(0, end - cut) : text;
    }
    StopMatcher matcher(stops);

    ASSERT_EQ(all_of(matcher, pieces), expected) << text;
  }
}

}  // namespace
}  // namespace troupe
