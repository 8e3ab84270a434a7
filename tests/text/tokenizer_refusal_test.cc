// A model directory may hold anything. Each test bends one field of a good file and expects the
// exact words.
#include "runtime/text/tokenizer.h"
#include "tests/text/text_fixture.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <string>

namespace troupe {
namespace {

using nlohmann::json;

json good() {
  return json::parse(testing::tiny_tokenizer_json());
}

std::string refusal(const json& file, const std::string& config = "") {
  const auto tokenizer = Tokenizer::parse(file.dump(), config);
  return tokenizer ? "accepted" : tokenizer.error().message;
}

Kind kind_of_refusal(const json& file) {
  return Tokenizer::parse(file.dump()).error().kind;
}

json& split_of(json& file) {
  return file["pre_tokenizer"]["pretokenizers"][0];
}

TEST(TokenizerRefusal, NamesTheByteOfBrokenJson) {
  EXPECT_EQ(Tokenizer::parse("{\"model\": ").error().message,
            "tokenizer.json: the file is not valid JSON at byte 11");
}

TEST(TokenizerRefusal, NamesAMissingFile) {
  const testing::TempDirectory folder;

  EXPECT_EQ(
      Tokenizer::open(folder.path()).error().message,
      (folder.path() / "tokenizer.json").string() + ": cannot be read: No such file or directory");
}

TEST(TokenizerRefusal, AMissingModel) {
  json file = good();
  file.erase("model");

  EXPECT_EQ(refusal(file), "tokenizer.json: model is missing; expected an object");
  EXPECT_EQ(kind_of_refusal(file), Kind::kInvalid);
}

TEST(TokenizerRefusal, AnotherModelType) {
  json file = good();
  file["model"]["type"] = "Unigram";

  EXPECT_EQ(refusal(file), "tokenizer.json: model.type is \"Unigram\"; expected \"BPE\"");
  EXPECT_EQ(kind_of_refusal(file), Kind::kUnsupported);
}

TEST(TokenizerRefusal, ByteFallback) {
  json file = good();
  file["model"]["byte_fallback"] = true;

  EXPECT_EQ(refusal(file), "tokenizer.json: model.byte_fallback is true; expected false");
}

TEST(TokenizerRefusal, Dropout) {
  json file = good();
  file["model"]["dropout"] = 0.1;

  EXPECT_EQ(refusal(file), "tokenizer.json: model.dropout is 0.1; expected null");
}

TEST(TokenizerRefusal, ASubwordPrefix) {
  json file = good();
  file["model"]["continuing_subword_prefix"] = "##";

  EXPECT_EQ(refusal(file),
            "tokenizer.json: model.continuing_subword_prefix is \"##\"; expected null");
}

TEST(TokenizerRefusal, AnotherNormalizer) {
  json file = good();
  file["normalizer"]["type"] = "NFKC";

  EXPECT_EQ(refusal(file),
            "tokenizer.json: normalizer.type is \"NFKC\"; expected \"NFC\" or no normalizer");
  EXPECT_EQ(kind_of_refusal(file), Kind::kUnsupported);
}

TEST(TokenizerRefusal, AMissingPreTokenizer) {
  json file = good();
  file["pre_tokenizer"] = nullptr;

  EXPECT_EQ(refusal(file),
            "tokenizer.json: pre_tokenizer is missing; expected a Sequence of Split and ByteLevel");
}

TEST(TokenizerRefusal, AnotherPreTokenizer) {
  json file = good();
  file["pre_tokenizer"]["type"] = "Metaspace";

  EXPECT_EQ(refusal(file),
            "tokenizer.json: pre_tokenizer.type is \"Metaspace\"; expected \"Sequence\" of Split "
            "and ByteLevel");
}

TEST(TokenizerRefusal, AThirdPreTokenizerStep) {
  json file = good();
  file["pre_tokenizer"]["pretokenizers"].push_back({{"type", "Digits"}});

  EXPECT_EQ(refusal(file),
            "tokenizer.json: pre_tokenizer.pretokenizers is a list of 3; expected a list of 2: "
            "Split, ByteLevel");
}

TEST(TokenizerRefusal, AnotherSplitBehavior) {
  json file = good();
  split_of(file)["behavior"] = "Removed";

  EXPECT_EQ(refusal(file),
            "tokenizer.json: pre_tokenizer.pretokenizers[0].behavior is \"Removed\"; expected "
            "\"Isolated\"");
}

TEST(TokenizerRefusal, APatternThatIsNoRegex) {
  json file = good();
  split_of(file)["pattern"] = {{"String", " "}};

  EXPECT_EQ(
      refusal(file),
      "tokenizer.json: pre_tokenizer.pretokenizers[0].pattern.Regex is missing; expected text");
}

TEST(TokenizerRefusal, ARegexThatDoesNotCompile) {
  json file = good();
  split_of(file)["pattern"]["Regex"] = "\\p{L}+|[a-";

  EXPECT_EQ(refusal(file),
            "tokenizer.json: the pre-tokenizer pattern is no regular expression: missing "
            "terminating ] for character "
            "class, near \"{L}+|[a-\"");
}

TEST(TokenizerRefusal, AddedPrefixSpaces) {
  json file = good();
  file["pre_tokenizer"]["pretokenizers"][1]["add_prefix_space"] = true;

  EXPECT_EQ(
      refusal(file),
      "tokenizer.json: pre_tokenizer.pretokenizers[1].add_prefix_space is true; expected false");
}

TEST(TokenizerRefusal, AnotherDecoder) {
  json file = good();
  file["decoder"]["type"] = "WordPiece";

  EXPECT_EQ(refusal(file), "tokenizer.json: decoder.type is \"WordPiece\"; expected \"ByteLevel\"");
}

TEST(TokenizerRefusal, APostProcessorThatAddsTokens) {
  json file = good();
  file["post_processor"] = {{"type", "TemplateProcessing"}};

  EXPECT_EQ(refusal(file),
            "tokenizer.json: post_processor.type is \"TemplateProcessing\"; expected \"ByteLevel\" "
            "or none: no tokens "
            "are added around a text");
}

TEST(TokenizerRefusal, AVocabularyThatIsAList) {
  json file = good();
  file["model"]["vocab"] = json::array({"a"});

  EXPECT_EQ(refusal(file), "tokenizer.json: model.vocab is a list of 1; expected an object");
}

TEST(TokenizerRefusal, ANegativeId) {
  json file = good();
  file["model"]["vocab"]["zz"] = -1;

  EXPECT_EQ(refusal(file),
            "tokenizer.json: model.vocab.zz is -1; expected an integer from 0 to 4194303");
}

TEST(TokenizerRefusal, AnIdThatWouldTakeAllMemory) {
  json file = good();
  file["model"]["vocab"]["zz"] = 4'000'000'000;

  EXPECT_EQ(refusal(file),
            "tokenizer.json: model.vocab.zz is 4000000000; expected an integer from 0 to 4194303");
}

TEST(TokenizerRefusal, TwoTokensWithOneId) {
  json file = good();
  file["model"]["vocab"]["zz"] = 257;

  EXPECT_EQ(refusal(file),
            "tokenizer.json: model.vocab.zz is 257, and so is another token's; ids must differ");
}

TEST(TokenizerRefusal, AVocabularyWithoutAByte) {
  json file = good();
  file["model"]["vocab"].erase("\u010A");

  EXPECT_EQ(
      refusal(file),
      "tokenizer.json: model.vocab has no token \"\u010A\" for byte 10; expected all 256 bytes");
}

TEST(TokenizerRefusal, AMergeOfAnUnknownToken) {
  json file = good();
  file["model"]["merges"].push_back("ab qq");

  EXPECT_EQ(
      refusal(file),
      "tokenizer.json: model.merges[2] joins \"ab\" and \"qq\", but \"qq\" is not in model.vocab");
}

TEST(TokenizerRefusal, AMergeIntoAnUnknownToken) {
  json file = good();
  file["model"]["merges"].push_back(json::array({"x", "y"}));

  EXPECT_EQ(
      refusal(file),
      "tokenizer.json: model.merges[2] joins \"x\" and \"y\", but \"xy\" is not in model.vocab");
}

TEST(TokenizerRefusal, AMergeOfThreeTokens) {
  json file = good();
  file["model"]["merges"].push_back("a b c");

  EXPECT_EQ(refusal(file),
            "tokenizer.json: model.merges[2] is \"a b c\"; expected two tokens: \"a b\" or [\"a\", "
            "\"b\"]");
}

TEST(TokenizerRefusal, AnAddedTokenOnATakenId) {
  json file = good();
  file["added_tokens"].push_back({{"id", 97}, {"content", "<x>"}});

  EXPECT_EQ(refusal(file),
            "tokenizer.json: added_tokens[2] gives id 97 to \"<x>\", but that is the id of \"a\"");
}

TEST(TokenizerRefusal, AnAddedTokenWithTwoIds) {
  EXPECT_EQ(refusal(good(), R"({"added_tokens_decoder": {"300": {"content": "<|end|>"}}})"),
            "tokenizer_config.json: added_tokens_decoder[\"300\"] gives id 300 to \"<|end|>\", "
            "which has id 258");
}

TEST(TokenizerRefusal, AnAddedTokenOnTheIdOfAnother) {
  EXPECT_EQ(refusal(good(), R"({"added_tokens_decoder": {"258": {"content": "<other>"}}})"),
            "tokenizer_config.json: added_tokens_decoder[\"258\"] gives id 258 to \"<other>\", but "
            "that is the id of "
            "\"<|end|>\"");
}

TEST(TokenizerRefusal, AnAddedTokenWithoutText) {
  json file = good();
  file["added_tokens"][1]["content"] = "";

  EXPECT_EQ(refusal(file),
            "tokenizer.json: added_tokens[1].content is \"\"; expected 1 to 1024 bytes");
}

TEST(TokenizerRefusal, AnAddedTokenThatEatsSpaces) {
  json file = good();
  file["added_tokens"][1]["lstrip"] = true;

  EXPECT_EQ(refusal(file), "tokenizer.json: added_tokens[1].lstrip is true; expected false");
}

TEST(TokenizerRefusal, AnAddedTokenNamedByNoId) {
  EXPECT_EQ(refusal(good(), R"({"added_tokens_decoder": {"first": {"content": "<x>"}}})"),
            "tokenizer_config.json: added_tokens_decoder.first has a name that is no id; expected "
            "an integer from 0 to "
            "4194303");
}

TEST(TokenizerRefusal, AConfigThatIsBroken) {
  EXPECT_EQ(refusal(good(), "nonsense"),
            "tokenizer_config.json: the file is not valid JSON at byte 2");
}

// No crash and no hang on whatever a file may hold: every value of a good file, replaced by every
// kind of value.
TEST(TokenizerRefusal, SurvivesEveryFieldOfEveryWrongType) {
  const json file = good();
  const json wrong = {
      nullptr, true, -1, 1e300, "", "text", json::array(), json::array({1}), json::object()};
  int refused = 0;
  int tried = 0;
  const json flat = file.flatten();
  for (const auto& [path, value] : flat.items()) {
    if (path.find("/model/vocab/") == 0 && path != "/model/vocab/a") {
      continue;
    }
    for (json::json_pointer at(path); !at.empty(); at.pop_back()) {
      for (const json& value_instead : wrong) {
        json bent = file;
        bent[at] = value_instead;
        refused += Tokenizer::parse(bent.dump()) ? 0 : 1;
        ++tried;
      }
    }
  }
  EXPECT_GT(refused, tried / 2);
  EXPECT_LT(refused, tried);
}

}  // namespace
}  // namespace troupe
