// CheckHook: while it lives, what it was given is called when a check fails anywhere in the
// process, before the process ends: to print what led there.
#pragma once

#include <functional>

namespace troupe {

class CheckHook final {
 public:
  // `print` is called on any thread, with any lock held: it must not wait.
  explicit CheckHook(std::function<void()> print);
  ~CheckHook();
  CheckHook(const CheckHook&) = delete;
  CheckHook& operator=(const CheckHook&) = delete;

  void print() const { print_(); }

 private:
  std::function<void()> print_;
};

}  // namespace troupe
