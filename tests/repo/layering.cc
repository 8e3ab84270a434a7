// The rules themselves. Each table row is a rule or an exception with its reason.
#include "tests/repo/layering.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <set>

namespace troupe::repo {
namespace {

using Prefixes = std::vector<std::string_view>;

constexpr int kLinesMax = 500;

bool is_word(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
}

bool under(std::string_view path, std::string_view prefix) {
  return path.starts_with(prefix);
}

bool under_any(std::string_view path, const Prefixes& prefixes) {
  return std::any_of(prefixes.begin(), prefixes.end(), [&](std::string_view prefix) { return under(path, prefix); });
}

bool is_header(std::string_view path) {
  return path.ends_with(".h") || path.ends_with(".cuh");
}

std::vector<std::string> lines_of(std::string_view text) {
  std::vector<std::string> lines(1);
  for (const char c : text) {
    if (c == '\n') {
      lines.emplace_back();
    } else {
      lines.back().push_back(c);
    }
  }
  if (lines.back().empty()) {
    lines.pop_back();
  }
  return lines;
}

int line_at(std::string_view text, std::size_t at) {
  return 1 + static_cast<int>(std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(at), '\n'));
}

std::string trimmed(std::string_view text) {
  const auto space = " \t\r";
  const std::size_t begin = text.find_first_not_of(space);
  return begin == std::string_view::npos ? ""
                                         : std::string(text.substr(begin, text.find_last_not_of(space) - begin + 1));
}

struct Include {
  std::string path;
  bool angle = false;
  int line = 0;
};

std::vector<Include> includes_of(const Source& source) {
  std::vector<Include> includes;
  const auto code = lines_of(only(source.text, Part::kCode));
  const auto raw = lines_of(source.text);
  for (std::size_t i = 0; i < code.size(); ++i) {
    const std::string text = trimmed(code[i]);
    if (!under(text, "#") || !under(trimmed(std::string_view(text).substr(1)), "include")) {
      continue;
    }
    const std::size_t open = raw[i].find_first_of("<\"");
    const std::size_t close = open == std::string::npos ? open : raw[i].find_first_of(">\"", open + 1);
    if (close != std::string::npos) {
      includes.push_back({raw[i].substr(open + 1, close - open - 1), raw[i][open] == '<', static_cast<int>(i) + 1});
    }
  }
  return includes;
}

// --- folders ---------------------------------------------------------------------------------------------------------

struct Layer {
  std::string_view folder;
  Prefixes may_include;  // its own folder always
};

// The first row that matches a source counts.
const std::vector<Layer>& layers() {
  static const std::vector<Layer> kLayers = {
      {"tests/", {""}},
      {"bench/", {"actors/", "deploy/", "kernels/", "net/", "runtime/", "tests/support/"}},
      {"deploy/", {"actors/", "kernels/", "net/", "runtime/"}},
      {"actors/", {"net/", "runtime/"}},
      {"net/", {"runtime/base/", "runtime/serve/request.h", "runtime/serve/step.h", "schema/"}},
      {"kernels/cpu/", {"kernels/", "runtime/base/"}},
      {"kernels/cuda/", {"kernels/", "runtime/base/"}},
      {"kernels/emu/", {"kernels/", "runtime/base/"}},
      {"kernels/", {"runtime/base/"}},
      {"runtime/base/", {}},
      {"runtime/model/", {"runtime/base/"}},
      {"runtime/text/", {"runtime/base/"}},
      {"runtime/state/", {"runtime/base/"}},
      {"runtime/circuit/", {"kernels/", "runtime/base/", "runtime/model/"}},
      {"runtime/device/", {"kernels/", "runtime/base/"}},
      {"runtime/program/",
       {"kernels/", "runtime/base/", "runtime/circuit/", "runtime/device/", "runtime/model/", "runtime/state/"}},
      {"runtime/serve/",
       {"kernels/", "runtime/base/", "runtime/circuit/", "runtime/device/", "runtime/model/", "runtime/program/", "runtime/state/"}},
      {"schema/", {}},
  };
  return kLayers;
}

// A backend is chosen by the composition root or a device, never known to another backend or to what is above.
bool crosses_backends(std::string_view from, std::string_view to) {
  const bool private_to_cpu = under(to, "kernels/cpu/");
  const bool private_to_cuda = under(to, "kernels/cuda/");
  if (under(from, "kernels/cpu/")) {
    return private_to_cuda || under(to, "kernels/emu/");
  }
  if (under(from, "kernels/cuda/")) {
    return private_to_cpu || under(to, "kernels/emu/");
  }
  return under(from, "runtime/circuit/") && (private_to_cpu || private_to_cuda);
}

// --- third-party libraries -------------------------------------------------------------------------------------------

struct Library {
  std::string_view header;  // prefix of what an include names
  Prefixes allowed;
};

const std::vector<Library>& libraries() {
  static const Prefixes kCuda = {"kernels/cuda/", "kernels/emu/", "runtime/device/cuda_", "tests/kernels/cuda"};
  static const std::vector<Library> kLibraries = {
      {"tl/", {"runtime/base/error.h"}},
      {"caf/", {"actors/", "tests/actors/", "tests/world/"}},
      {"boost/", {"net/", "tests/net/"}},
      {"asio", {"net/", "tests/net/"}},
      {"capnp/", {"net/", "schema/", "tests/net/"}},
      {"kj/", {"net/", "schema/", "tests/net/"}},
      {"nlohmann/", {"runtime/model/", "runtime/text/", "deploy/", "net/", "tests/"}},
      {"pcre2", {"runtime/text/"}},
      {"utf8proc", {"runtime/text/"}},
      {"minja/", {"runtime/text/"}},
      {"chat-template", {"runtime/text/"}},
      {"CLI/", {"deploy/"}},
      {"spdlog/", {"deploy/", "actors/"}},
      {"fmt/", {"deploy/", "actors/"}},
      {"gtest/", {"tests/"}},
      {"gmock/", {"tests/"}},
      {"benchmark/", {"bench/"}},
      {"cuda", kCuda},
      {"cublas", kCuda},
      {"cooperative_groups", kCuda},
      {"mma.h", kCuda},
      {"nccl", kCuda},
      {"nvrtc", kCuda},
  };
  return kLibraries;
}

const Library* library_of(std::string_view header) {
  for (const auto& library : libraries()) {
    if (under(header, library.header)) {
      return &library;
    }
  }
  return nullptr;
}

// Headers of ours that may show a third-party type.
const Prefixes& headers_with_libraries() {
  static const Prefixes kHeaders = {
      "runtime/base/error.h",   // Result<T> is tl::expected
      "runtime/model/json.h",   // private to runtime/model: type-checked reads of a JSON value
      "actors/",                // CAF's types are what this folder is made of
      "kernels/cuda/",          // device code
      "net/",                   // private headers; its interface is link.h and http.h, checked by their users' fences
      "tests/",
      "bench/",
  };
  return kHeaders;
}

bool is_system(std::string_view header) {
  return header.find('/') == std::string_view::npos || under_any(header, {"sys/", "linux/", "netinet/", "arpa/", "net/"});
}

// --- bans ------------------------------------------------------------------------------------------------------------

enum class When {
  kAlways,    // wherever the word stands
  kCalled,    // followed by (, and no member or function of ours: not after . -> or a name other than std ::
  kOperator,  // an expression, not a declaration; `new` only where a unique_ptr takes it in the same statement
};

struct Ban {
  std::vector<std::string_view> words;
  When when;
  Prefixes where;    // only under these
  Prefixes allowed;  // but not under these
  std::string_view instead;
};

const std::vector<Ban>& bans() {
  static const Prefixes kEverywhere = {""};
  static const std::vector<Ban> kBans = {
      {{"throw"}, When::kAlways, kEverywhere, {}, "return error(...): our code does not throw"},
      {{"catch"},
       When::kAlways,
       kEverywhere,
       {
           "runtime/text/chat_template",  // minja throws
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
      {{"exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "asin", "acos", "atan", "atan2",
        "sinh", "cosh", "tanh", "pow", "cbrt", "hypot", "erf", "erfc", "tgamma", "lgamma", "sincos",
        "expf", "exp2f", "expm1f", "logf", "log2f", "log10f", "log1pf", "sinf", "cosf", "tanf", "asinf", "acosf", "atanf",
        "atan2f", "sinhf", "coshf", "tanhf", "powf", "cbrtf", "hypotf", "erff", "erfcf", "tgammaf", "lgammaf", "sincosf",
        "__expf", "__logf", "__sinf", "__cosf", "__powf"},
       When::kCalled,
       {"kernels/", "runtime/"},
       {},
       "libm differs between machines: use the functions of kernels (decision D9)"},
      {{"sleep_for", "sleep_until", "usleep", "nanosleep"},
       When::kAlways,
       kEverywhere,
       {},
       "wait for the event itself, with a deadline from Clock"},
      {{"new"}, When::kOperator, kEverywhere, {"tests/support/main.cc"}, "use std::make_unique or a container"},
      {{"delete"}, When::kOperator, kEverywhere, {}, "let a unique_ptr or a container own it"},
      {{"malloc", "calloc", "realloc", "free"}, When::kCalled, kEverywhere, {"runtime/device/", "bench/"}, "use a container"},
      {{"regex", "regex_match", "regex_search", "regex_replace", "basic_regex", "wregex"},
       When::kAlways,
       kEverywhere,
       {},
       "std::regex overflows the stack on long input: write the scan, or use PCRE2 in runtime/text"},
      {{"rand", "srand", "drand48"}, When::kCalled, kEverywhere, {}, "take an Rng"},
      {{"random_device", "mt19937", "mt19937_64", "default_random_engine", "minstd_rand"},
       When::kAlways,
       kEverywhere,
       {"runtime/base/sources.cc"},
       "take an Rng; its first seed is entropy_seed()"},
      {{"steady_clock", "system_clock", "high_resolution_clock", "clock_gettime", "gettimeofday"},
       When::kAlways,
       kEverywhere,
       {"runtime/base/sources.cc", "bench/"},
       "take a Clock"},
  };
  return kBans;
}

char last_before(std::string_view code, std::size_t at) {
  const std::size_t found = at == 0 ? std::string_view::npos : code.find_last_not_of(" \t\n", at - 1);
  return found == std::string_view::npos ? '\0' : code[found];
}

char first_after(std::string_view code, std::size_t at) {
  const std::size_t found = code.find_first_not_of(" \t\n", at);
  return found == std::string_view::npos ? '\0' : code[found];
}

// The word that ends right before `at`, spaces skipped; empty when no word does.
std::string_view word_before(std::string_view code, std::size_t at) {
  const std::size_t last = at == 0 ? std::string_view::npos : code.find_last_not_of(" \t\n", at - 1);
  if (last == std::string_view::npos) {
    return {};
  }
  std::size_t begin = last + 1;
  while (begin > 0 && is_word(code[begin - 1])) {
    --begin;
  }
  return code.substr(begin, last + 1 - begin);
}

bool is_call_of_the_library(std::string_view code, std::size_t at, std::size_t size) {
  if (first_after(code, at + size) != '(') {
    return false;
  }
  const char before = last_before(code, at);
  if (before == '.') {
    return false;
  }
  const std::string_view text = code.substr(0, at);
  if (before == '>') {
    return text.size() < 2 || text.substr(text.find_last_not_of(" \t\n") - 1, 2) != "->";
  }
  if (before != ':') {
    return true;
  }
  const std::size_t colons = text.find_last_not_of(" \t\n");
  const std::string_view space = colons == 0 ? std::string_view{} : word_before(code, colons - 1);
  return space.empty() || space == "std" || space == "return";
}

// unique_ptr<T>(new T(...)): the only way to a private constructor.
bool owned_at_once(std::string_view code, std::size_t at) {
  const std::size_t end = code.substr(0, at).find_last_of(";{}");
  const std::size_t begin = end == std::string_view::npos ? 0 : end;
  return code.substr(begin, at - begin).find("unique_ptr<") != std::string_view::npos;
}

bool applies(When when, std::string_view code, std::size_t at, std::string_view word) {
  switch (when) {
    case When::kAlways:
      return true;
    case When::kCalled:
      return is_call_of_the_library(code, at, word.size());
    case When::kOperator:
      if (word == "new" && owned_at_once(code, at)) {
        return false;
      }
      return word_before(code, at) != "operator" && (word != "delete" || last_before(code, at) != '=');
  }
  return false;
}

std::string reported(std::string_view what, std::string_view instead) {
  return "`" + std::string(what) + "` is banned: " + std::string(instead);
}

}  // namespace

std::vector<Finding> check_layers(const Source& source) {
  std::vector<Finding> findings;
  const auto& table = layers();
  const auto layer =
      std::find_if(table.begin(), table.end(), [&](const Layer& row) { return under(source.path, row.folder); });
  if (layer == table.end()) {
    return {{source.path, 0, "no rule says what this folder may include"}};
  }
  for (const auto& include : includes_of(source)) {
    if (include.angle || is_system(include.path) || library_of(include.path) != nullptr) {
      continue;
    }
    const bool ours = under(include.path, layer->folder) || under_any(include.path, layer->may_include);
    if (!ours || crosses_backends(source.path, include.path)) {
      findings.push_back({source.path,
                          include.line,
                          std::string(layer->folder) + " may not include " + include.path +
                              " (ARCHITECTURE.md, section 3)"});
    }
  }
  return findings;
}

std::vector<Finding> check_libraries(const Source& source) {
  std::vector<Finding> findings;
  for (const auto& include : includes_of(source)) {
    const Library* library = library_of(include.path);
    if (library == nullptr) {
      if (include.angle && !is_system(include.path)) {
        findings.push_back({source.path, include.line, "<" + include.path + "> is of no library that we use"});
      }
      continue;
    }
    if (!under_any(source.path, library->allowed)) {
      findings.push_back({source.path, include.line, "<" + include.path + "> stays behind its fence: " +
                                                         std::string(library->allowed.front())});
    } else if (is_header(source.path) && !under_any(source.path, headers_with_libraries())) {
      findings.push_back({source.path, include.line, "<" + include.path + "> in a header: include it in the .cc"});
    }
  }
  return findings;
}

std::vector<Finding> check_bans(const Source& source) {
  std::vector<Finding> findings;
  const std::string code = only(source.text, Part::kCode);
  for (const auto& ban : bans()) {
    if (!under_any(source.path, ban.where) || under_any(source.path, ban.allowed)) {
      continue;
    }
    for (const auto word : ban.words) {
      for (std::size_t at = code.find(word); at != std::string::npos; at = code.find(word, at + 1)) {
        const bool whole = (at == 0 || !is_word(code[at - 1])) &&
                           (at + word.size() == code.size() || !is_word(code[at + word.size()]));
        if (whole && applies(ban.when, code, at, word)) {
          findings.push_back({source.path, line_at(code, at), reported(word, ban.instead)});
        }
      }
    }
  }
  for (const std::string_view capture : {"[=]", "[=,"}) {
    for (std::size_t at = code.find(capture); at != std::string::npos; at = code.find(capture, at + 1)) {
      findings.push_back({source.path, line_at(code, at), reported("[=", "list what the lambda captures")});
    }
  }
  std::stable_sort(findings.begin(), findings.end(), [](const auto& a, const auto& b) { return a.line < b.line; });
  return findings;
}

std::vector<Finding> check_size(const Source& source) {
  static const Prefixes kLong = {};
  const auto lines = static_cast<int>(lines_of(source.text).size());
  if (lines <= kLinesMax || under_any(source.path, kLong)) {
    return {};
  }
  return {{source.path, 0, std::to_string(lines) + " lines, more than " + std::to_string(kLinesMax) + ": split it"}};
}

std::vector<Finding> check_todos(const Source& source) {
  std::vector<Finding> findings;
  const std::string comments = only(source.text, Part::kComment);
  for (const std::string_view word : {"TODO", "FIXME", "XXX"}) {
    for (std::size_t at = comments.find(word); at != std::string::npos; at = comments.find(word, at + 1)) {
      const std::string_view rest = std::string_view(comments).substr(at + word.size());
      const bool numbered =
          word == "TODO" && under(rest, "(#") && rest.size() > 2 && std::isdigit(static_cast<unsigned char>(rest[2])) != 0;
      if (!numbered) {
        findings.push_back({source.path, line_at(comments, at), std::string(word) + " without an issue: TODO(#12): ..."});
      }
    }
  }
  return findings;
}

std::vector<Finding> check_dead_files(const std::vector<Source>& sources, const std::vector<Source>& builds) {
  std::set<std::string> alive;
  for (const auto& source : sources) {
    for (const auto& include : includes_of(source)) {
      if (include.path != source.path) {
        alive.insert(include.path);
      }
    }
  }
  for (const auto& build : builds) {
    const std::string folder = build.path.substr(0, build.path.size() - std::string_view("CMakeLists.txt").size());
    std::string word;
    for (const char c : build.text + "\n") {
      if (is_word(c) || c == '.' || c == '/' || c == '-' || c == '+') {
        word.push_back(c);
        continue;
      }
      alive.insert(folder + word);
      word.clear();
    }
  }
  std::vector<Finding> findings;
  for (const auto& source : sources) {
    if (alive.count(source.path) == 0) {
      findings.push_back({source.path, 0, "no CMakeLists.txt lists it and nothing includes it"});
    }
  }
  return findings;
}

}  // namespace troupe::repo
