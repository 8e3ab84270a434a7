#include "runtime/text/json_view.h"

#include <gtest/gtest.h>

#include <string>

namespace troupe {
namespace {

std::unique_ptr<const JsonDocument> parse(std::string_view text) {
  return JsonDocument::parse(text, "x.json").value();
}

TEST(JsonView, NamesTheWholePathOfAWrongField) {
  const auto document = parse(R"({"a": {"b c": [1, {"d": "word"}]}})");
  const JsonView root = document->root();
  const JsonView a = root.member("a", "an object").value();
  const JsonView b = a.member("b c", "a list").value();
  const JsonView entry = b.element(1);
  const JsonView d = entry.member("d", "a number").value();

  EXPECT_EQ(d.integer(0, 9).error().message,
            "x.json: a[\"b c\"][1].d is \"word\"; expected an integer from 0 to 9");
}

TEST(JsonView, TakesNullForAbsent) {
  const auto document = parse(R"({"a": null})");
  const JsonView root = document->root();

  EXPECT_FALSE(root.find("a"));
  EXPECT_EQ(root.member("a", "text").error().message, "x.json: a is missing; expected text");
}

TEST(JsonView, RefusesNumbersThatAreNoIntegersInRange) {
  const auto document = parse(R"({"n": [-1, 1.5, 10, 99999999999999999999, 7]})");
  const JsonView root = document->root();
  const JsonView n = root.find("n").value();

  EXPECT_FALSE(n.element(0).integer(0, 9));
  EXPECT_FALSE(n.element(1).integer(0, 9));
  EXPECT_FALSE(n.element(2).integer(0, 9));
  EXPECT_FALSE(n.element(3).integer(0, 9));
  EXPECT_EQ(n.element(4).integer(0, 9).value(), 7U);
}

TEST(JsonView, RefusesNumbersOutOfRange) {
  const auto document = parse(R"({"p": 1.5})");
  const JsonView root = document->root();

  EXPECT_EQ(root.find("p")->number(0, 1).error().message,
            "x.json: p is 1.5; expected a number from 0 to 1");
}

TEST(JsonDocument, SaysWhereTheJsonBreaks) {
  EXPECT_EQ(JsonDocument::parse("{\"a\": tru}", "x.json").error().message,
            "x.json: the file is not valid JSON at byte 10");
}

TEST(JsonDocument, RefusesAFileThatIsNoObject) {
  EXPECT_EQ(JsonDocument::parse("[1]", "x.json").error().message,
            "x.json: the file is a list of 1; expected an object");
}

TEST(JsonDocument, NamesAMissingFile) {
  EXPECT_EQ(JsonDocument::open("/nowhere/x.json").error().message,
            "/nowhere/x.json: cannot be read: No such file or directory");
  EXPECT_EQ(JsonDocument::open_if_present("/nowhere/x.json").value(), nullptr);
}

TEST(JsonDocument, SurvivesDeepNesting) {
  const std::string text = "{\"a\":" + std::string(100'000, '[') + std::string(100'000, ']') + "}";

  EXPECT_TRUE(JsonDocument::parse(text, "x.json"));
}

TEST(CheckJson, RefusesNestingOverTheLimit) {
  EXPECT_TRUE(check_json("[[[]]]", "tools", {.depth_max = 3}));
  EXPECT_EQ(check_json("[[[[]]]]", "tools", {.depth_max = 3}).error().message,
            "tools is nested more than 3 levels deep; use fewer");
}

TEST(CheckJson, CountsMembersOfEachObjectAlone) {
  EXPECT_TRUE(check_json(R"([{"a":1,"b":2},{"c":3,"d":{"e":4}}])", "tools", {.members_max = 2}));
  EXPECT_EQ(
      check_json(R"([{"a":1,"b":{"x":1},"c":2}])", "tools", {.members_max = 2}).error().message,
      "tools has an object of more than 2 members; use fewer");
}

TEST(Excerpt, CutsAndEscapes) {
  EXPECT_EQ(excerpt("a\nb"), "\"a\\x0ab\"");
  EXPECT_EQ(excerpt(std::string(61, 'x')), "\"" + std::string(60, 'x') + "...\"");
  EXPECT_EQ(excerpt("\xFF"), "\"\uFFFD\"");
}

}  // namespace
}  // namespace troupe
