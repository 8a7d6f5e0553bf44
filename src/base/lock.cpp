// The slow half of Lock: spin, then futex. errno is kept, because a hook's caller may look at it.
#include "base/lock.hpp"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

namespace cupool {
namespace {

// About a microsecond: longer than any section under one of our locks, shorter than a sleep.
constexpr int kSpins = 100;

void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb" ::: "memory");
#endif
}

}  // namespace

void Lock::lock_slow() {
  for (int i = 0; i < kSpins; ++i) {
    if (state_.load(std::memory_order_relaxed) == kFree && take()) return;
    relax();
  }
  const int saved_errno = errno;
  while (state_.exchange(kContended, std::memory_order_acquire) != kFree) {
    syscall(SYS_futex, &state_, FUTEX_WAIT_PRIVATE, kContended, nullptr, nullptr, 0);
  }
  errno = saved_errno;
}

void Lock::wake_one() {
  const int saved_errno = errno;
  syscall(SYS_futex, &state_, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
  errno = saved_errno;
}

}  // namespace cupool
