// The slow path of Lock: spin, then yield, then sleep.
#include "base/lock.hpp"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace cupool {
namespace {

// About a microsecond: longer than most critical sections under our locks.
constexpr int kSpins = 100;
// The other sections last as long as a driver call.
constexpr int kYields = 100;
constexpr long kShortestSleepNs = 1'000'000;
constexpr long kLongestSleepNs = 100'000'000;
// A moment is a few sleeps; a holder that goes on cuts them short.
constexpr int kSleepsInAMoment = 4;
constexpr long kSleepOfAMomentNs = 5'000'000;

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
  constexpr uint32_t kFew = 4;
  for (int i = 0; !take_if_free(); ++i) {
    const bool are_few = sleepers_.load(std::memory_order_relaxed) < kFew;
    if (i < kSpins || (i < kSpins + kYields && are_few)) {
      wait_a_little(i);
    } else {
      sleep(kShortestSleepNs, kLongestSleepNs);
    }
  }
}

// Looks again after a while, in case its holder did not see it lie down: one of many as often as one of few.
void Lock::sleep(long least_ns, long most_ns) {
  constexpr long kBetweenLooksNs = 50'000;
  // As in wait_a_little().
  sched_yield();
  const int saved_errno = errno;
  const long many = sleepers_.fetch_add(1, std::memory_order_seq_cst);
  const timespec moment{0, std::clamp(many * kBetweenLooksNs, least_ns, most_ns)};
  syscall(SYS_futex, &held_, FUTEX_WAIT_PRIVATE, 1, &moment, nullptr, 0);
  sleepers_.fetch_sub(1, std::memory_order_relaxed);
  errno = saved_errno;
}

void Lock::wake() {
  const int saved_errno = errno;
  syscall(SYS_futex, &held_, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
  errno = saved_errno;
}

bool Lock::try_lock_for_a_moment(int moments) {
  bool taken = take_if_free();
  for (int i = 0; !taken && i < kSpins + kYields; ++i) {
    wait_a_little(i);
    taken = take_if_free();
  }
  for (int i = 0; !taken && i < kSleepsInAMoment * moments; ++i) {
    sleep(kSleepOfAMomentNs, kSleepOfAMomentNs);
    taken = take_if_free();
  }
  if (taken) note_tried();
  return taken;
}

}  // namespace cupool
