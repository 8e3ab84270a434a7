// Reading JSON within bounds, schemas, and the counting of characters.
#include "net/openai_json.h"
#include "net/openai_logprobs.h"
#include "net/openai_schema.h"

#include <gtest/gtest.h>

#include <limits>

namespace troupe::net {
namespace {

std::string problem(std::string_view text, const JsonBounds& bounds = {}) {
  const auto json = parse_json(text, bounds);
  return json ? "" : json.error().message;
}

std::string violation(const Json& schema, const Json& value) {
  const auto found = Schema(schema).check(value);
  return found ? found->message : "";
}

TEST(JsonReader, KeepsTheOrderOfMembers) {
  EXPECT_EQ(dump(parse_json(R"({"b":1,"a":[true,null,"x",-2,1.5],"":{}})").value()),
            R"({"b":1,"a":[true,null,"x",-2,1.5],"":{}})");
}

TEST(JsonReader, RefusesWhatIsNoJson) {
  EXPECT_EQ(problem("{} x"), "it is not valid JSON in UTF-8 at byte 4");
  EXPECT_EQ(problem("\"\xc3(\""), "it is not valid JSON in UTF-8 at byte 3");
  EXPECT_EQ(problem("[1e999]").substr(0, 20), "it is not valid JSON");
  EXPECT_EQ(problem("[NaN]").substr(0, 20), "it is not valid JSON");
}

TEST(JsonReader, RefusesARepeatedKeyAlsoWhenItIsWrittenOtherwise) {
  EXPECT_EQ(problem(R"({"a":1,"\u0061":2})"), "the key \"a\" appears twice in one object");
  EXPECT_EQ(problem(R"([{"a":1},{"a":2}])"), "");
}

TEST(JsonReader, StaysWithinItsBounds) {
  const std::string deep = std::string(64, '[') + std::string(64, ']');
  EXPECT_EQ(problem(deep), "");
  EXPECT_EQ(problem("[" + deep + "]"), "it is nested deeper than 64 levels");
  EXPECT_EQ(problem(std::string(1U << 20U, '[')), "it is nested deeper than 64 levels");
  EXPECT_EQ(problem(R"({"a":1,"b":2})", {.members_max = 1}), "an object has more than 1 members");
  EXPECT_EQ(problem("[[],[]]", {.containers_max = 2}), "there are more than 2 objects and lists");
  EXPECT_EQ(problem(R"({"a":"b"})", {.texts_max = 1}), "there are more than 1 keys and strings");
}

TEST(JsonReader, ShowsLongTextsCut) {
  EXPECT_EQ(shown(Json(std::string(100, 'x'))), "\"" + std::string(60, 'x') + "\"...");
  EXPECT_EQ(shown(Json::array()), "a list");
  EXPECT_EQ(shown(Json::object()), "an object");
}

TEST(JsonReader, ReadsWholeNumbersOfAnyForm) {
  EXPECT_EQ(as_int64(Json(-3)), -3);
  EXPECT_EQ(as_int64(Json(3.0)), 3);
  EXPECT_EQ(as_int64(Json(9.3e18)), std::numeric_limits<std::int64_t>::max());
  EXPECT_EQ(as_int64(Json(-9.3e18)), std::numeric_limits<std::int64_t>::min());
  EXPECT_EQ(as_int64(Json(std::numeric_limits<std::uint64_t>::max())),
            std::numeric_limits<std::int64_t>::max());
}

TEST(SchemaCheck, ComparesWholeNumbersExactly) {
  const Json large = schema::integer(0, std::numeric_limits<std::int64_t>::max());

  EXPECT_EQ(violation(large, Json(9223372036854775807LL)), "");
  EXPECT_NE(violation(large, Json(9223372036854775808ULL)), "");
  EXPECT_NE(violation(large, Json(-1)), "");
  EXPECT_NE(violation(schema::integer(-1, 5), Json(18446744073709551615ULL)), "");
  EXPECT_EQ(violation(schema::integer(-1, 5), Json(5.0)), "");
  EXPECT_NE(violation(schema::integer(-1, 5), Json(true)), "");
}

TEST(SchemaCheck, CountsCharactersNotBytes) {
  EXPECT_EQ(violation(schema::text(1, 2), Json("ää")), "");
  EXPECT_EQ(violation(schema::text(1, 2), Json("äää")),
            "the body is \"äää\"; allowed is a text of 1 to 2 characters");
}

TEST(SchemaCheck, TellsOfTheAlternativeThatCameFurthest) {
  const Json either = schema::any_of(
      {schema::list(schema::text()), schema::list(schema::integer(0, 9)), schema::boolean()});

  EXPECT_EQ(violation(either, Json({1, 2, "x"})),
            "[2] is \"x\"; allowed is a whole number from 0 to 9");
  EXPECT_EQ(violation(either, Json({"a", 1})), "[1] is 1; allowed is a text");
  EXPECT_EQ(violation(either, Json("a")),
            "the body is \"a\"; allowed is a list, a list or true or false");
}

TEST(SchemaCheck, NullIsAllowedOnlyWhereItIsSaid) {
  for (const Json& each : {schema::boolean(),
                           schema::only({"a"}),
                           schema::any_of({schema::text(), schema::boolean()})}) {
    EXPECT_NE(violation(each, nullptr), "");
    EXPECT_EQ(violation(schema::or_null(each), nullptr), "");
  }
}

std::size_t characters(std::string_view text) {
  CharacterCount count;
  count.feed(text);
  return count.complete();
}

bool is_whole(std::string_view text) {
  CharacterCount count;
  count.feed(text);
  return count.whole();
}

TEST(CharacterCount, CountsWholeCharacters) {
  EXPECT_EQ(characters("aä€😀"), 4U);
  EXPECT_EQ(characters("a\xe2\x82"), 1U);
  EXPECT_TRUE(is_whole("aä€😀"));
  EXPECT_FALSE(is_whole("a\xe2\x82"));
}

TEST(CharacterCount, CountsABrokenSequenceOnce) {
  EXPECT_EQ(characters("\xe2\x82x"), 2U);
  EXPECT_EQ(characters("\xff\xfe"), 2U);
  EXPECT_EQ(characters("\xe0\x80"), 2U);      // no character begins like this: two broken ones
  EXPECT_EQ(characters("\xed\xa0\x80"), 3U);  // a surrogate
  EXPECT_FALSE(is_whole("\xc0\xaf"));
  EXPECT_FALSE(is_whole("\xf4\x90\x80\x80"));
}

}  // namespace
}  // namespace troupe::net
