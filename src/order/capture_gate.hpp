// Keeps driver calls of ours that concern a whole context (a record, a wait, a synchronisation of it) and the
// program's stream captures apart: such a call takes the context's capturing streams along, and ends their
// captures. So none begins while a stream captures, and a capture begins only when none is in flight in its
// context. Captures of other contexts are not broken, and not held up: a call may stand for as long as a
// launch in its context stands. All other calls of ours break no capture while the thread's own mode is
// relaxed (cuda/relaxed_capture.hpp). Counters, no lock.
#pragma once

#include <sched.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "driver/driver.hpp"

namespace cupool::order {

class CaptureGate {
 public:
  // While one exists, no call of this thread's breaks a capture, but for those of a whole context: for it,
  // nothing captures.
  class Relaxed {
   public:
    Relaxed() : before_(is_relaxed_) { is_relaxed_ = true; }
    ~Relaxed() { is_relaxed_ = before_; }
    Relaxed(const Relaxed&) = delete;
    Relaxed& operator=(const Relaxed&) = delete;

   private:
    const bool before_;
  };

  static bool is_relaxed() { return is_relaxed_; }
  bool is_capturing() const { return captures_.load(std::memory_order_acquire) != 0 && !is_relaxed_; }

  // Around a call of ours that concerns the whole context. False: a capture runs, the call must not be made.
  bool enter(driver::Context context) {
    // begin_capture() mirrors this store and load: at least one side sees the other.
    calls_of(context).fetch_add(1, std::memory_order_seq_cst);
    if (captures_.load(std::memory_order_seq_cst) == 0) return true;
    leave(context);
    return false;
  }
  void leave(driver::Context context) { calls_of(context).fetch_sub(1, std::memory_order_release); }

  // Before the driver begins a capture of a stream of `context`; null: of one that has no memory of ours.
  // (The driver lets a capture wait as long as a call that stands there, too: both wait for the same launch.)
  void begin_capture(driver::Context context = nullptr) {
    captures_.fetch_add(1, std::memory_order_seq_cst);
    if (context == nullptr) return;
    while (calls_of(context).load(std::memory_order_seq_cst) != 0) sched_yield();
  }
  void end_capture() {
    if (captures_.load(std::memory_order_acquire) != 0) captures_.fetch_sub(1, std::memory_order_release);
  }

  void forget_after_fork() {
    captures_.store(0, std::memory_order_relaxed);
    for (Calls& one : calls_) one.count.store(0, std::memory_order_relaxed);
    other_calls_.store(0, std::memory_order_relaxed);
  }

 private:
  // Kept when a context ends: its handle may come back. Contexts that find no place share one count, with
  // calls for a context that has ended.
  struct Calls {
    std::atomic<driver::Context> context{nullptr};
    std::atomic<uint32_t> count{0};
  };

  std::atomic<uint32_t>& calls_of(driver::Context context) {
    if (context == nullptr) return other_calls_;
    for (Calls& one : calls_) {
      driver::Context known = one.context.load(std::memory_order_acquire);
      if (known == nullptr && one.context.compare_exchange_strong(known, context)) return one.count;
      if (known == context) return one.count;
    }
    return other_calls_;
  }

  std::atomic<uint32_t> captures_{0};
  std::array<Calls, 64> calls_{};
  std::atomic<uint32_t> other_calls_{0};
  static inline constinit thread_local bool is_relaxed_ = false;
};

}  // namespace cupool::order
