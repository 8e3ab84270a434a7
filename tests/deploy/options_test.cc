#include "deploy/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace troupe::deploy {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

Parsed parse(std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), "troupe");
  return parse_options(static_cast<int>(arguments.size()), arguments.data());
}

RunOptions run_options(std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), "run");
  const Parsed parsed = parse(arguments);
  EXPECT_EQ(parsed.text, "");
  return parsed.options.value_or(Options{}).run;
}

TEST(Options, TalkWithTheDemoModelWhenNothingElseIsSaid) {
  const Parsed parsed = parse({"run"});

  ASSERT_TRUE(parsed.options);
  EXPECT_EQ(parsed.options->command, Command::kRun);
  EXPECT_EQ(parsed.options->run.input, Input::kChat);
  EXPECT_EQ(parsed.options->common.model, "");
  EXPECT_EQ(parsed.options->common.activation, Activation::kBF16);
  EXPECT_EQ(parsed.options->common.threads, 0U);
}

TEST(Options, TakeEveryFlagOfRun) {
  const Parsed parsed = parse({"run",
                               "models/x",
                               "--prompt",
                               "hi",
                               "--max-tokens",
                               "7",
                               "--temperature",
                               "0.5",
                               "--top-k",
                               "5",
                               "--top-p",
                               "0.9",
                               "--min-p",
                               "0.1",
                               "--repetition-penalty",
                               "1.1",
                               "--presence-penalty",
                               "-1",
                               "--frequency-penalty",
                               "2",
                               "--logit-bias",
                               "3=-1.5",
                               "--logit-bias",
                               "4=2",
                               "--seed",
                               "18446744073709551615",
                               "--stop",
                               "a",
                               "--stop",
                               "[b,c]",
                               "--logprobs",
                               "2",
                               "--ignore-eos",
                               "--json",
                               "--stats",
                               "--system",
                               "Be brief.",
                               "--no-thinking",
                               "--template-var",
                               "a=[1]",
                               "--activations",
                               "fp32",
                               "--kernels",
                               "scalar",
                               "--numerics",
                               "exact",
                               "--threads",
                               "3",
                               "--log-level",
                               "debug"});

  ASSERT_TRUE(parsed.options) << parsed.text;
  const auto& common = parsed.options->common;
  EXPECT_EQ(common.model, "models/x");
  EXPECT_EQ(common.activation, Activation::kF32);
  EXPECT_EQ(common.kernels, "scalar");
  EXPECT_EQ(common.threads, 3U);
  EXPECT_EQ(common.log_level, "debug");
  const auto& run = parsed.options->run;
  EXPECT_EQ(run.input, Input::kPrompt);
  EXPECT_EQ(run.prompt, "hi");
  EXPECT_TRUE(run.json);
  EXPECT_TRUE(run.stats);
  EXPECT_EQ(run.chat.system, "Be brief.");
  EXPECT_THAT(run.chat.variables, ElementsAre(Pair("a", "[1]"), Pair("enable_thinking", "false")));
  const auto& answer = run.answer;
  EXPECT_EQ(answer.max_tokens, 7U);
  EXPECT_EQ(answer.logprobs, 2U);
  EXPECT_TRUE(answer.ignore_eos);
  EXPECT_THAT(answer.stop, ElementsAre("a", "[b,c]"));
  const auto& sampling = answer.sampling;
  EXPECT_EQ(sampling.temperature, 0.5);
  EXPECT_EQ(sampling.top_k, 5U);
  EXPECT_EQ(sampling.top_p, 0.9);
  EXPECT_EQ(sampling.min_p, 0.1);
  EXPECT_EQ(sampling.repetition_penalty, 1.1);
  EXPECT_EQ(sampling.presence_penalty, -1);
  EXPECT_EQ(sampling.frequency_penalty, 2);
  EXPECT_THAT(sampling.logit_bias, ElementsAre(Pair(3U, -1.5), Pair(4U, 2.0)));
  EXPECT_EQ(sampling.seed, 18446744073709551615U);
}

TEST(Options, TakeEveryFlagOfServe) {
  const Parsed parsed = parse({"serve",
                               "models/x",
                               "--listen",
                               "[::1]:0",
                               "--admin-listen",
                               "localhost:9",
                               "--model-name",
                               "m",
                               "--queue",
                               "7",
                               "--sequences",
                               "3",
                               "--connections",
                               "5",
                               "--drain-seconds",
                               "0"});

  ASSERT_TRUE(parsed.options) << parsed.text;
  EXPECT_EQ(parsed.options->command, Command::kServe);
  EXPECT_EQ(parsed.options->common.log_level, "info");
  const ServeOptions& serve = parsed.options->serve;
  EXPECT_EQ(serve.listen.host, "::1");
  EXPECT_EQ(serve.listen.port, 0);
  ASSERT_TRUE(serve.admin);
  EXPECT_EQ(serve.admin->host, "localhost");
  EXPECT_EQ(serve.admin->port, 9);
  EXPECT_EQ(serve.model_name, "m");
  EXPECT_EQ(serve.queue_max, 7U);
  EXPECT_EQ(serve.sequences_max, 3U);
  EXPECT_EQ(serve.connections_max, 5U);
  EXPECT_EQ(serve.drain_seconds, 0U);
}

TEST(Options, ServeOnLocalhostWhenNothingElseIsSaid) {
  const ServeOptions serve = parse({"serve"}).options.value_or(Options{}).serve;

  EXPECT_EQ(serve.listen.host, "127.0.0.1");
  EXPECT_EQ(serve.listen.port, 8000);
  EXPECT_FALSE(serve.admin);
}

TEST(Options, RefuseAnAddressThatIsNone) {
  for (const char* text : {"8000", "host", "host:", ":80", "host:70000", "::1:80", "host:8x"}) {
    const Parsed parsed = parse({"serve", "--listen", text});
    EXPECT_FALSE(parsed.options) << text;
    EXPECT_EQ(
        parsed.text,
        "--listen: '" + std::string(text) + "' is not HOST:PORT like 127.0.0.1:8000 or [::1]:8000");
  }
}

TEST(Options, LeaveTheModelAloneBehindARepeatedFlag) {
  const Parsed parsed = parse({"run", "--prompt", "x", "--stop", "a", "models/x"});

  ASSERT_TRUE(parsed.options) << parsed.text;
  EXPECT_EQ(parsed.options->common.model, "models/x");
  EXPECT_THAT(parsed.options->run.answer.stop, ElementsAre("a"));
}

TEST(Options, TakeAPromptThatLooksLikeAFlagOrAList) {
  EXPECT_EQ(run_options({"--prompt", "-1 + 2"}).prompt, "-1 + 2");
  EXPECT_EQ(run_options({"--prompt", "[1,2]"}).prompt, "[1,2]");
  EXPECT_EQ(run_options({"--prompt", ""}).input, Input::kPrompt);
}

TEST(Options, ReadTokenIds) {
  const RunOptions run = run_options({"--token-ids", "0,42,4294967295"});

  EXPECT_EQ(run.input, Input::kTokenIds);
  EXPECT_THAT(run.token_ids, ElementsAre(0U, 42U, 4294967295U));
}

TEST(Options, TakeEveryFlagOfBench) {
  const Parsed parsed = parse({"bench",
                               "m",
                               "--prompt-tokens",
                               "0",
                               "--output-tokens",
                               "9",
                               "--batch",
                               "4",
                               "--repetitions",
                               "2",
                               "--threads",
                               "1",
                               "--json"});

  ASSERT_TRUE(parsed.options) << parsed.text;
  EXPECT_EQ(parsed.options->command, Command::kBench);
  EXPECT_EQ(parsed.options->common.model, "m");
  EXPECT_EQ(parsed.options->bench.prompt_tokens, 0U);
  EXPECT_EQ(parsed.options->bench.output_tokens, 9U);
  EXPECT_EQ(parsed.options->bench.batch, 4U);
  EXPECT_EQ(parsed.options->bench.repetitions, 2U);
  EXPECT_TRUE(parsed.options->bench.json);
}

TEST(Options, TakeModeAndRowsOfPlan) {
  const Parsed parsed = parse({"plan", "m", "--mode", "rows", "--rows", "128"});

  ASSERT_TRUE(parsed.options) << parsed.text;
  EXPECT_EQ(parsed.options->command, Command::kPlan);
  EXPECT_EQ(parsed.options->plan.mode, "rows");
  EXPECT_EQ(parsed.options->plan.rows, 128U);
}

TEST(Options, AnswerHelpAndVersionWithSuccess) {
  EXPECT_THAT(parse({"--help"}).text, HasSubstr("bench"));
  EXPECT_THAT(parse({"run", "--help"}).text, HasSubstr("--repetition-penalty"));
  EXPECT_THAT(parse({"--version"}).text, testing::StartsWith("troupe "));
  EXPECT_EQ(parse({"run", "--help"}).code, ExitCode::kDone);
  EXPECT_FALSE(parse({"--version"}).options);
}

struct Refused {
  std::vector<const char*> arguments;
  const char* named;
};

class RefusedOptions : public testing::TestWithParam<Refused> {};

TEST_P(RefusedOptions, AreBadUsageAndNamed) {
  const Parsed parsed = parse(GetParam().arguments);

  EXPECT_FALSE(parsed.options);
  EXPECT_EQ(parsed.code, ExitCode::kUsage);
  EXPECT_THAT(parsed.text, HasSubstr(GetParam().named));
}

INSTANTIATE_TEST_SUITE_P(
    All,
    RefusedOptions,
    testing::Values(Refused{{}, "subcommand"},
                    Refused{{"runn"}, "runn"},
                    Refused{{"run", "--wat"}, "--wat"},
                    Refused{{"run", "a", "b"}, "b"},
                    Refused{{"run", "--speculate", "2", "--prompt", "x"}, "--speculate"},
                    Refused{{"run", "--devices", "2"}, "--devices"},
                    Refused{{"run", "--numerics", "fast"}, "--numerics"},
                    Refused{{"run", "--max-tokens", "0"}, "--max-tokens"},
                    Refused{{"run", "--max-tokens", "-5"}, "--max-tokens"},
                    Refused{{"run", "--max-tokens", "x"}, "--max-tokens"},
                    Refused{{"run", "--temperature", "-0.1"}, "--temperature"},
                    Refused{{"run", "--temperature", "nan"}, "--temperature"},
                    Refused{{"run", "--top-p", "0"}, "--top-p"},
                    Refused{{"run", "--top-p", "1.5"}, "--top-p"},
                    Refused{{"run", "--presence-penalty", "3"}, "--presence-penalty"},
                    Refused{{"run", "--seed", "-1"}, "--seed"},
                    Refused{{"run", "--logprobs", "21"}, "--logprobs"},
                    Refused{{"run", "--threads", "0"}, "--threads"},
                    Refused{{"run", "--activations", "fp8"}, "--activations"},
                    Refused{{"run", "--prompt"}, "--prompt"},
                    Refused{{"run", "--prompt", "x", "--chat"}, "--chat"},
                    Refused{{"run", "--prompt", "x", "--token-ids", "1"}, "--token-ids"},
                    Refused{{"run", "--token-ids", "1,,2"}, "--token-ids"},
                    Refused{{"run", "--token-ids", "1,x"}, "--token-ids"},
                    Refused{{"run", "--token-ids", ""}, "--token-ids"},
                    Refused{{"run", "--token-ids", "4294967296"}, "--token-ids"},
                    Refused{{"run", "--token-ids", "1", "--system", "x"}, "--system"},
                    Refused{{"run", "--prompt", "x", "--logit-bias", "3"}, "--logit-bias"},
                    Refused{{"run", "--prompt", "x", "--logit-bias", "3=900"}, "--logit-bias"},
                    Refused{{"run", "--prompt", "x", "--stop", ""}, "--stop"},
                    Refused{{"run", "--prompt", "x", "--template-var", "=1"}, "--template-var"},
                    Refused{{"run", "--json"}, "--json"},
                    Refused{{"run", "--prompt", "x", "--logprobs", "1"}, "--json"},
                    Refused{{"bench", "--batch", "0"}, "--batch"},
                    Refused{{"bench", "--prompt-tokens", "0", "--output-tokens", "0"},
                            "nothing to measure"},
                    Refused{{"plan", "--mode", "draft"}, "--mode"}));

}  // namespace
}  // namespace troupe::deploy
