// Small scans that the checks share. Pure; any thread.
#pragma once

#include "tests/repo/layering.h"

#include <string>
#include <string_view>
#include <vector>

namespace troupe::repo {

using Prefixes = std::vector<std::string_view>;

struct Include {
  std::string path;
  bool angle = false;
  int line = 0;
};

[[nodiscard]] bool is_word(char c);  // of an identifier or a number
[[nodiscard]] bool under(std::string_view path, std::string_view prefix);
[[nodiscard]] bool under_any(std::string_view path, const Prefixes& prefixes);
[[nodiscard]] std::vector<std::string> lines_of(std::string_view text);
[[nodiscard]] bool is_include(std::string_view line);
[[nodiscard]] std::vector<Include> includes_of(const Source& source);

}  // namespace troupe::repo
