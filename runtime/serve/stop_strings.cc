#include "runtime/serve/stop_strings.h"

#include <algorithm>
#include <utility>

namespace troupe {

StopMatcher::StopMatcher(const std::vector<std::string>& stops) {
  for (const auto& stop : stops) {
    Pattern pattern{stop, std::vector<std::size_t>(stop.size(), 0), 0};
    for (std::size_t i = 1; i < stop.size(); ++i) {
      std::size_t length = pattern.border[i - 1];
      while (length > 0 && stop[i] != stop[length]) {
        length = pattern.border[length - 1];
      }
      pattern.border[i] = length + (stop[i] == stop[length] ? 1 : 0);
    }
    patterns_.push_back(std::move(pattern));
  }
}

std::string StopMatcher::push(std::string_view piece) {
  if (matched_) {
    return {};
  }
  for (const char byte : piece) {
    held_.push_back(byte);
    std::size_t cut = 0;
    for (Pattern& pattern : patterns_) {
      while (pattern.state > 0 && pattern.text[pattern.state] != byte) {
        pattern.state = pattern.border[pattern.state - 1];
      }
      pattern.state += pattern.text[pattern.state] == byte ? 1 : 0;
      if (pattern.state == pattern.text.size()) {
        cut = std::max(cut, pattern.text.size());
      }
    }
    if (cut > 0) {
      matched_ = true;
      held_.resize(held_.size() - cut);
      return std::exchange(held_, {});
    }
  }
  std::size_t keep = 0;
  for (const Pattern& pattern : patterns_) {
    keep = std::max(keep, pattern.state);
  }
  std::string out = held_.substr(0, held_.size() - keep);
  held_.erase(0, out.size());
  return out;
}

std::string StopMatcher::flush() {
  return matched_ ? std::string() : std::exchange(held_, {});
}

}  // namespace troupe
