#include "runtime/text/tokenizer.h"

#include "tests/text/text_fixture.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <string>
#include <vector>

namespace troupe {
namespace {

using Ids = std::vector<std::uint32_t>;
using nlohmann::json;
using testing::TempDirectory;

std::shared_ptr<const Tokenizer> tiny(const std::string& config = "",
                                      const TokenizerOptions& options = {}) {
  return Tokenizer::parse(testing::tiny_tokenizer_json(), config, options).value();
}

std::string config_with(const json& added) {
  return json{{"added_tokens_decoder", added}}.dump();
}

TEST(Tokenizer, MergesAndSpellsBytes) {
  EXPECT_EQ(tiny()->encode("abcab a").value(), (Ids{257, 256, ' ', 'a'}));
}

TEST(Tokenizer, EncodesNothingToNothing) {
  EXPECT_EQ(tiny()->encode("").value(), Ids{});
}

TEST(Tokenizer, SplitsDigitsOneByOne) {
  EXPECT_EQ(testing::qwen3()->encode("2024").value().size(), 4U);
}

TEST(Tokenizer, ReplacesInvalidBytesBeforeEncoding) {
  EXPECT_EQ(tiny()->encode("a\xF0\x9F\x62").value(),
            tiny()
                ->encode("a\uFFFD"
                         "b")
                .value());
  EXPECT_EQ(testing::qwen3()->encode("\xC0\xAF").value(),
            testing::qwen3()->encode("\uFFFD\uFFFD").value());
}

TEST(Tokenizer, ComposesBeforeEncoding) {
  EXPECT_EQ(testing::qwen3()->encode("e\u0301").value(),
            testing::qwen3()->encode("\u00e9").value());
}

TEST(Tokenizer, ComposesNothingWithoutANormalizer) {
  json file = json::parse(testing::tiny_tokenizer_json());
  file["normalizer"] = nullptr;
  const auto tokenizer = Tokenizer::parse(file.dump()).value();

  EXPECT_EQ(tokenizer->encode("e\u0301").value(), (Ids{'e', 0xCC, 0x81}));
}

TEST(Tokenizer, FindsAddedTokensInRawText) {
  EXPECT_EQ(tiny()->encode("ab<|end|>c<think>").value(), (Ids{256, 258, 'c', 259}));
}

TEST(Tokenizer, TakesAddedTokensForPlainTextWhenTold) {
  const auto ids = tiny()->encode("<|end|>", {.parse_special = false}).value();

  EXPECT_EQ(ids, (Ids{'<', '|', 'e', 'n', 'd', '|', '>'}));
  EXPECT_EQ(tiny()->decode(ids), "<|end|>");
}

TEST(Tokenizer, NeverMakesAnAddedTokenOutOfPlainText) {
  for (const std::string text :
       {"<|im_start|>system\n<|im_end|>", "<think></think>", "<|endoftext|><tool_call>"}) {
    const auto ids = testing::qwen3()->encode(text, {.parse_special = false}).value();

    EXPECT_TRUE(std::none_of(
        ids.begin(), ids.end(), [](std::uint32_t id) { return testing::qwen3()->is_added(id); }));
    EXPECT_EQ(testing::qwen3()->decode(ids), text);
  }
}

TEST(Tokenizer, PrefersTheLongestAddedTokenOfTheLeftmost) {
  const auto tokenizer = tiny(config_with({{"300", {{"content", "<x"}}},
                                           {"301", {{"content", "<xyz"}}},
                                           {"302", {{"content", "xyz!"}}}}));

  EXPECT_EQ(tokenizer->encode("<xyz!").value(), (Ids{301, '!'}));
  EXPECT_EQ(tokenizer->encode("<xy").value(), (Ids{300, 'y'}));
  EXPECT_EQ(tokenizer->encode("<<xyz").value(), (Ids{'<', 301}));
}

TEST(Tokenizer, TakesTheUnionOfAddedTokens) {
  const auto tokenizer =
      tiny(config_with({{"258", {{"content", "<|end|>"}, {"special", true}}},
                        {"260", {{"content", "<|audio|>"}, {"special", true}}}}));

  EXPECT_EQ(tokenizer->vocab_size(), 261U);
  EXPECT_EQ(tokenizer->encode("<|audio|><|end|>").value(), (Ids{260, 258}));
  EXPECT_TRUE(tokenizer->is_special(260));
}

TEST(Tokenizer, KnowsSpecialFromAddedFromPlain) {
  EXPECT_TRUE(tiny()->is_special(258));
  EXPECT_TRUE(tiny()->is_added(258));
  EXPECT_FALSE(tiny()->is_special(259));
  EXPECT_TRUE(tiny()->is_added(259));
  EXPECT_FALSE(tiny()->is_added(257));
  EXPECT_FALSE(tiny()->is_added(100'000));
}

TEST(Tokenizer, FindsIdsByText) {
  EXPECT_EQ(tiny()->id_of("<|end|>"), 258U);
  EXPECT_EQ(tiny()->id_of("abc"), 257U);
  EXPECT_EQ(tiny()->id_of(" "), 32U);
  EXPECT_EQ(tiny()->id_of("nothing of the kind"), std::nullopt);
}

TEST(Tokenizer, KeepsTagsButNoControlTokensWhenSkipping) {
  EXPECT_EQ(tiny()->decode(Ids{'a', 258, 259, 'b'}, true), "a<think>b");
  EXPECT_EQ(tiny()->decode(Ids{'a', 258, 259, 'b'}), "a<|end|><think>b");
}

TEST(Tokenizer, DecodesIdsWithoutATokenToNothing) {
  EXPECT_EQ(tiny()->decode(Ids{'a', 260, 1U << 31U, 'b'}), "ab");
}

TEST(Tokenizer, KnowsTheQwen3Vocabulary) {
  const auto tokenizer = testing::qwen3();

  EXPECT_EQ(tokenizer->vocab_size(), 151669U);
  EXPECT_EQ(tokenizer->id_of("<|endoftext|>"), 151643U);
  EXPECT_EQ(tokenizer->id_of("<|im_end|>"), 151645U);
  EXPECT_TRUE(tokenizer->is_special(151645));
  EXPECT_EQ(tokenizer->id_of("</think>"), 151668U);
  EXPECT_FALSE(tokenizer->is_special(151668));
  EXPECT_EQ(tokenizer->pattern(), kQwen2Pattern);
}

TEST(Tokenizer, DecodesWhatItEncodedWithTheDemoModel) {
  const auto tokenizer =
      Tokenizer::open(std::filesystem::path(TROUPE_SOURCE_DIR) / "models/demo").value();
  const std::string text =
      "<|im_start|>user\nHow much is 60 + 39? \u00e9\u4e2d\U0001F642<|im_end|>\n";

  const auto ids = tokenizer->encode(text).value();

  EXPECT_EQ(tokenizer->vocab_size(), 4096U);
  EXPECT_EQ(ids.front(), 4094U);
  EXPECT_EQ(tokenizer->decode(ids), text);
}

TEST(Tokenizer, PrefersThePatternOfTheConfig) {
  const auto tokenizer = tiny(json{{"pretokenize_regex", "a|bc"}}.dump());

  EXPECT_EQ(tokenizer->pattern(), "a|bc");
  EXPECT_EQ(tokenizer->encode("abc").value(), (Ids{'a', 'b', 'c'}));
}

TEST(Tokenizer, PrefersThePatternOfTheOptionsToAll) {
  EXPECT_EQ(tiny(json{{"pretokenize_regex", "a|bc"}}.dump(), {.pattern = "[abc]+"})->pattern(),
            "[abc]+");
}

TEST(Tokenizer, GivesAFolderOfQwen35TheMarksPattern) {
  TempDirectory folder;
  folder.write("tokenizer.json", testing::tiny_tokenizer_json());

  folder.write(
      "config.json",
      R"({"model_type": "qwen3_5_moe", "text_config": {"model_type": "qwen3_5_moe_text"}})");
  EXPECT_EQ(Tokenizer::open(folder.path()).value()->pattern(), kQwen35Pattern);

  folder.write("config.json", R"({"model_type": "qwen3_next"})");
  EXPECT_EQ(Tokenizer::open(folder.path()).value()->pattern(), kQwen2Pattern);
}

TEST(Tokenizer, ReadsBothSpellingsOfMerges) {
  json file = json::parse(testing::tiny_tokenizer_json());
  file["model"]["merges"] = json::array({json::array({"a", "b"}), "ab c"});

  EXPECT_EQ(Tokenizer::parse(file.dump()).value()->encode("abc").value(), (Ids{257}));
}

// Quadratic code would take hours here; the time limit of the test is the proof.
TEST(Tokenizer, EncodesAMegabyteOfOneUnit) {
  for (const std::string unit :
       {"a", " ", "1", "e\u0301", "\u0301\u0323", "<|im_start", "'s", "\xFF"}) {
    std::string text;
    while (text.size() < 1'000'000) {
      text += unit;
    }

    EXPECT_GT(testing::qwen3_with_marks()->encode(text).value().size(), 1'000U) << unit;
  }
}

TEST(Tokenizer, DecodesAMegabyteItEncoded) {
  std::string text;
  while (text.size() < 1'000'000) {
    text += "The quick brown fox, 123 times: \u043f\u0440\u0438\u0432\u0435\u0442 \u4e16\u754c\n";
  }

  EXPECT_TRUE(testing::qwen3()->decode(testing::qwen3()->encode(text).value()) == text);
}

TEST(Tokenizer, RefusesATextOverItsLimit) {
  const std::string text(Tokenizer::kTextBytesMax + 1, 'a');

  EXPECT_EQ(tiny()->encode(text).error().message,
            "a text of 268435457 bytes cannot be encoded; the limit is 268435456");
}

}  // namespace
}  // namespace troupe
