// The slow path of Lock: spin, then yield, then sleep.
#include "base/lock.hpp"

#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>

namespace cupool {
namespace {

// About a microsecond: longer than most critical sections under our locks.
constexpr int kSpins = 100;
// The other sections last as long as a driver call.
constexpr int kYields = 100;
// Sleeps of 50 microseconds each.
constexpr int kSleepsInAMoment = 400;

void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb" ::: "memory");
#endif
}

}  // namespace

void Lock::wait_a_little(int turn) {
  if (turn < kSpins) {
    relax();
  } else if (turn < kSpins + kYields) {
    sched_yield();
  } else {
    // Unit tests tell by its yields that a thread waits (tests/unit/other_thread.hpp), however long it has.
    sched_yield();
    // The raw system call: the C library's nanosleep is a cancellation point, and this thread may hold
    // another lock.
    const int saved_errno = errno;
    const timespec moment{0, 50'000};
    syscall(SYS_nanosleep, &moment, nullptr);
    errno = saved_errno;
  }
}

void Lock::lock_slow() {
  for (int i = 0; !take_if_free(); ++i) wait_a_little(i);
}

bool Lock::try_lock_for_a_moment() {
  bool taken = take_if_free();
  for (int i = 0; !taken && i < kSpins + kYields + kSleepsInAMoment; ++i) {
    wait_a_little(i);
    taken = take_if_free();
  }
  if (taken) note_tried();
  return taken;
}

}  // namespace cupool
