// How a thread cache is used without a lock: its owner, one thread, enters and exits at the cost of two
// stores and a load; any other thread may stop the owner, have the cache to itself, and start the owner
// again. The stopping thread is the rare side of base/asymmetric_fence.hpp, the owner the fast one. Two
// threads must not stop the same owner: they hold the pool's cache lock.
#pragma once

#include <atomic>

#include "base/asymmetric_fence.hpp"

namespace cupool::pool {

class OwnerHandshake {
 public:
  OwnerHandshake() { fence_.prepare(); }

  // ---- For the owner.

  // Between these it has the cache to itself. Outside them not even a shelf's count may be read: another
  // thread may be emptying it.
  void enter() {
    if (!try_enter()) enter_slowly();
  }
  [[gnu::always_inline]] void exit() { fence_.exit_plainly(busy_); }
  // False: another thread has the cache, or may have it; not entered.
  [[gnu::always_inline]] bool try_enter() {
    if (fence_.try_enter(busy_)) [[likely]]
      return true;
    exit();
    return false;
  }
  // Around a longer use of the pool; the end of the context waits for it. The waiting thread calls
  // AsymmetricFence::order_all_threads() before is_in_use().
  void begin_use() {
    in_use_.store(true, std::memory_order_relaxed);
    AsymmetricFence::order_this_thread();
  }
  void end_use() { in_use_.store(false, std::memory_order_release); }

  // ---- For any thread.

  bool is_in_use() const { return in_use_.load(std::memory_order_acquire); }
  // Keeps the owner out until start().
  void stop();
  // The same of several owners with one barrier: begin_stop() of each, AsymmetricFence::order_all_threads(),
  // end_stop() of each, and AsymmetricFence::order_exits().
  void begin_stop() { fence_.begin_close(); }
  void end_stop(bool is_ordered);
  void start() { fence_.open(); }

 private:
  void enter_slowly();

  std::atomic<bool> busy_{false};
  std::atomic<bool> in_use_{false};
  AsymmetricFence fence_;  // closed: another thread has the cache
};

}  // namespace cupool::pool
