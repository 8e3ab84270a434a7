// TextStream: turns the tokens of one answer into text as they come. The seam between the gateway
// and the tokenizer, so that serving can be tested without one. Owned by one request of the
// gateway; one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace troupe {

class TextStream {
 public:
  virtual ~TextStream() = default;
  [[nodiscard]] virtual std::string push(std::uint32_t token) = 0;  // whole code points only
  [[nodiscard]] virtual std::string flush() = 0;                    // the end: what was held back
};

// Makes one for a new request; empty: requests have no text.
using TextStreamFactory = std::function<std::unique_ptr<TextStream>()>;

}  // namespace troupe
