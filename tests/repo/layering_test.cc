// Each rule of layering.h sees a violation planted in a made-up source, and lets the neighbouring
// good form pass.
#include "tests/repo/layering.h"

#include <gtest/gtest.h>

#include <string>

namespace troupe::repo {
namespace {

std::string include(const std::string& path) {
  return "#include " + path + "\n";
}

// --- telling code, comments and literals apart

TEST(Scan, BlanksCommentsAndLiteralsAndKeepsLines) {
  const std::string text = "int a; // throw\n/* x\n y */ f(\"throw\"); char c = '\"'; g();\n";

  EXPECT_EQ(only(text, Part::kCode),
            "int a;         \n    \n      f(\"     \"); char c = ' '; g();\n");
}

TEST(Scan, KeepsCommentsAlone) {
  EXPECT_EQ(only("a(\"// no\"); // yes", Part::kComment), "            // yes");
}

TEST(Scan, TakesADigitSeparatorForCode) {
  const std::string text = "int n = 1'000'000; throw 0;";
  EXPECT_EQ(only(text, Part::kCode), text);
}

TEST(Scan, EndsAnEscapedQuoteAndARawLiteralWhereTheyEnd) {
  EXPECT_EQ(only(R"x(f("a\"b");throw)x", Part::kCode), R"x(f("    ");throw)x");
  EXPECT_EQ(only("f(R\"(a \" // b)\");throw", Part::kCode), "f(R\"          \");throw");
  EXPECT_EQ(only("f(R\"q(a)\" b)q\");throw", Part::kCode), "f(R\"         \");throw");
}

TEST(Scan, LetsABrokenTextEnd) {
  EXPECT_EQ(only("/* never", Part::kCode), "        ");
  EXPECT_EQ(only("\"never", Part::kCode), "\"    r");
}

// --- folders

TEST(Layers, RefuseAnIncludeFromAbove) {
  const auto findings =
      check_layers({"runtime/serve/a.cc", "\n" + include("\"actors/protocol.h\"")});

  ASSERT_EQ(findings.size(), 1U);
  EXPECT_EQ(findings[0].line, 2);
  EXPECT_EQ(findings[0].message,
            "runtime/serve/ may not include actors/protocol.h (ARCHITECTURE.md, section 3)");
}

TEST(Layers, RefuseASiblingThatIsNotListed) {
  EXPECT_EQ(check_layers({"runtime/state/a.h", include("\"runtime/model/config.h\"")}).size(), 1U);
  EXPECT_EQ(check_layers({"runtime/base/a.h", include("\"kernels/ops.h\"")}).size(), 1U);
  EXPECT_EQ(check_layers({"actors/a.cc", include("\"kernels/cpu/pack.h\"")}).size(), 1U);
}

TEST(Layers, DoNotTakeOurNetworkForTheSystems) {
  EXPECT_EQ(check_layers({"runtime/base/a.cc", include("\"net/http.h\"")}).size(), 1U);
  EXPECT_TRUE(check_layers({"runtime/base/a.cc", include("<net/if.h>")}).empty());
}

TEST(Layers, LetTheNetworkSeeOnlyTwoHeadersOfTheRuntime) {
  EXPECT_EQ(check_layers({"net/codec.cc", include("\"runtime/serve/planner.h\"")}).size(), 1U);
  EXPECT_TRUE(check_layers({"net/codec.cc", include("\"runtime/serve/step.h\"")}).empty());
}

TEST(Layers, KeepBackendsApart) {
  EXPECT_EQ(check_layers({"kernels/cpu/a.cc", include("\"kernels/cuda/warp.cuh\"")}).size(), 1U);
  EXPECT_EQ(check_layers({"kernels/cuda/a.cu", include("\"kernels/cpu/pack.h\"")}).size(), 1U);
  EXPECT_EQ(check_layers({"runtime/circuit/a.cc", include("\"kernels/cpu/pack.h\"")}).size(), 1U);
}

TEST(Layers, LetTestsSeeEverythingAndNobodySeeTests) {
  EXPECT_TRUE(check_layers({"tests/a.cc", include("\"actors/protocol.h\"")}).empty());
  EXPECT_EQ(check_layers({"deploy/main.cc", include("\"tests/support/model.h\"")}).size(), 1U);
}

TEST(Layers, AllowWhatStandsBelow) {
  EXPECT_TRUE(check_layers({"deploy/main.cc", include("\"actors/protocol.h\"")}).empty());
  EXPECT_TRUE(check_layers({"runtime/circuit/a.cc", include("\"kernels/ops.h\"")}).empty());
  EXPECT_TRUE(check_layers(
                  {"runtime/model/a.cc", include("\"runtime/base/error.h\"") + include("<vector>")})
                  .empty());
}

TEST(Layers, AskForARuleForANewFolder) {
  EXPECT_EQ(check_layers({"gadgets/a.cc", ""}).size(), 1U);
}

TEST(Layers, IgnoreAnIncludeInAComment) {
  EXPECT_TRUE(check_layers({"runtime/base/a.h", "// #include \"actors/protocol.h\"\n"}).empty());
}

// --- libraries

struct Fence {
  const char* header;
  const char* outside;
  const char* inside;
};

class Fences : public testing::TestWithParam<Fence> {};

TEST_P(Fences, RefuseTheLibraryOutsideAndAllowItInside) {
  const Fence& fence = GetParam();
  EXPECT_EQ(check_libraries({fence.outside, include(fence.header)}).size(), 1U);
  EXPECT_EQ(describe(check_libraries({fence.inside, include(fence.header)})), "");
}

INSTANTIATE_TEST_SUITE_P(
    All,
    Fences,
    testing::Values(Fence{"<caf/all.hpp>", "runtime/serve/a.cc", "actors/a.h"},
                    Fence{"\"caf/all.hpp\"", "tests/serve/a.cc", "tests/world/a.cc"},
                    Fence{"<boost/asio.hpp>", "actors/a.cc", "net/tcp_link.cc"},
                    Fence{"<capnp/message.h>", "runtime/serve/a.cc", "net/codec.cc"},
                    Fence{"<cuda_runtime.h>", "runtime/device/cpu.cc", "kernels/cuda/a.cu"},
                    Fence{"<nccl.h>", "net/a.cc", "runtime/device/cuda_plugin.cc"},
                    Fence{"<nlohmann/json.hpp>", "runtime/serve/a.cc", "runtime/model/config.cc"},
                    Fence{"<pcre2.h>", "deploy/a.cc", "runtime/text/tokenizer.cc"},
                    Fence{"<utf8proc.h>", "runtime/model/a.cc", "runtime/text/tokenizer.cc"},
                    Fence{"<minja/minja.hpp>", "deploy/a.cc", "runtime/text/chat.cc"},
                    Fence{"<CLI/CLI.hpp>", "actors/a.cc", "deploy/options.cc"},
                    Fence{"<spdlog/spdlog.h>", "runtime/base/a.cc", "actors/a.cc"},
                    Fence{"<tl/expected.hpp>", "runtime/base/ids.h", "runtime/base/error.h"},
                    Fence{"<gtest/gtest.h>", "runtime/base/a.cc", "tests/base/a.cc"}));

TEST(Libraries, StayOutOfOurHeaders) {
  EXPECT_EQ(check_libraries({"runtime/model/config.h", include("<nlohmann/json.hpp>")}).size(), 1U);
}

TEST(Libraries, AreAClosedList) {
  EXPECT_EQ(check_libraries({"deploy/a.cc", include("<absl/strings/str_cat.h>")}).size(), 1U);
  EXPECT_TRUE(
      check_libraries({"deploy/a.cc", include("<sys/mman.h>") + include("<vector>")}).empty());
}

// --- bans

struct Banned {
  const char* bad;
  const char* good;
};

class Bans : public testing::TestWithParam<Banned> {};

TEST_P(Bans, RefuseOneFormAndAllowTheOther) {
  EXPECT_EQ(check_bans({"runtime/serve/a.cc", std::string("\n") + GetParam().bad}).size(), 1U)
      << GetParam().bad;
  EXPECT_EQ(describe(check_bans({"runtime/serve/a.cc", GetParam().good})), "");
}

INSTANTIATE_TEST_SUITE_P(
    All,
    Bans,
    testing::Values(Banned{"throw Bad{};", "return error(Kind::kInvalid, \"throw\"); // throw"},
                    Banned{"try { f(); } catch (...) {}", "catcher(f);"},
                    Banned{"auto v = std::getenv(\"X\");", "auto v = options.getenv_;"},
                    Banned{"x = std::exp(y);", "x = exp_f32(y);"},
                    Banned{"x = ::log(y);", "x = telemetry.log(y);"},
                    Banned{"return ::pow(x, 2);", "return x * x;"},
                    Banned{"return std::sin(x);", "return sink->sin(x);"},
                    Banned{"return a > exp(b);", "return a->exp(b);"},
                    Banned{"x = tanhf(y);", "x = kernels::tanh(y);"},
                    Banned{"x = std::pow(y, z);",
                           "x = std::sqrt(y) + std::fma(a, b, c) + std::floor(d) + std::abs(e);"},
                    Banned{"std::this_thread::sleep_for(t);", "wait_until(deadline);"},
                    Banned{"auto* p = new Thing;",
                           "auto p = std::make_unique<Thing>(); int renew = 0;\n#include <new>\n"},
                    Banned{"std::unique_ptr<T> q; p.reset(new T);",
                           "return std::unique_ptr<T>(new T(private_constructor));"},
                    Banned{"delete p;", "Thing(const Thing&) = delete;"},
                    Banned{"auto* p = std::malloc(8);", "pool.free(page);"},
                    Banned{"std::regex r(text);", "const auto regex = text.member();"},
                    Banned{"int x = rand();", "int x = rng.rand();"},
                    Banned{"std::mt19937 engine;", "Rng rng(seed);"},
                    Banned{"auto t = std::chrono::steady_clock::now();", "auto t = clock.now();"},
                    Banned{"auto f = [=] { g(x); };", "auto f = [x] { g(x); }; a[i] = b;"},
                    Banned{"auto f = [=, &y] { g(x, y); };", "auto f = [&y] { g(y); };"}));

TEST(Bans, NameTheLineTheWordAndTheRemedy) {
  const auto findings =
      check_bans({"kernels/cpu/a.cc", "// exp\n\nfloat f() { return std::exp(1.0F); }\n"});

  EXPECT_EQ(describe(findings),
            "kernels/cpu/a.cc:3: `exp` is banned: libm differs between machines: use "
            "runtime/base/math.h or the kernels' "
            "own (decision D9)\n");
}

TEST(Bans, LetABorderCatchAndMainReadTheEnvironment) {
  EXPECT_TRUE(check_bans({"net/codec.cc", "try {} catch (const kj::Exception& e) {}"}).empty());
  EXPECT_TRUE(check_bans({"deploy/options.cc", "std::getenv(\"SLURM_JOB_ID\");"}).empty());
}

TEST(Bans, KnowThatKernelsHaveTheirOwnExp) {
  EXPECT_TRUE(check_bans({"kernels/cpu/a.cc", "y = exp(x);"}).empty());
  EXPECT_EQ(check_bans({"kernels/cpu/a.cc", "y = std::exp(x);"}).size(), 1U);
  EXPECT_EQ(check_bans({"kernels/cpu/a.cc", "y = expf(x);"}).size(), 1U);
  EXPECT_EQ(check_bans({"kernels/plan.cc", "y = exp(x);"}).size(), 1U);
}

TEST(Bans, LeaveLibmToWhatReachesNoToken) {
  EXPECT_TRUE(check_bans({"tests/kernels/a.cc", "double x = std::exp(1.0);"}).empty());
}

// --- sizes, notes, dead files

TEST(Sizes, RefuseALineMoreThanTheLimit) {
  std::string text;
  for (int i = 0; i < 500; ++i) {
    text += "\n";
  }
  EXPECT_TRUE(check_size({"runtime/a.cc", text}).empty());
  EXPECT_EQ(check_size({"runtime/a.cc", text + "\n"}).size(), 1U);
}

TEST(Todos, NeedAnIssue) {
  EXPECT_EQ(check_todos({"a.cc", "// TODO: later"}).size(), 1U);
  EXPECT_EQ(check_todos({"a.cc", "// TODO(me): later"}).size(), 1U);
  EXPECT_EQ(check_todos({"a.cc", "/* FIXME */"}).size(), 1U);
  EXPECT_TRUE(check_todos({"a.cc", "// TODO(#12): later\nf(\"TODO\");"}).empty());
}

TEST(DeadFiles, AreThoseThatNothingNames) {
  const std::vector<Source> sources = {{"net/a.cc", include("\"net/a.h\"")},
                                       {"net/a.h", ""},
                                       {"net/dead.cc", ""},
                                       {"net/dead.h", include("\"net/dead.h\"")},
                                       {"net/tcp/b.cc", ""}};
  const std::vector<Source> builds = {
      {"net/CMakeLists.txt", "add_library(net STATIC a.cc tcp/b.cc)"}};

  EXPECT_EQ(describe(check_dead_files(sources, builds)),
            "net/dead.cc: no CMakeLists.txt lists it and nothing includes it\n"
            "net/dead.h: no CMakeLists.txt lists it and nothing includes it\n");
}

TEST(DeadFiles, MayBeBuiltFromAnotherFolder) {
  const std::vector<Source> builds = {
      {"tests/serve/CMakeLists.txt",
       "a ../support/fake.cc ${PROJECT_SOURCE_DIR}/bench/micro.cc b"}};

  EXPECT_TRUE(
      check_dead_files({{"tests/support/fake.cc", ""}, {"bench/micro.cc", ""}}, builds).empty());
}

TEST(DeadFiles, MayBeBuiltByAScript) {
  const std::vector<Source> builds = {
      {"bench/peers/compare.sh", "g++ bench/peers/roofline.cc -o \"$dir/roofline\""}};

  EXPECT_TRUE(check_dead_files({{"bench/peers/roofline.cc", ""}}, builds).empty());
}

TEST(DeadFiles, AreNotSavedByANameInAnotherFolder) {
  const std::vector<Source> builds = {{"net/CMakeLists.txt", "add_library(net STATIC a.cc)"}};

  EXPECT_EQ(check_dead_files({{"actors/a.cc", ""}}, builds).size(), 1U);
}

// --- pages

TEST(Pages, HaveOneTitle) {
  EXPECT_TRUE(check_headings({"a.md", "# A\n\n```sh\n# a comment\n```\n## B\n"}).empty());
  EXPECT_EQ(check_headings({"a.md", "# A\n# B\n"}).size(), 1U);
  EXPECT_EQ(check_headings({"a.md", "text\n"}).size(), 1U);
}

TEST(Pages, ShowCommandsThatExist) {
  const auto exists = [](const std::string& path) { return path == "dev"; };
  const std::string usage = "usage\n\n  run [ARGS]   builds\n";
  const auto check = [&](const std::string& line) {
    return describe(check_commands({"README.md", "```sh\n" + line + "\n```\n"}, usage, exists));
  };

  EXPECT_EQ(check("./dev run --json  # comment"), "");
  EXPECT_EQ(check("# only a comment"), "");
  EXPECT_EQ(check("./dev fly"), "README.md:2: ./dev has no command fly\n");
  EXPECT_EQ(check("./tool x"), "README.md:2: ./tool does not exist\n");
}

TEST(Pages, AreCheckedInsideShellBlocksOnly) {
  const auto exists = [](const std::string&) { return false; };

  EXPECT_TRUE(check_commands({"a.md", "./nothing\n```text\n./nothing\n```\n"}, "", exists).empty());
}

}  // namespace
}  // namespace troupe::repo
