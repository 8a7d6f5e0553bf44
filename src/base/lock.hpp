// A mutex of one byte whose unlock is a plain store: a waiter spins for a moment, then yields, then sleeps.
// Critical sections are short, so having the holder wake waiters would cost more than it saves. Usable in
// constinit globals, never destroyed, so a fork child can simply reset it. Not recursive.
#pragma once

#include <atomic>

#include "base/held_locks.hpp"
#include "base/thread_annotations.hpp"

namespace cupool {

class CUPOOL_CAPABILITY("mutex") Lock : private Ranked {
 public:
  constexpr explicit Lock(Rank rank) : Ranked(rank) {}
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;

  void lock() CUPOOL_ACQUIRE() {
    check_order();
    if (!take()) lock_slow();
    note_taken();
  }
  bool try_lock() CUPOOL_TRY_ACQUIRE(true) {
    const bool taken = take_if_free();
    if (taken) note_tried();
    return taken;
  }
  // Waits some milliseconds at most: the holder may be the very code that a signal handler interrupted on
  // this thread.
  bool try_lock_for_a_moment() CUPOOL_TRY_ACQUIRE(true);
  void unlock() CUPOOL_RELEASE() {
    note_given_back();
    held_.store(false, std::memory_order_release);
  }

  // One turn of a loop that waits for another thread: spins at first, later yields, then sleeps. Keeps errno,
  // because a hook's caller may look at it.
  static void wait_a_little(int turn);

  // Only in a fork child, where the thread that held it does not exist.
  void reset_after_fork() {
    forget();
    held_.store(false, std::memory_order_relaxed);
  }

 private:
  bool take() { return !held_.exchange(true, std::memory_order_acquire); }
  bool take_if_free() { return !held_.load(std::memory_order_relaxed) && take(); }
  void lock_slow();

  std::atomic<bool> held_{false};
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
