// The contexts of the process, and which of them have memory that another one can access. A fixed array under
// its own lock, the innermost of order/: no driver call is made and no other lock is taken under it.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/lock.hpp"
#include "driver/driver.hpp"

namespace cupool::order {

class Contexts {
 public:
  static constexpr size_t kMost = 256;

  // False: known already, or the table is full.
  bool add(driver::Context context) {
    Guard hold(lock_);
    if (find_locked(context) != nullptr || count_ == kMost) return false;
    all_[count_++] = {context};
    return true;
  }
  void remove(driver::Context context) {
    Guard hold(lock_);
    if (Known* const known = find_locked(context)) *known = all_[--count_];
  }
  // Its end has begun. Until the driver has answered it is known to ended() alone: a new context may have the
  // same handle.
  void begin_end(driver::Context context, uint64_t ending) {
    Guard hold(lock_);
    if (Known* const known = find_locked(context)) known->ending = ending;
  }
  // It has ended, or lives on as it was; maybe somebody has met it again meanwhile. Returns the context, if
  // it lives on and others have access to it.
  driver::Context ended(uint64_t ending, bool gone) {
    Guard hold(lock_);
    for (size_t i = 0; i < count_; ++i) {
      if (all_[i].ending != ending || ending == 0) continue;
      const Known ended = all_[i];
      all_[i] = all_[--count_];
      if (gone) return nullptr;
      Known* known = find_locked(ended.context);
      if (known == nullptr) *(known = &all_[count_++]) = {ended.context};
      known->has_peers = known->has_peers || ended.has_peers;
      return known->has_peers ? known->context : nullptr;
    }
    return nullptr;
  }
  size_t count() {
    Guard hold(lock_);
    return count_;
  }

  // From now on work of other contexts may touch memory of this one. False: it is not known.
  bool note_peers(driver::Context owner) {
    Guard hold(lock_);
    Known* const known = find_locked(owner);
    if (known != nullptr) known->has_peers = true;
    return known != nullptr;
  }
  bool has_peers(driver::Context owner) {
    Guard hold(lock_);
    const Known* const known = find_locked(owner);
    return known != nullptr && known->has_peers;
  }

  // Streams wait for values in memory, which only later submissions may write.
  void note_value_wait() { has_value_waits_.store(true, std::memory_order_relaxed); }
  bool has_value_waits() const { return has_value_waits_.load(std::memory_order_relaxed); }

  void forget_after_fork() CUPOOL_NO_THREAD_SAFETY_ANALYSIS {
    lock_.reset_after_fork();
    count_ = 0;
    has_value_waits_.store(false, std::memory_order_relaxed);
  }

 private:
  struct Known {
    driver::Context context = nullptr;
    bool has_peers = false;
    uint64_t ending = 0;  // 0: it is not ending
  };

  Known* find_locked(driver::Context context) CUPOOL_REQUIRES(lock_) {
    for (size_t i = 0; i < count_; ++i) {
      if (all_[i].context == context && all_[i].ending == 0) return &all_[i];
    }
    return nullptr;
  }

  Lock lock_{Rank::kContexts};
  std::array<Known, kMost> all_ CUPOOL_GUARDED_BY(lock_){};
  size_t count_ CUPOOL_GUARDED_BY(lock_) = 0;
  std::atomic<bool> has_value_waits_{false};
};

}  // namespace cupool::order
