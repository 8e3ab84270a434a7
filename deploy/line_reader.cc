#include "deploy/line_reader.h"

#include <array>
#include <cerrno>
#include <poll.h>
#include <unistd.h>

namespace troupe::deploy {

bool LineReader::take_line(std::string& line) {
  const auto end = buffer_.find('\n', searched_);
  if (end == std::string::npos) {
    searched_ = buffer_.size();
    return false;
  }
  line.assign(buffer_, 0, end);
  buffer_.erase(0, end + 1);
  searched_ = 0;
  if (!line.empty() && line.back() == '\r') {
    line.pop_back();
  }
  return true;
}

LineReader::Got LineReader::read(std::string& line) {
  for (;;) {
    if (take_line(line)) {
      const bool whole = !skipping_ && line.size() <= kLineBytesMax;
      skipping_ = false;
      return whole ? Got::kLine : Got::kTooLong;
    }
    if (buffer_.size() > kLineBytesMax) {
      skipping_ = true;
      buffer_.clear();
      searched_ = 0;
    }
    if (ended_) {
      line.swap(buffer_);
      buffer_.clear();
      return line.empty() ? Got::kEnd : Got::kLine;
    }
    pollfd watched[] = {{fd_, POLLIN, 0}, {signals_.fd(), POLLIN, 0}};
    if (::poll(watched, 2, -1) < 0 && errno != EINTR) {
      return Got::kEnd;
    }
    if (watched[1].revents != 0) {
      return Got::kSignal;
    }
    if (watched[0].revents != 0) {
      std::array<char, 4096> bytes{};
      const auto count = ::read(fd_, bytes.data(), bytes.size());
      ended_ = count == 0 || (count < 0 && errno != EINTR && errno != EAGAIN);
      buffer_.append(bytes.data(), count > 0 ? static_cast<std::size_t>(count) : 0);
    }
  }
}

}  // namespace troupe::deploy
