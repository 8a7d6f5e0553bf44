// Orders the plain stores of this process's other threads, by the kernel's membarrier: a thread that
// announces something in its fast path need not pay for a fence, because the rare thread that looks pays for
// all. Asked for once; not every system has it.
#pragma once

#include <atomic>

namespace cupool {

class AllThreads {
 public:
  // Before the first use of the two below; may be called again.
  static void prepare();
  // False: each thread has to issue a fence of its own.
  static bool can_be_ordered() { return can_be_ordered_.load(std::memory_order_relaxed); }
  // Orders this thread's stores before its loads and the same in all other threads. False: in this thread
  // alone; a filter of system calls may have come since.
  static bool order();

 private:
  static inline constinit std::atomic<bool> can_be_ordered_{false};
};

}  // namespace cupool
