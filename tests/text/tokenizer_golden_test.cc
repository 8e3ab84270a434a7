// Tokenizer and detokeniser against Hugging Face's own answers (data/README.md).
#include "runtime/text/detokenizer.h"
#include "runtime/text/splitter.h"
#include "runtime/text/tokenizer.h"
#include "runtime/text/unicode.h"
#include "tests/text/text_fixture.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <string>
#include <vector>

namespace troupe {
namespace {

using nlohmann::json;
using Ids = std::vector<std::uint32_t>;
using Texts = std::vector<std::string>;

const json& golden() {
  static const json cases =
      json::parse(testing::read_file(testing::data_path("tokenizer_golden.json")));
  return cases;
}

// Names a case in a failure without printing 20,000 characters.
std::string label(const json& entry) {
  return entry.at("category").get<std::string>() + ": " + entry.dump().substr(0, 160);
}

Texts pieces_of(const Splitter& splitter, const std::string& text) {
  const std::string composed = compose_nfc(text);
  std::vector<std::string_view> views;
  EXPECT_TRUE(splitter.split(composed, views));
  return {views.begin(), views.end()};
}

TEST(TokenizerGolden, HasAllItsCases) {
  EXPECT_EQ(golden().at("encode").size(), 411U);
  EXPECT_EQ(golden().at("decode").size(), 172U);
  EXPECT_EQ(golden().at("marks_regex").get<std::string>(), kQwen35Pattern);
}

TEST(TokenizerGolden, EncodesEveryTextLikeTheReference) {
  for (const json& entry : golden().at("encode")) {
    const auto ids = testing::qwen3()->encode(entry.at("text").get<std::string>()).value();
    EXPECT_EQ(ids, entry.at("ids").get<Ids>()) << label(entry);
  }
}

TEST(TokenizerGolden, EncodesEveryTextLikeTheReferenceWithTheMarksPattern) {
  for (const json& entry : golden().at("encode")) {
    const auto ids =
        testing::qwen3_with_marks()->encode(entry.at("text").get<std::string>()).value();
    EXPECT_EQ(ids, entry.value("ids_marks", entry.at("ids")).get<Ids>()) << label(entry);
  }
}

TEST(TokenizerGolden, SplitsEveryTextLikeTheReference) {
  const auto splitter = Splitter::open(testing::qwen3()->pattern()).value();
  for (const json& entry : golden().at("encode")) {
    if (entry.contains("pieces")) {
      EXPECT_EQ(pieces_of(*splitter, entry.at("text")), entry.at("pieces").get<Texts>())
          << label(entry);
    }
  }
}

TEST(TokenizerGolden, SplitsEveryTextLikeTheReferenceWithTheMarksPattern) {
  const auto splitter = Splitter::open(kQwen35Pattern).value();
  for (const json& entry : golden().at("encode")) {
    if (entry.contains("pieces")) {
      EXPECT_EQ(pieces_of(*splitter, entry.at("text")),
                entry.value("pieces_marks", entry.at("pieces")).get<Texts>())
          << label(entry);
    }
  }
}

TEST(TokenizerGolden, DecodesEveryIdList) {
  for (const json& entry : golden().at("decode")) {
    const auto ids = entry.at("ids").get<Ids>();
    EXPECT_EQ(testing::qwen3()->decode(ids), entry.at("text").get<std::string>()) << label(entry);
    EXPECT_EQ(testing::qwen3()->decode(ids, true), entry.at("text_skip_special").get<std::string>())
        << label(entry);
  }
}

TEST(TokenizerGolden, KnowsTheBytesOfEveryId) {
  for (const json& entry : golden().at("decode")) {
    Texts bytes;
    for (const std::uint32_t id : entry.at("ids").get<Ids>()) {
      std::string hex;
      for (const char c : testing::qwen3()->bytes(id)) {
        constexpr std::string_view kDigits = "0123456789abcdef";
        const auto byte = static_cast<std::uint8_t>(c);
        hex += {kDigits[byte / 16], kDigits[byte % 16]};
      }
      bytes.push_back(hex);
    }
    EXPECT_EQ(bytes, entry.at("bytes").get<Texts>()) << label(entry);
  }
}

TEST(TokenizerGolden, StreamsEveryIdListLikeTheReference) {
  for (const json& entry : golden().at("decode")) {
    Detokenizer detokenizer(testing::qwen3());
    Texts shown;
    for (const std::uint32_t id : entry.at("ids").get<Ids>()) {
      shown.push_back(detokenizer.push(id));
    }
    shown.push_back(detokenizer.flush());
    EXPECT_EQ(shown, entry.at("stream").get<Texts>()) << label(entry);
  }
}

}  // namespace
}  // namespace troupe
