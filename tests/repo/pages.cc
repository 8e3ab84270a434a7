// Checks of the Markdown pages.
#include "tests/repo/layering.h"

#include <sstream>

namespace troupe::repo {
namespace {

bool starts(std::string_view text, std::string_view prefix) {
  return text.substr(0, prefix.size()) == prefix;
}

std::vector<std::string> words_of(const std::string& line) {
  std::istringstream stream(line);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) {
    if (starts(word, "#")) {
      break;
    }
    words.push_back(word);
  }
  return words;
}

// What is wrong with one line of a sh block; empty when nothing is.
std::string wrong_command(const std::vector<std::string>& words,
                          std::string_view dev_usage,
                          const std::function<bool(const std::string&)>& exists) {
  const std::string& program = words.front();
  if (!starts(program, "./") && !starts(program, "build/")) {
    return "";
  }
  const std::string path = starts(program, "./") ? program.substr(2) : program;
  if (!starts(path, "build/") && !exists(path)) {
    return program + " does not exist";
  }
  if (path == "dev" && words.size() > 1 &&
      dev_usage.find("\n  " + words[1] + " ") == std::string_view::npos) {
    return "./dev has no command " + words[1];
  }
  return "";
}

}  // namespace

std::vector<Finding> check_headings(const Source& page) {
  std::istringstream stream(page.text);
  int titles = 0;
  bool fenced = false;
  for (std::string line; std::getline(stream, line);) {
    fenced = starts(line, "```") ? !fenced : fenced;
    titles += !fenced && starts(line, "# ") ? 1 : 0;
  }
  if (titles == 1) {
    return {};
  }
  return {{page.path, 0, "has " + std::to_string(titles) + " H1 headings; a page has one"}};
}

std::vector<Finding> check_commands(const Source& page,
                                    std::string_view dev_usage,
                                    const std::function<bool(const std::string&)>& exists) {
  std::vector<Finding> findings;
  std::istringstream stream(page.text);
  bool shell = false;
  int number = 0;
  for (std::string line; std::getline(stream, line);) {
    ++number;
    if (starts(line, "```")) {
      shell = !shell && starts(line, "```sh");
      continue;
    }
    const auto words = words_of(line);
    const std::string wrong =
        shell && !words.empty() ? wrong_command(words, dev_usage, exists) : "";
    if (!wrong.empty()) {
      findings.push_back({page.path, number, wrong});
    }
  }
  return findings;
}

}  // namespace troupe::repo
