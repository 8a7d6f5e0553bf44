// The slow half of Lock: spin, then let others run, then sleep a little. errno is kept, because a hook's
// caller may look at it.
#include "base/lock.hpp"

#include <sched.h>
#include <time.h>

#include <cerrno>

namespace cupool {
namespace {

// About a microsecond: longer than most sections under one of our locks.
constexpr int kSpins = 100;
// The rest are as long as a call of the driver.
constexpr int kYields = 100;

void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb" ::: "memory");
#endif
}

}  // namespace

void Lock::lock_slow() {
  const int saved_errno = errno;
  for (int i = 0; !take_if_free(); ++i) {
    if (i < kSpins) {
      relax();
    } else if (i < kSpins + kYields) {
      sched_yield();
    } else {
      const timespec moment{0, 50'000};
      nanosleep(&moment, nullptr);
    }
  }
  errno = saved_errno;
}

}  // namespace cupool
