// BodyBudget: bounds the bytes of request bodies that all connections of a server hold together.
// Private to net/. BodyBudget: any thread; BodyLease: one thread at a time.
//
// BB-1: what leases hold together never exceeds the limit, and comes back with their end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>

namespace troupe::net {

class BodyBudget final {
 public:
  explicit BodyBudget(std::size_t limit) : limit_(limit) {}

  [[nodiscard]] std::size_t limit() const { return limit_; }
  [[nodiscard]] std::size_t held() const {
    const std::scoped_lock lock(mutex_);
    return held_;
  }
  [[nodiscard]] std::uint64_t refused() const {
    const std::scoped_lock lock(mutex_);
    return refused_;
  }

 private:
  friend class BodyLease;

  // Whether `asked` more bytes fit; then `taken` of them are taken, else a refusal is counted.
  [[nodiscard]] bool take(std::size_t asked, std::size_t taken) {
    const std::scoped_lock lock(mutex_);
    const bool fits = asked <= limit_ - held_;
    refused_ += fits ? 0 : 1;
    held_ += fits ? taken : 0;
    return fits;
  }
  void give_back(std::size_t bytes) {
    const std::scoped_lock lock(mutex_);
    held_ -= bytes;
  }

  const std::size_t limit_;
  mutable std::mutex mutex_;
  std::size_t held_ = 0;
  std::uint64_t refused_ = 0;
};

// One body's part.
class BodyLease final {
 public:
  explicit BodyLease(std::shared_ptr<BodyBudget> budget) : budget_(std::move(budget)) {}
  BodyLease(BodyLease&& other) noexcept
      : budget_(std::move(other.budget_)), bytes_(std::exchange(other.bytes_, 0)) {}
  BodyLease& operator=(BodyLease&&) = delete;
  // NOLINTNEXTLINE(bugprone-exception-escape): a mutex that can't be locked ends the process
  ~BodyLease() { release(); }

  [[nodiscard]] const BodyBudget& budget() const { return *budget_; }
  // Whether a body that will have this size may begin; takes nothing yet, as a client that
  // announces much and sends nothing must not keep the others out.
  [[nodiscard]] bool may_begin(std::size_t size) { return budget_->take(size, 0); }
  // The body has grown by these bytes; false: they don't fit, and nothing was taken.
  [[nodiscard]] bool grow(std::size_t more) {
    const bool fits = budget_->take(more, more);
    bytes_ += fits ? more : 0;
    return fits;
  }
  void release() {
    if (bytes_ > 0) {
      budget_->give_back(std::exchange(bytes_, 0));
    }
  }

 private:
  std::shared_ptr<BodyBudget> budget_;
  std::size_t bytes_ = 0;
};

}  // namespace troupe::net
