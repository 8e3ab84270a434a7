#include "deploy/output.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits.h>
#include <poll.h>
#include <string>
#include <unistd.h>

namespace troupe::deploy {
namespace {

constexpr int kStalledMsMax = 1000;

}  // namespace

Status Output::wait_writable() {
  for (;;) {
    const bool stopping = signals_ != nullptr && signals_->pending();
    pollfd watched[] = {{fd_, POLLOUT, 0},
                        {signals_ != nullptr && !stopping ? signals_->fd() : -1, POLLIN, 0}};
    const int ready = ::poll(watched, 2, stopping ? kStalledMsMax : -1);
    if (ready < 0 && errno != EINTR) {
      return error(Kind::kInternal,
                   std::string("cannot wait for standard output: ") + std::strerror(errno));
    }
    if (watched[0].revents != 0) {
      return {};
    }
    if (ready == 0) {
      return error(Kind::kCancelled, "nobody reads standard output");
    }
  }
}

Status Output::write(std::string_view text) {
  if (closed_) {
    return error(Kind::kCancelled, "standard output is closed");
  }
  while (!text.empty()) {
    TROUPE_TRY(wait_writable());
    // No more than PIPE_BUF: after poll() a pipe takes that much without blocking.
    const auto written = ::write(fd_, text.data(), std::min<std::size_t>(text.size(), PIPE_BUF));
    if (written >= 0) {
      text.remove_prefix(static_cast<std::size_t>(written));
    } else if (errno == EPIPE) {
      closed_ = true;
      return error(Kind::kCancelled, "standard output is closed");
    } else if (errno != EINTR && errno != EAGAIN) {
      return error(Kind::kInternal,
                   std::string("cannot write to standard output: ") + std::strerror(errno));
    }
  }
  return {};
}

}  // namespace troupe::deploy
