// Telling code, comments and literals apart, and reading the tree.
#include "tests/repo/layering.h"
#include "tests/repo/text.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace troupe::repo {
namespace {

namespace fs = std::filesystem;

constexpr std::array<std::string_view, 8> kFolders = {
    "actors", "bench", "deploy", "kernels", "net", "runtime", "schema", "tests"};
constexpr std::array<std::string_view, 5> kExtensions = {".h", ".cc", ".cpp", ".cu", ".cuh"};

// A ' inside a number (1'000, 0xff'ff) opens no literal: the word that it continues begins with a
// digit.
bool separates_digits(std::string_view text, std::size_t at) {
  std::size_t begin = at;
  while (begin > 0 && (is_word(text[begin - 1]) || text[begin - 1] == '\'')) {
    --begin;
  }
  return begin < at && std::isdigit(static_cast<unsigned char>(text[begin])) != 0;
}

std::size_t end_of_quoted(std::string_view text, std::size_t open) {
  std::size_t at = open + 1;
  while (at < text.size() && text[at] != text[open] && text[at] != '\n') {
    at += text[at] == '\\' ? 2 : 1;
  }
  return std::min(at, text.size());
}

// The position of the closing quote of R"x(...)x", `open` being the first quote.
std::size_t end_of_raw(std::string_view text, std::size_t open) {
  const std::size_t bracket = text.find('(', open);
  if (bracket == std::string_view::npos) {
    return text.size();
  }
  const std::string close = ")" + std::string(text.substr(open + 1, bracket - open - 1)) + "\"";
  const std::size_t end = text.find(close, bracket);
  return end == std::string_view::npos ? text.size() : end + close.size() - 1;
}

struct Span {
  std::size_t end;  // one past the last character of the part
  Part part;
};

// The comment or literal that begins at `at`, or one character of code.
Span next_part(std::string_view text, std::size_t at) {
  const std::string_view two = text.substr(at, 2);
  if (two == "//") {
    return {std::min(text.find('\n', at), text.size()), Part::kComment};
  }
  if (two == "/*") {
    const std::size_t end = text.find("*/", at + 2);
    return {end == std::string_view::npos ? text.size() : end + 2, Part::kComment};
  }
  if (text[at] == '"' && at > 0 && text[at - 1] == 'R') {
    return {std::min(end_of_raw(text, at) + 1, text.size()), Part::kLiteral};
  }
  if (text[at] == '"' || (text[at] == '\'' && !separates_digits(text, at))) {
    return {std::min(end_of_quoted(text, at) + 1, text.size()), Part::kLiteral};
  }
  return {at + 1, Part::kCode};
}

std::string read_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::vector<Source> read_where(const std::string& root,
                               const std::string& folder,
                               const std::function<bool(const fs::path&)>& wanted) {
  std::vector<Source> sources;
  const fs::path start = fs::path(root) / folder;
  if (!fs::is_directory(start)) {
    return sources;
  }
  for (const auto& entry : fs::recursive_directory_iterator(start)) {
    if (entry.is_regular_file() && wanted(entry.path())) {
      sources.push_back(
          {entry.path().lexically_relative(root).generic_string(), read_file(entry.path())});
    }
  }
  return sources;
}

std::vector<Source> sorted(std::vector<Source> sources) {
  std::sort(sources.begin(), sources.end(), [](const Source& a, const Source& b) {
    return a.path < b.path;
  });
  return sources;
}

void append(std::vector<Source>& to, std::vector<Source> from) {
  for (auto& source : from) {
    to.push_back(std::move(source));
  }
}

}  // namespace

std::string only(std::string_view text, Part part) {
  std::string kept(text.size(), ' ');
  for (std::size_t at = 0; at < text.size();) {
    const Span span = next_part(text, at);
    for (std::size_t i = at; i < span.end; ++i) {
      const bool quote = span.part == Part::kLiteral && (i == at || i + 1 == span.end);
      const bool keep = text[i] == '\n' || (quote ? part == Part::kCode : span.part == part);
      kept[i] = keep ? text[i] : ' ';
    }
    at = span.end;
  }
  return kept;
}

std::vector<Source> read_sources(const std::string& root) {
  std::vector<Source> all;
  for (const auto folder : kFolders) {
    append(all, read_where(root, std::string(folder), [](const fs::path& path) {
             const std::string extension = path.extension().string();
             return std::find(kExtensions.begin(), kExtensions.end(), extension) !=
                    kExtensions.end();
           }));
  }
  return sorted(std::move(all));
}

std::vector<Source> read_builds(const std::string& root) {
  std::vector<Source> all = {{"CMakeLists.txt", read_file(fs::path(root) / "CMakeLists.txt")}};
  for (const auto folder : kFolders) {
    append(all, read_where(root, std::string(folder), [](const fs::path& path) {
             return path.filename() == "CMakeLists.txt" || path.extension() == ".sh";
           }));
  }
  return sorted(std::move(all));
}

std::vector<Source> read_pages(const std::string& root) {
  const auto is_page = [](const fs::path& path) { return path.extension() == ".md"; };
  std::vector<Source> all = read_where(root, "docs", is_page);
  append(all, read_where(root, "models", is_page));
  for (const auto folder : kFolders) {
    append(all, read_where(root, std::string(folder), is_page));
  }
  for (const auto& entry : fs::directory_iterator(root)) {
    if (entry.is_regular_file() && is_page(entry.path())) {
      all.push_back({entry.path().filename().string(), read_file(entry.path())});
    }
  }
  return sorted(std::move(all));
}

std::string describe(const std::vector<Finding>& findings) {
  std::string text;
  for (const auto& finding : findings) {
    text += finding.path + (finding.line > 0 ? ":" + std::to_string(finding.line) : "") + ": " +
            finding.message + "\n";
  }
  return text;
}

}  // namespace troupe::repo
