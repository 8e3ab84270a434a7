#include "deploy/progress.h"

#include <algorithm>
#include <cstdio>
#include <unistd.h>

namespace troupe::deploy {

std::string bar_text(const std::string& what, int percent) {
  constexpr int kWidth = 30;
  const int filled = percent * kWidth / 100;
  std::string number = std::to_string(percent);
  number.insert(0, 3 - std::min<std::size_t>(3, number.size()), ' ');
  return what + " [" + std::string(static_cast<std::size_t>(filled), '#') +
         std::string(static_cast<std::size_t>(kWidth - filled), ' ') + "] " + number + " %";
}

ProgressBar::ProgressBar(std::string what)
    : what_(std::move(what)), terminal_(::isatty(STDERR_FILENO) == 1) {}

ProgressBar::~ProgressBar() {
  if (shown_percent_ >= 0) {
    std::fputs("\r\x1b[K", stderr);
  }
}

void ProgressBar::show(std::uint64_t done, std::uint64_t total) {
  const double share = total == 0 ? 1 : static_cast<double>(done) / static_cast<double>(total);
  const int percent = std::clamp(static_cast<int>(share * 100), 0, 100);
  if (terminal_ && percent != shown_percent_) {
    shown_percent_ = percent;
    std::fprintf(stderr, "\r%s", bar_text(what_, percent).c_str());
  }
}

}  // namespace troupe::deploy
