// The sched_yield() of the unit tests, in place of the C library's.
#include "other_thread.hpp"

#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

extern "C" int sched_yield() noexcept {
  if (auto* const count = cupool::test::yields_of_this_thread) count->fetch_add(1);
  return static_cast<int>(syscall(SYS_sched_yield));
}
