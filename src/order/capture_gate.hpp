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
  bool is_capturing() const { return captures_.load(std::memory_order_acquire) != 0; }

  // Around a call of ours that would break a capture. False: a capture runs, the call must not be made.
  bool enter() {
    // begin_capture() mirrors this store and load: at least one side sees the other.
    calls_.fetch_add(1, std::memory_order_seq_cst);
    if (captures_.load(std::memory_order_seq_cst) == 0) return true;
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
};

}  // namespace cupool::order
