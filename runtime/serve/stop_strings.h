// StopMatcher: finds stop strings in a text that arrives in pieces, and holds back what might
// become one. Owned by one request of the gateway; one thread.
//
// ST-1: how the text is cut into pieces does not change the answer: it ends at the first byte
//       that completes a stop string, and the longest one completed there is cut off.
// ST-2: as long as pieces and stop strings are whole code points, so is every text given out.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

class StopMatcher final {
 public:
  explicit StopMatcher(const std::vector<std::string>& stops);  // REQUIRES: none is empty

  // Text that may be given out now. After a match: what stood before the stop string, then nothing
  // for ever.
  [[nodiscard]] std::string push(std::string_view piece);
  // The end of the text: what was held back.
  [[nodiscard]] std::string flush();
  [[nodiscard]] bool matched() const { return matched_; }

 private:
  struct Pattern {
    std::string text;
    std::vector<std::size_t>
        border;  // of every prefix: length of its longest proper prefix that is also its suffix
    std::size_t state = 0;  // bytes matched at the end of the text so far
  };

  std::vector<Pattern> patterns_;
  std::string held_;
  bool matched_ = false;
};

}  // namespace troupe
