// A bar on standard error while a model is loaded; nothing when that is no terminal. Called from
// loading threads, one at a time.
#pragma once

#include <cstdint>
#include <string>

namespace troupe::deploy {

class ProgressBar final {
 public:
  explicit ProgressBar(std::string what);
  ~ProgressBar();  // wipes the bar away
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  void show(std::uint64_t done, std::uint64_t total);

 private:
  std::string what_;
  bool terminal_;
  int shown_percent_ = -1;
};

// The bar's text without control characters: "loading x [####    ]  50 %".
[[nodiscard]] std::string bar_text(const std::string& what, int percent);

}  // namespace troupe::deploy
