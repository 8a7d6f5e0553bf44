// A mutex of four bytes: it spins for a moment, then sleeps in the kernel. Usable in constinit globals, never destroyed,
// free of pthread state, so a forked child can simply reset it. Not recursive. Never held across a call of the driver or
// of the loader: both call back into us.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/thread_annotations.hpp"

namespace cupool {

class CUPOOL_CAPABILITY("mutex") Lock {
 public:
  constexpr Lock() = default;
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;

  void lock() CUPOOL_ACQUIRE() {
    if (!take()) lock_slow();
  }
  bool try_lock() CUPOOL_TRY_ACQUIRE(true) { return take(); }
  void unlock() CUPOOL_RELEASE() {
    if (state_.exchange(kFree, std::memory_order_release) == kContended) wake_one();
  }

  // Only in a forked child, where the thread that held it does not exist.
  void reset_after_fork() { state_.store(kFree, std::memory_order_relaxed); }

 private:
  enum State : uint32_t { kFree, kHeld, kContended };

  bool take() {
    uint32_t expected = kFree;
    return state_.compare_exchange_strong(expected, kHeld, std::memory_order_acquire, std::memory_order_relaxed);
  }
  void lock_slow();
  void wake_one();

  std::atomic<uint32_t> state_{kFree};
};

class CUPOOL_SCOPED_CAPABILITY Guard {
 public:
  explicit Guard(Lock& lock) CUPOOL_ACQUIRE(lock) : lock_(lock) { lock_.lock(); }
  ~Guard() CUPOOL_RELEASE() { lock_.unlock(); }
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;

 private:
  Lock& lock_;
};

}  // namespace cupool
