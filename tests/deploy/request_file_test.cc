#include "deploy/request_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe::deploy {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

Result<std::vector<Question>> parse(std::string_view text, const AnswerOptions& usual = {}) {
  return parse_questions(text, "f.jsonl", usual);
}

TEST(RequestFile, HoldsOneQuestionALine) {
  const auto questions = parse(
      "{\"prompt\": \"a\"}\n\n"
      "{\"token_ids\": [1, 2], \"task\": \"ignored\"}\n"
      "{\"messages\": [{\"role\": \"user\", \"content\": \"c\"}]}");

  ASSERT_TRUE(questions) << questions.error().message;
  ASSERT_EQ(questions->size(), 3U);
  EXPECT_EQ((*questions)[0].prompt, "a");
  EXPECT_THAT((*questions)[1].token_ids, ElementsAre(1U, 2U));
  ASSERT_EQ((*questions)[2].messages.size(), 1U);
  EXPECT_EQ((*questions)[2].messages[0].content, "c");
}

TEST(RequestFile, TakesWhatALineDoesNotSayFromTheCommandLine) {
  AnswerOptions usual;
  usual.max_tokens = 5;
  usual.stop = {"x"};
  usual.sampling.temperature = 0.5;

  const auto questions =
      parse("{\"prompt\": \"a\"}\n{\"prompt\": \"b\", \"max_tokens\": 9, \"stop\": [\"y\", \"z\"]}",
            usual);

  ASSERT_TRUE(questions);
  EXPECT_EQ((*questions)[0].answer.max_tokens, 5U);
  EXPECT_THAT((*questions)[0].answer.stop, ElementsAre("x"));
  EXPECT_EQ((*questions)[1].answer.max_tokens, 9U);
  EXPECT_THAT((*questions)[1].answer.stop, ElementsAre("y", "z"));
  EXPECT_EQ((*questions)[1].answer.sampling.temperature, 0.5);
}

TEST(RequestFile, ReadsEveryMemberOfALine) {
  const auto questions = parse(
      R"({"prompt":"a","temperature":0.25,"top_k":4,"top_p":0.5,"min_p":0.125,"repetition_penalty":1.5,"presence_penalty":-1,)"
      R"("frequency_penalty":0.5,"logit_bias":{"7":-2,"9":1.5},"seed":9007199254740991,"stop":"s","logprobs":3,"ignore_eos":true})");

  ASSERT_TRUE(questions) << questions.error().message;
  const AnswerOptions& answer = questions->front().answer;
  EXPECT_EQ(answer.sampling.temperature, 0.25);
  EXPECT_EQ(answer.sampling.top_k, 4U);
  EXPECT_EQ(answer.sampling.top_p, 0.5);
  EXPECT_EQ(answer.sampling.min_p, 0.125);
  EXPECT_EQ(answer.sampling.repetition_penalty, 1.5);
  EXPECT_EQ(answer.sampling.presence_penalty, -1);
  EXPECT_EQ(answer.sampling.frequency_penalty, 0.5);
  EXPECT_THAT(answer.sampling.logit_bias, ElementsAre(Pair(7U, -2.0), Pair(9U, 1.5)));
  EXPECT_EQ(answer.sampling.seed, 9007199254740991U);
  EXPECT_THAT(answer.stop, ElementsAre("s"));
  EXPECT_EQ(answer.logprobs, 3U);
  EXPECT_TRUE(answer.ignore_eos);
}

struct Refused {
  const char* line;
  const char* named;
};

class RefusedLines : public testing::TestWithParam<Refused> {};

TEST_P(RefusedLines, AreNamedWithFileLineAndMember) {
  const auto questions = parse(std::string("{\"prompt\": \"fine\"}\n") + GetParam().line);

  ASSERT_FALSE(questions);
  EXPECT_EQ(questions.error().kind, Kind::kInvalid);
  EXPECT_THAT(questions.error().message, HasSubstr("f.jsonl line 2"));
  EXPECT_THAT(questions.error().message, HasSubstr(GetParam().named));
}

INSTANTIATE_TEST_SUITE_P(
    All,
    RefusedLines,
    testing::Values(Refused{"{", "JSON"},
                    Refused{"[]", "object"},
                    Refused{"{}", "exactly one"},
                    Refused{"{\"prompt\":\"a\",\"token_ids\":[1]}", "exactly one"},
                    Refused{"{\"prompt\":3}", "prompt"},
                    Refused{"{\"token_ids\":[]}", "token_ids"},
                    Refused{"{\"token_ids\":[1,-2]}", "token_ids[1]"},
                    Refused{"{\"messages\":[{\"role\":\"user\"}]}", "content"},
                    Refused{"{\"messages\":[]}", "messages"},
                    Refused{"{\"prompt\":\"a\",\"max_tokens\":0}", "max_tokens"},
                    Refused{"{\"prompt\":\"a\",\"temperature\":-1}", "temperature"},
                    Refused{"{\"prompt\":\"a\",\"seed\":1.5}", "seed"},
                    Refused{"{\"prompt\":\"a\",\"stop\":[\"\"]}", "stop"},
                    Refused{"{\"prompt\":\"a\",\"logit_bias\":{\"x\":1}}", "logit_bias"},
                    Refused{"{\"prompt\":\"a\",\"ignore_eos\":1}", "ignore_eos"}));

TEST(RequestFile, WithoutRequestsIsRefused) {
  EXPECT_THAT(parse("\n \n").error().message, HasSubstr("no requests"));
  EXPECT_FALSE(read_questions("/nowhere/f.jsonl", {}));
}

}  // namespace
}  // namespace troupe::deploy
