#include "deploy/processor.h"

#include <algorithm>
#include <array>
#include <fstream>
#include <iterator>

namespace troupe::deploy {
namespace {

struct Needs {
  std::string_view kernel_set;
  std::string_view flag;
};

constexpr std::array kNeeds = {Needs{"avx2", "avx2"},
                               Needs{"avx2", "fma"},
                               Needs{"avx2", "f16c"},
                               Needs{"avx512", "avx512f"},
                               Needs{"avx512", "avx512bw"},
                               Needs{"avx512", "avx512vl"},
                               Needs{"avx512", "avx512dq"},
                               Needs{"avx512-bf16", "avx512f"},
                               Needs{"avx512-bf16", "avx512bw"},
                               Needs{"avx512-bf16", "avx512vl"},
                               Needs{"avx512-bf16", "avx512dq"},
                               Needs{"avx512-bf16", "avx512_bf16"},
                               Needs{"amx-bf16", "avx512f"},
                               Needs{"amx-bf16", "amx_tile"},
                               Needs{"amx-bf16", "amx_bf16"}};

// "key   : value" of /proc/cpuinfo; empty when it is another key.
std::string_view value_of(std::string_view line, std::string_view key) {
  const auto colon = line.find(':');
  if (!line.starts_with(key) || colon == std::string_view::npos ||
      line.substr(key.size(), colon - key.size()).find_first_not_of(" \t") !=
          std::string_view::npos) {
    return {};
  }
  const auto begin = line.find_first_not_of(" \t", colon + 1);
  return begin == std::string_view::npos ? std::string_view{} : line.substr(begin);
}

void split_words(std::string_view text, std::vector<std::string>& words) {
  while (!text.empty()) {
    const auto end = std::min(text.find(' '), text.size());
    if (end > 0) {
      words.emplace_back(text.substr(0, end));
    }
    text.remove_prefix(std::min(end + 1, text.size()));
  }
}

}  // namespace

Processor parse_processor(std::string_view text) {
  Processor processor;
  while (!text.empty() && !text.starts_with('\n')) {  // an empty line ends the first processor
    const auto end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (const auto name = value_of(line, "model name"); !name.empty()) {
      processor.name = name;
    }
    split_words(value_of(line, "flags"), processor.flags);
  }
  return processor;
}

Processor read_processor() {
  std::ifstream file("/proc/cpuinfo");
  return parse_processor(std::string(std::istreambuf_iterator<char>(file), {}));
}

std::vector<std::string_view> missing_flags(std::string_view kernel_set,
                                            const Processor& processor) {
  std::vector<std::string_view> missing;
  for (const auto& need : kNeeds) {
    if (need.kernel_set == kernel_set &&
        std::find(processor.flags.begin(), processor.flags.end(), need.flag) ==
            processor.flags.end()) {
      missing.push_back(need.flag);
    }
  }
  return missing;
}

}  // namespace troupe::deploy
