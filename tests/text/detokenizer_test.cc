#include "runtime/text/detokenizer.h"

#include "runtime/base/sources.h"
#include "runtime/text/unicode.h"
#include "tests/text/text_fixture.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace troupe {
namespace {

std::shared_ptr<const Tokenizer> tiny() {
  static const auto tokenizer = Tokenizer::parse(testing::tiny_tokenizer_json()).value();
  return tokenizer;
}

TEST(Detokenizer, HoldsACharacterUntilItIsWhole) {
  Detokenizer detokenizer(tiny());

  EXPECT_EQ(detokenizer.push(0xF0), "");
  EXPECT_EQ(detokenizer.push(0x9F), "");
  EXPECT_EQ(detokenizer.push(0x99), "");
  EXPECT_EQ(detokenizer.push(0x82), "\U0001F642");
  EXPECT_EQ(detokenizer.flush(), "");
}

TEST(Detokenizer, GivesUpACharacterThatWillNotBecomeWhole) {
  Detokenizer detokenizer(tiny());

  EXPECT_EQ(detokenizer.push(0xF0), "");
  EXPECT_EQ(detokenizer.push(0x9F), "");
  EXPECT_EQ(detokenizer.push('a'), "\uFFFDa");
}

TEST(Detokenizer, FlushesAnIncompleteCharacterOnce) {
  Detokenizer detokenizer(tiny());

  EXPECT_EQ(detokenizer.push(0xE4), "");
  EXPECT_EQ(detokenizer.push(0xB8), "");
  EXPECT_EQ(detokenizer.flush(), "\uFFFD");
  EXPECT_EQ(detokenizer.flush(), "");
}

TEST(Detokenizer, LeavesOutSpecialTokensButNotThinkTags) {
  Detokenizer detokenizer(tiny(), /*skip_special=*/true);

  EXPECT_EQ(detokenizer.push(258), "");
  EXPECT_EQ(detokenizer.push(259), "<think>");
}

TEST(Detokenizer, ShowsSpecialTokensUnlessToldOtherwise) {
  Detokenizer detokenizer(tiny());

  EXPECT_EQ(detokenizer.push(258), "<|end|>");
}

TEST(Detokenizer, ShowsNothingForAnIdWithoutAToken) {
  Detokenizer detokenizer(tiny());

  EXPECT_EQ(detokenizer.push(260), "");
  EXPECT_EQ(detokenizer.push(4'000'000'000), "");
}

TEST(Detokenizer, AddsUpToDecodeOnRandomIdsAndNeverSplitsACharacter) {
  Rng rng(3);
  for (int round = 0; round < 500; ++round) {
    Detokenizer detokenizer(testing::qwen3());
    std::vector<std::uint32_t> ids;
    std::string shown;
    for (std::uint64_t i = 1 + rng.below(30); i > 0; --i) {
      ids.push_back(static_cast<std::uint32_t>(rng.below(round % 2 == 0 ? 256 : 152'000)));
      const std::string text = detokenizer.push(ids.back());
      EXPECT_TRUE(is_utf8(text));
      shown += text;
    }
    shown += detokenizer.flush();

    EXPECT_EQ(shown, testing::qwen3()->decode(ids)) << "round " << round;
  }
}

}  // namespace
}  // namespace troupe
