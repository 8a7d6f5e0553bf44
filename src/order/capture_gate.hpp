// Keeps our own driver calls and the program's stream captures apart: a record, query or free of ours would
// break a capture, so none begins while a stream captures, and a capture begins only when none is in flight.
// One per process, because a capture in global mode forbids such calls in every context. Two counters, no
// lock.
#pragma once

#include <sched.h>

#include <atomic>
#include <cstdint>

namespace cupool::order {

class CaptureGate {
 public:
  // While one exists, no call of this thread's breaks a capture: for it, nothing captures. (But for records
  // and waits of a whole context, which take the capturing streams along.)
  class Relaxed {
   public:
    Relaxed() { is_relaxed_ = true; }
    ~Relaxed() { is_relaxed_ = false; }
    Relaxed(const Relaxed&) = delete;
    Relaxed& operator=(const Relaxed&) = delete;
  };

  static bool is_relaxed() { return is_relaxed_; }
  bool is_capturing() const { return captures_.load(std::memory_order_acquire) != 0 && !is_relaxed_; }

  // Around a call of ours that would break a capture. False: a capture runs, the call must not be made.
  bool enter() {
    // begin_capture() mirrors this store and load: at least one side sees the other.
    calls_.fetch_add(1, std::memory_order_seq_cst);
    if (captures_.load(std::memory_order_seq_cst) == 0 || is_relaxed_) return true;
    leave();
    return false;
  }
  void leave() { calls_.fetch_sub(1, std::memory_order_release); }

  // Before the driver begins a capture.
  void begin_capture() {
    captures_.fetch_add(1, std::memory_order_seq_cst);
    while (calls_.load(std::memory_order_seq_cst) != 0) sched_yield();
  }
  void end_capture() {
    if (is_capturing()) captures_.fetch_sub(1, std::memory_order_release);
  }

  void forget_after_fork() {
    captures_.store(0, std::memory_order_relaxed);
    calls_.store(0, std::memory_order_relaxed);
  }

 private:
  std::atomic<uint32_t> captures_{0};
  std::atomic<uint32_t> calls_{0};
  static inline constinit thread_local bool is_relaxed_ = false;
};

}  // namespace cupool::order
