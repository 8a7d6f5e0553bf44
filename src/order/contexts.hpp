// The contexts of the process, and whether they can access each other's memory. A fixed array under its own
// lock, the innermost of order/: it is held across the driver call that makes a context wait for an event,
// and no other lock is taken under it.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>

#include "base/lock.hpp"
#include "driver/driver.hpp"

namespace cupool::order {

class Contexts {
 public:
  static constexpr size_t kMost = 256;

  // False: known already, or the table is full.
  bool add(driver::Context context) {
    Guard hold(lock_);
    for (size_t i = 0; i < count_; ++i) {
      if (all_[i] == context) return false;
    }
    if (count_ == kMost) return false;
    all_[count_++] = context;
    return true;
  }
  bool remove(driver::Context context) {
    Guard hold(lock_);
    for (size_t i = 0; i < count_; ++i) {
      if (all_[i] != context) continue;
      all_[i] = all_[--count_];
      return true;
    }
    return false;
  }
  size_t count() {
    Guard hold(lock_);
    return count_;
  }

  // From now on work of one context may touch memory of another.
  void connect() { connected_.store(true, std::memory_order_release); }
  bool are_connected() const { return connected_.load(std::memory_order_acquire); }

  // Streams wait for values in memory, which only later submissions may write.
  void note_gates() { has_gates_.store(true, std::memory_order_relaxed); }
  bool has_gates() const { return has_gates_.load(std::memory_order_relaxed); }

  // All later work of `context`, and of all contexts that may touch its memory, runs after `event`.
  driver::Status order_after(driver::Driver& driver, driver::Context context, driver::Event event) {
    if (!are_connected()) return driver.order_after(context, event);
    Guard hold(lock_);
    driver::Status status = driver::kSuccess;
    for (size_t i = 0; i < count_ && status == driver::kSuccess; ++i)
      status = driver.order_after(all_[i], event);
    return status;
  }

  void forget_after_fork() CUPOOL_NO_THREAD_SAFETY_ANALYSIS {
    lock_.reset_after_fork();
    count_ = 0;
    connected_.store(false, std::memory_order_relaxed);
    has_gates_.store(false, std::memory_order_relaxed);
  }

 private:
  Lock lock_;
  std::array<driver::Context, kMost> all_ CUPOOL_GUARDED_BY(lock_){};
  size_t count_ CUPOOL_GUARDED_BY(lock_) = 0;
  std::atomic<bool> connected_{false};
  std::atomic<bool> has_gates_{false};
};

}  // namespace cupool::order
