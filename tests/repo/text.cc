#include "tests/repo/text.h"

#include <algorithm>
#include <cctype>

namespace troupe::repo {
namespace {

std::string trimmed(std::string_view text) {
  const auto space = " \t\r";
  const std::size_t begin = text.find_first_not_of(space);
  return begin == std::string_view::npos
             ? ""
             : std::string(text.substr(begin, text.find_last_not_of(space) - begin + 1));
}

}  // namespace

bool is_word(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
}

bool under(std::string_view path, std::string_view prefix) {
  return path.starts_with(prefix);
}

bool under_any(std::string_view path, const Prefixes& prefixes) {
  return std::any_of(prefixes.begin(), prefixes.end(), [&](std::string_view prefix) {
    return under(path, prefix);
  });
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

bool is_include(std::string_view line) {
  const std::string text = trimmed(line);
  return under(text, "#") && under(trimmed(std::string_view(text).substr(1)), "include");
}

std::vector<Include> includes_of(const Source& source) {
  std::vector<Include> includes;
  const auto code = lines_of(only(source.text, Part::kCode));
  const auto raw = lines_of(source.text);
  for (std::size_t i = 0; i < code.size(); ++i) {
    if (!is_include(code[i])) {
      continue;
    }
    const std::size_t open = raw[i].find_first_of("<\"");
    const std::size_t close =
        open == std::string::npos ? open : raw[i].find_first_of(">\"", open + 1);
    if (close != std::string::npos) {
      includes.push_back({raw[i].substr(open + 1, close - open - 1),
                          raw[i][open] == '<',
                          static_cast<int>(i) + 1});
    }
  }
  return includes;
}

}  // namespace troupe::repo
