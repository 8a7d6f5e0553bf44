// A small mutex whose unlock is a plain store: a waiter spins for a moment, then yields, then sleeps until a
// holder wakes it. Where hundreds wait, their yields alone would keep the holder from going on, so there they
// sleep at once. Usable in constinit globals, never destroyed, so a fork child can simply reset it. Not
// recursive.
#pragma once

#include <atomic>
#include <cstdint>

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
  // Waits some milliseconds at most, times `moments`: the holder may be the very code that a signal handler
  // interrupted on this thread.
  bool try_lock_for_a_moment(int moments = 1) CUPOOL_TRY_ACQUIRE(true);
  void unlock() CUPOOL_RELEASE() {
    note_given_back();
    held_.store(0, std::memory_order_release);
    // The two may change places: who lies down in that moment looks again by itself, after a while.
    if (sleepers_.load(std::memory_order_relaxed) != 0) [[unlikely]]
      wake();
  }

  // One turn of a loop that waits for another thread: spins at first, later yields, then sleeps. Keeps errno,
  // because a hook's caller may look at it.
  static void wait_a_little(int turn);

  // Only in a fork child, where the thread that held it does not exist.
  void reset_after_fork() {
    forget();
    held_.store(0, std::memory_order_relaxed);
    sleepers_.store(0, std::memory_order_relaxed);
  }

 private:
  bool take() { return held_.exchange(1, std::memory_order_acquire) == 0; }
  bool take_if_free() { return held_.load(std::memory_order_relaxed) == 0 && take(); }
  [[gnu::noinline]] void lock_slow();
  void sleep(long least_ns, long most_ns);
  [[gnu::noinline]] void wake();

  std::atomic<uint32_t> held_{0};
  std::atomic<uint32_t> sleepers_{0};
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
