// The slow path of Lock: spin, then yield, then sleep. Where hundreds of threads wait, their yields alone
// would keep the holder from going on: they sleep at once, and the longer the more there are.
#include "base/lock.hpp"

#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/after_fork.hpp"

namespace cupool {
namespace {

// About a microsecond: longer than most critical sections under our locks.
constexpr int kSpins = 100;
// The other sections last as long as a driver call.
constexpr int kYields = 100;
// Sleeps of 50 microseconds each.
constexpr int kSleepsInAMoment = 400;
constexpr long kSleepNs = 50'000;

// More threads than that are many. One of them looks about this often, whatever their number.
constexpr int kFew = 8;
constexpr long kBetweenLooksNs = 10'000;
constexpr long kLongestSleepNs = 10'000'000;

// Threads in the slow path of whatever lock.
constinit std::atomic<int> waiting{0};
CUPOOL_AFTER_FORK(waiting_after_fork, [] { waiting.store(0, std::memory_order_relaxed); });

void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb" ::: "memory");
#endif
}

// Unit tests tell by its yields that a thread waits (tests/unit/other_thread.hpp), however long it has. The
// raw system call: the C library's nanosleep is a cancellation point, and this thread may hold another lock.
void sleep_for(long ns) {
  sched_yield();
  const int saved_errno = errno;
  const timespec moment{0, ns};
  syscall(SYS_nanosleep, &moment, nullptr);
  errno = saved_errno;
}

}  // namespace

void Lock::wait_a_little(int turn) {
  if (turn < kSpins) {
    relax();
  } else if (turn < kSpins + kYields) {
    sched_yield();
  } else {
    sleep_for(kSleepNs);
  }
}

void Lock::lock_slow() {
  waiting.fetch_add(1, std::memory_order_relaxed);
  for (int i = 0; !take_if_free(); ++i) {
    const int many = waiting.load(std::memory_order_relaxed);
    if (many <= kFew || i < kSpins) {
      wait_a_little(i);
    } else {
      sleep_for(std::clamp(many * kBetweenLooksNs, kSleepNs, kLongestSleepNs));
    }
  }
  waiting.fetch_sub(1, std::memory_order_relaxed);
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
