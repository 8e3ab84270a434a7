// What may stand in a source at all. Each table row is a ban, the places where it does not hold,
// and what to do instead.
#include "tests/repo/layering.h"
#include "tests/repo/text.h"

#include <algorithm>
#include <cctype>

namespace troupe::repo {
namespace {

constexpr int kLinesMax = 500;

int line_at(std::string_view text, std::size_t at) {
  return 1 + static_cast<int>(
                 std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(at), '\n'));
}

// The code of a source, its include lines blanked.
std::string statements_of(const Source& source) {
  std::string code;
  for (const auto& line : lines_of(only(source.text, Part::kCode))) {
    code += (is_include(line) ? "" : line) + "\n";
  }
  return code;
}

// --- bans
// ------------------------------------------------------------------------------------------------------------

using Words = std::vector<std::string_view>;

enum class When {
  kAlways,     // wherever the word stands
  kQualified,  // after std:: or a global ::
  kCalled,  // followed by (, and no member or function of ours: not after . -> or a name other than
            // std ::
  kOperator,  // an expression, not a declaration; `new` only where no smart pointer takes it in the
              // same statement
};

struct Ban {
  Words words;
  When when;
  Prefixes where;    // only under these
  Prefixes allowed;  // but not under these
  std::string_view instead;
};

// The functions of libm that are not exactly rounded; sqrt, fma, floor and their like are.
const Words& libm() {
  static const Words kWords = {"exp",  "exp2",   "expm1",  "log",   "log2", "log10", "log1p",
                               "sin",  "cos",    "tan",    "asin",  "acos", "atan",  "atan2",
                               "sinh", "cosh",   "tanh",   "pow",   "cbrt", "hypot", "erf",
                               "erfc", "tgamma", "lgamma", "sincos"};
  return kWords;
}

const Words& libm_float() {
  static const Words kWords = {"expf",    "exp2f",  "expm1f", "logf",   "log2f",   "log10f",
                               "log1pf",  "sinf",   "cosf",   "tanf",   "asinf",   "acosf",
                               "atanf",   "atan2f", "sinhf",  "coshf",  "tanhf",   "powf",
                               "cbrtf",   "hypotf", "erff",   "erfcf",  "tgammaf", "lgammaf",
                               "sincosf", "__expf", "__logf", "__sinf", "__cosf",  "__powf"};
  return kWords;
}

const std::vector<Ban>& bans() {
  static const Prefixes kEverywhere = {""};
  static const Prefixes kTokenPaths = {"kernels/", "runtime/"};
  static constexpr std::string_view kNoLibm =
      "libm differs between machines: use runtime/base/math.h or the kernels' own (decision D9)";
  static const std::vector<Ban> kBans = {
      {{"throw"}, When::kAlways, kEverywhere, {}, "return error(...): our code does not throw"},
      {{"catch"},
       When::kAlways,
       kEverywhere,
       {
           "runtime/text/chat_template",  // minja throws
           "actors/node.cc",              // CAF throws when its system cannot start
           "net/codec.cc",                // kj throws
           "deploy/main.cc",              // the last resort: print, exit 1
           "deploy/options",              // CLI11 throws
       },
       "exceptions stop at the named borders with third-party libraries"},
      {{"getenv", "secure_getenv", "setenv", "putenv"},
       When::kAlways,
       kEverywhere,
       {"deploy/options.cc", "tests/"},
       "the environment is read in deploy/options.cc; pass a value"},
      {libm(), When::kQualified, kTokenPaths, {}, kNoLibm},
      {libm_float(), When::kCalled, kTokenPaths, {}, kNoLibm},
      // In kernels/cpu the plain names are math.h's own, which hide those of the library.
      {libm(), When::kCalled, kTokenPaths, {"kernels/cpu/"}, kNoLibm},
      {{"sleep_for", "sleep_until", "usleep", "nanosleep"},
       When::kAlways,
       kEverywhere,
       {},
       "wait for the event itself, with a deadline from Clock"},
      {{"new"},
       When::kOperator,
       kEverywhere,
       {"tests/support/main.cc"},
       "use std::make_unique or a container"},
      {{"delete"}, When::kOperator, kEverywhere, {}, "let a unique_ptr or a container own it"},
      {{"malloc", "calloc", "realloc", "free"},
       When::kCalled,
       kEverywhere,
       {
           "runtime/device/",
           "bench/",
           "tests/program/count_allocations.cc",  // replaces operator new to count its calls
       },
       "use a container"},
      {{"regex", "regex_match", "regex_search", "regex_replace", "basic_regex", "wregex"},
       When::kQualified,
       kEverywhere,
       {},
       "std::regex overflows the stack on long input: write the scan, or use PCRE2 in "
       "runtime/text"},
      {{"rand", "srand", "drand48"}, When::kCalled, kEverywhere, {}, "take an Rng"},
      {{"random_device", "mt19937", "mt19937_64", "default_random_engine", "minstd_rand"},
       When::kAlways,
       kEverywhere,
       {"runtime/base/sources.cc"},
       "take an Rng; its first seed is entropy_seed()"},
      {{"steady_clock", "system_clock", "high_resolution_clock", "clock_gettime", "gettimeofday"},
       When::kAlways,
       kEverywhere,
       {
           "runtime/base/sources.cc",
           "runtime/device/thread.cc",  // a thread's processor time, which steers nothing
           "bench/",
       },
       "take a Clock"},
  };
  return kBans;
}

char last_before(std::string_view code, std::size_t at) {
  const std::size_t found =
      at == 0 ? std::string_view::npos : code.find_last_not_of(" \t\n", at - 1);
  return found == std::string_view::npos ? '\0' : code[found];
}

char first_after(std::string_view code, std::size_t at) {
  const std::size_t found = code.find_first_not_of(" \t\n", at);
  return found == std::string_view::npos ? '\0' : code[found];
}

// The word that ends right before `at`, spaces skipped; empty when no word does.
std::string_view word_before(std::string_view code, std::size_t at) {
  const std::size_t last =
      at == 0 ? std::string_view::npos : code.find_last_not_of(" \t\n", at - 1);
  if (last == std::string_view::npos) {
    return {};
  }
  std::size_t begin = last + 1;
  while (begin > 0 && is_word(code[begin - 1])) {
    --begin;
  }
  return code.substr(begin, last + 1 - begin);
}

// What stands before a word: "std" and "::" name the library, "" is nothing that qualifies it.
std::string_view qualifier(std::string_view code, std::size_t at) {
  const std::string_view text = code.substr(0, at);
  const std::size_t last = text.find_last_not_of(" \t\n");
  if (last == std::string_view::npos || last == 0) {
    return "";
  }
  const std::string_view mark = text.substr(last - 1, 2);
  if (text[last] == '.' || mark == "->") {
    return "member";
  }
  if (mark != "::") {
    return "";
  }
  const std::string_view space = word_before(code, last - 1);
  return space.empty() || space == "return" ? "::" : space;
}

bool is_qualified(std::string_view code, std::size_t at) {
  const std::string_view space = qualifier(code, at);
  return space == "std" || space == "::";
}

bool is_call_of_the_library(std::string_view code, std::size_t at, std::size_t size) {
  return first_after(code, at + size) == '(' &&
         (qualifier(code, at).empty() || is_qualified(code, at));
}

// unique_ptr<T>(new T(...)), or shared_ptr: the only way to a private constructor.
bool owned_at_once(std::string_view code, std::size_t at) {
  const std::size_t end = code.substr(0, at).find_last_of(";{}");
  const std::size_t begin = end == std::string_view::npos ? 0 : end;
  const std::string_view statement = code.substr(begin, at - begin);
  return statement.find("unique_ptr<") != std::string_view::npos ||
         statement.find("shared_ptr<") != std::string_view::npos;
}

bool applies(When when, std::string_view code, std::size_t at, std::string_view word) {
  switch (when) {
    case When::kAlways:
      return true;
    case When::kQualified:
      return is_qualified(code, at);
    case When::kCalled:
      return is_call_of_the_library(code, at, word.size());
    case When::kOperator:
      if (word == "new" && owned_at_once(code, at)) {
        return false;
      }
      return word_before(code, at) != "operator" &&
             (word != "delete" || last_before(code, at) != '=');
  }
  return false;
}

std::string reported(std::string_view what, std::string_view instead) {
  return "`" + std::string(what) + "` is banned: " + std::string(instead);
}

}  // namespace

std::vector<Finding> check_bans(const Source& source) {
  std::vector<Finding> findings;
  const std::string code = statements_of(source);
  for (const auto& ban : bans()) {
    if (!under_any(source.path, ban.where) || under_any(source.path, ban.allowed)) {
      continue;
    }
    for (const auto word : ban.words) {
      for (std::size_t at = code.find(word); at != std::string::npos;
           at = code.find(word, at + 1)) {
        const bool whole = (at == 0 || !is_word(code[at - 1])) &&
                           (at + word.size() == code.size() || !is_word(code[at + word.size()]));
        if (whole && applies(ban.when, code, at, word)) {
          findings.push_back({source.path, line_at(code, at), reported(word, ban.instead)});
        }
      }
    }
  }
  for (const std::string_view capture : {"[=]", "[=,"}) {
    for (std::size_t at = code.find(capture); at != std::string::npos;
         at = code.find(capture, at + 1)) {
      findings.push_back(
          {source.path, line_at(code, at), reported("[=", "list what the lambda captures")});
    }
  }
  // One word in two tables is one violation.
  std::stable_sort(findings.begin(), findings.end(), [](const auto& a, const auto& b) {
    return a.line < b.line;
  });
  const auto same = [](const auto& a, const auto& b) {
    return a.line == b.line && a.message == b.message;
  };
  findings.erase(std::unique(findings.begin(), findings.end(), same), findings.end());
  return findings;
}

std::vector<Finding> check_size(const Source& source) {
  static const Prefixes kLong = {};
  const auto lines = static_cast<int>(lines_of(source.text).size());
  if (lines <= kLinesMax || under_any(source.path, kLong)) {
    return {};
  }
  return {
      {source.path,
       0,
       std::to_string(lines) + " lines, more than " + std::to_string(kLinesMax) + ": split it"}};
}

std::vector<Finding> check_todos(const Source& source) {
  std::vector<Finding> findings;
  const std::string comments = only(source.text, Part::kComment);
  for (const std::string_view word : {"TODO", "FIXME", "XXX"}) {
    for (std::size_t at = comments.find(word); at != std::string::npos;
         at = comments.find(word, at + 1)) {
      const std::string_view rest = std::string_view(comments).substr(at + word.size());
      const bool numbered = word == "TODO" && under(rest, "(#") && rest.size() > 2 &&
                            std::isdigit(static_cast<unsigned char>(rest[2])) != 0;
      if (!numbered) {
        findings.push_back({source.path,
                            line_at(comments, at),
                            std::string(word) + " without an issue: TODO(#12): ..."});
      }
    }
  }
  return findings;
}

}  // namespace troupe::repo
