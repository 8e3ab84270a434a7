// The rules of this repository that a compiler does not check: who includes whom, which library may
// be used where, which constructs are banned and what replaces them, sizes, dead files. Each check
// is a pure function of texts, so a test can plant a violation. An exception to a rule is a line in
// its table, with its reason.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::repo {

struct Source {
  std::string path;  // from the repository's root, with '/'
  std::string text;
};

struct Finding {
  std::string path;
  int line = 0;  // 1-based; 0: the whole file
  std::string message;
};

// What a character of a C++ text belongs to.
enum class Part { kCode, kComment, kLiteral };

// The text with everything but the given part blanked; newlines stay, so line numbers hold. A
// literal keeps its quotes as code.
[[nodiscard]] std::string only(std::string_view text, Part part);

// Each reports the violations of one rule in one source, in line order.
[[nodiscard]] std::vector<Finding> check_layers(
    const Source& source);  // folders, ARCHITECTURE.md section 3
[[nodiscard]] std::vector<Finding> check_libraries(
    const Source& source);  // one third-party library, one folder
[[nodiscard]] std::vector<Finding> check_bans(
    const Source& source);  // throw, getenv, libm, sleep, new, ...
[[nodiscard]] std::vector<Finding> check_size(const Source& source);  // at most 500 lines
[[nodiscard]] std::vector<Finding> check_todos(
    const Source& source);  // what is left to do names its issue

// Sources that no build description or script lists and no other source includes. `builds` are the
// files of read_builds.
[[nodiscard]] std::vector<Finding> check_dead_files(const std::vector<Source>& sources,
                                                    const std::vector<Source>& builds);

// A page has exactly one H1.
[[nodiscard]] std::vector<Finding> check_headings(const Source& page);

// Programs shown in the page's sh blocks exist, and so do the subcommands of ./dev. `exists`
// answers for a path from the root; `dev_usage` is the text of ./dev.
[[nodiscard]] std::vector<Finding> check_commands(
    const Source& page,
    std::string_view dev_usage,
    const std::function<bool(const std::string&)>& exists);

// Files of the tree below `root`, sorted by path: C++ and CUDA sources of our folders;
// CMakeLists.txt and shell scripts; Markdown pages.
[[nodiscard]] std::vector<Source> read_sources(const std::string& root);
[[nodiscard]] std::vector<Source> read_builds(const std::string& root);
[[nodiscard]] std::vector<Source> read_pages(const std::string& root);

// One line a finding: path:line: message. Empty when there is none.
[[nodiscard]] std::string describe(const std::vector<Finding>& findings);

}  // namespace troupe::repo
