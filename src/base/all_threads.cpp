// See all_threads.hpp. One flag, which goes up once.
#include "base/all_threads.hpp"

#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace cupool {

// The thread sanitizer knows nothing of membarrier and would report what it orders.
void AllThreads::prepare() {
#if !defined(__SANITIZE_THREAD__)
  if (can_be_ordered()) return;
  const bool can = syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0;
  can_be_ordered_.store(can, std::memory_order_relaxed);
#endif
}

bool AllThreads::order() {
  // Another thread's fence does not order our stores before our loads.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  return can_be_ordered() && syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0) == 0;
}

}  // namespace cupool
