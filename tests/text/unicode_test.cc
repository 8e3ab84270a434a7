#include "runtime/text/unicode.h"

#include <gtest/gtest.h>

#include <string>

namespace troupe {
namespace {

TEST(Unicode, ReplacesEachMaximalSubpartByOneCharacter) {
  // The example of the Unicode standard, section 3.9, table 3-8 and its neighbours.
  EXPECT_EQ(replace_invalid_utf8("\x61\xF1\x80\x80\xE1\x80\xC2\x62\x80\x63\x80\xBF\x64"),
            "a\uFFFD\uFFFD\uFFFD"
            "b\uFFFD"
            "c\uFFFD\uFFFD"
            "d");
}

TEST(Unicode, ReplacesOverlongFormsByteByByte) {
  EXPECT_EQ(replace_invalid_utf8("\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41"),
            "\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD"
            "A");
}

TEST(Unicode, ReplacesSurrogatesByteByByte) {
  EXPECT_EQ(replace_invalid_utf8("\xED\xA0\x80\xED\xBF\xBF\xED\xAF\x41"),
            "\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD"
            "A");
}

TEST(Unicode, ReplacesWhatIsAboveTheLastCodePoint) {
  EXPECT_EQ(replace_invalid_utf8("\xF4\x91\x92\x93\xFF\x41\x80\xBF\x42"),
            "\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD"
            "A\uFFFD\uFFFD"
            "B");
}

TEST(Unicode, ReplacesACharacterCutAtTheEndOnce) {
  EXPECT_EQ(replace_invalid_utf8("a\xF0\x9F\x99"), "a\uFFFD");
}

TEST(Unicode, KeepsWellFormedTextOfEveryLength) {
  const std::string text = "a\u00e9\u4e2d\U0001F642\U0010FFFF";

  EXPECT_TRUE(is_utf8(text));
  EXPECT_EQ(replace_invalid_utf8(text), text);
  EXPECT_FALSE(is_utf8(text.substr(0, text.size() - 1)));
}

TEST(Unicode, ComposesMarksInWhateverOrderTheyCome) {
  EXPECT_EQ(compose_nfc("q\u0307\u0323"), "q\u0323\u0307");
  EXPECT_EQ(compose_nfc("\u1e0b\u0323"), "\u1e0d\u0307");
}

TEST(Unicode, ComposesHangulAndLeavesExclusionsDecomposed) {
  EXPECT_EQ(compose_nfc("\u1100\u1161\u11a8"), "\uac01");
  EXPECT_EQ(compose_nfc("\u0958"), "\u0915\u093c");
}

// Exchanging neighbours would take 10^11 steps here.
TEST(Unicode, OrdersAMillionMarksAfterOneLetter) {
  std::string text = "a";
  std::string sorted = "a";
  for (int i = 0; i < 500'000; ++i) {
    text += "\u0301\u0323";
  }
  for (int i = 0; i < 500'000; ++i) {
    sorted += "\u0323";
  }
  for (int i = 0; i < 500'000; ++i) {
    sorted += "\u0301";
  }

  EXPECT_TRUE(compose_nfc(text) == compose_nfc(sorted));
}

TEST(Unicode, SpellsEveryByteAndReadsItBack) {
  for (int byte = 0; byte < 256; ++byte) {
    const std::string text = alphabet_of_byte(static_cast<std::uint8_t>(byte));
    EXPECT_EQ(bytes_of_alphabet(text), std::string(1, static_cast<char>(byte)));
  }
  EXPECT_EQ(alphabet_of_byte(' '), "\u0120");
  EXPECT_EQ(alphabet_of_byte('\n'), "\u010A");
  EXPECT_EQ(alphabet_of_byte(0xAD), "\u0143");
}

TEST(Unicode, ReadsNoBytesFromOtherCharacters) {
  EXPECT_EQ(bytes_of_alphabet("a b"), std::nullopt);
  EXPECT_EQ(bytes_of_alphabet("\u4e2d"), std::nullopt);
}

}  // namespace
}  // namespace troupe
