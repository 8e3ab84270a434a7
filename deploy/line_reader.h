// LineReader: lines of standard input, without blocking out signals. Main thread.
#pragma once

#include "deploy/signals.h"

#include <string>

namespace troupe::deploy {

class LineReader final {
 public:
  enum class Got {
    kLine,
    kEnd,  // the input has ended
    kSignal,
    kTooLong,  // the line has more than kLineBytesMax bytes; it was skipped
  };
  static constexpr std::size_t kLineBytesMax = std::size_t{16} << 20U;

  LineReader(int fd, const Signals& signals) : fd_(fd), signals_(signals) {}

  // The next line without its end. A last line without an end counts.
  [[nodiscard]] Got read(std::string& line);

 private:
  [[nodiscard]] bool take_line(std::string& line);

  int fd_;
  const Signals& signals_;
  std::string buffer_;
  std::size_t searched_ = 0;  // no line end before this
  bool ended_ = false;
  bool skipping_ = false;
};

}  // namespace troupe::deploy
