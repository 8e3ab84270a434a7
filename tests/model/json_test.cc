#include "runtime/model/json.h"

#include "tests/model/fixture.h"

#include <gtest/gtest.h>

namespace troupe {
namespace {

std::string parse_error(std::string_view text) {
  const auto document = ModelJson::parse(text, "x.json");
  return document ? "parsed" : document.error().message;
}

TEST(ModelJson, RefusesNestingThatWouldOverflowTheStack) {
  EXPECT_EQ(parse_error("{\"a\":" + std::string(5'000'000, '[')),
            "x.json: JSON nested deeper than 64 levels at byte 68");
}

TEST(ModelJson, AcceptsNestingUpToTheLimit) {
  EXPECT_EQ(parse_error("{\"a\":" + std::string(63, '[') + std::string(63, ']') + "}"), "parsed");
}

TEST(ModelJson, TakesBracketsInsideTextForText) {
  EXPECT_EQ(parse_error("{\"a\": \"\\\"" + std::string(100, '[') + "\"}"), "parsed");
}

TEST(ModelJson, RefusesAKeyThatAppearsTwice) {
  EXPECT_EQ(parse_error(R"({"a": 1, "b": {"a": 2}, "a": 3})"),
            "x.json: key \"a\" appears twice in one object");
}

TEST(ModelJson, RefusesAnythingButAnObject) {
  EXPECT_EQ(parse_error("[1]"), "x.json: not a JSON object");
  EXPECT_EQ(parse_error(""), "x.json: not a JSON object");
  EXPECT_EQ(parse_error("{\"a\": 1e999}"), "x.json: not a JSON object");
  EXPECT_EQ(parse_error("{\"a\": \"\xff\"}"), "x.json: not a JSON object");
  EXPECT_EQ(parse_error("{} x"), "x.json: not a JSON object");
}

TEST(ModelJson, RefusesAFileAboveItsLimit) {
  const fixture::TempDirectory directory;
  directory.write("x.json", "{\"a\": 1}");

  const auto document = ModelJson::read(directory.path() / "x.json", "x.json", 7);

  ASSERT_FALSE(document.has_value());
  EXPECT_EQ(document.error().message, "x.json: 8 bytes, expected at most 7");
}

TEST(JsonValue, AnswersNothingForOtherTypesAndForAbsence) {
  const ModelJson document =
      ModelJson::parse(R"({"text": "t", "none": null, "list": [1]})", "x.json").value();
  const JsonValue root = document.root();

  EXPECT_FALSE(root.find("none").exists());
  EXPECT_FALSE(root.find("absent").find("deeper").exists());
  EXPECT_FALSE(root.find("text").integer().has_value());
  EXPECT_FALSE(root.find("list").number().has_value());
  EXPECT_TRUE(root.find("text").elements().empty());
  EXPECT_EQ(root.find("list").string(), "");
  EXPECT_EQ(root.find("absent").shown(), "missing");
}

TEST(JsonValue, ShowsLongValuesShort) {
  const ModelJson document =
      ModelJson::parse("{\"a\": \"" + std::string(100, 'x') + "\"}", "x.json").value();

  EXPECT_EQ(document.root().find("a").shown(), "\"" + std::string(59, 'x') + "...");
}

}  // namespace
}  // namespace troupe
