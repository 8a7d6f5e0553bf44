// See submission_gate.hpp. A slot outlives its thread, whose end we may not learn of. So each new thread
// looks whether a few threads that have slots are gone: a program whose threads come and go uses about as
// many slots as it has threads at once, and who closes the gate looks at no more.
#include "order/submission_gate.hpp"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/after_fork.hpp"

namespace cupool::order {

constinit thread_local SubmissionGate::Slot* SubmissionGate::mine_ = nullptr;
constinit SubmissionGate::Slot SubmissionGate::slots_[kMostThreads];
constinit SubmissionGate::Slot SubmissionGate::rest_;

namespace {

CUPOOL_AFTER_FORK(forget_submission_gate, &SubmissionGate::forget_after_fork);

bool is_gone(int thread) {
  const int saved_errno = errno;
  const bool gone = syscall(SYS_tgkill, getpid(), thread, 0) != 0 && errno == ESRCH;
  errno = saved_errno;
  return gone;
}

}  // namespace

SubmissionGate::Slot* SubmissionGate::enroll() {
  Guard hold(enrolling_);
  fence_.prepare();
  constexpr size_t kFewLooks = 4;
  const int self = static_cast<int>(syscall(SYS_gettid));
  const size_t used = used_.load(std::memory_order_relaxed);
  const size_t looks = std::min(used, used < kMostThreads ? kFewLooks : kMostThreads);
  Slot* found = nullptr;
  for (size_t i = 0; i < looks && found == nullptr; ++i) {
    Slot& slot = slots_[looked_at_++ % used];
    if (is_gone(slot.thread.load(std::memory_order_relaxed))) found = &slot;
  }
  if (found == nullptr && used < kMostThreads) {
    found = &slots_[used];
    used_.store(used + 1, std::memory_order_release);
  }
  if (found == nullptr) {
    is_overfull_.store(true, std::memory_order_seq_cst);
    found = &rest_;
  }
  found->thread.store(self, std::memory_order_relaxed);
  return mine_ = found;
}

void SubmissionGate::wait_until_open(Slot& slot) {
  while (!fence_.enter_with_fence(slot.is_inside)) {
    Guard until_open(closing_);
  }
}

// Whether no submission is under way, or is over within a moment: most take a few microseconds.
bool SubmissionGate::is_empty() {
  constexpr int kMoment = 500;
  int looks = 0;
  const size_t used = used_.load(std::memory_order_acquire);
  for (size_t i = 0; i < used; ++i) {
    while (slots_[i].is_inside.load(std::memory_order_acquire)) {
      if (++looks < kMoment) continue;
      // A thread that was cancelled inside the driver has left its mark.
      if (!is_gone(slots_[i].thread.load(std::memory_order_relaxed))) return false;
      break;
    }
  }
  return true;
}

// A thread that enrolls after the barrier finds the gate closed.
bool SubmissionGate::close() {
  if (is_overfull_.load(std::memory_order_relaxed) || !closing_.try_lock()) return false;
  if (fence_.close() && !is_overfull_.load(std::memory_order_seq_cst) && is_empty()) return true;
  open();
  return false;
}

void SubmissionGate::open() {
  fence_.open();
  closing_.unlock();
}

void SubmissionGate::forget_after_fork() {
  const size_t used = used_.exchange(0, std::memory_order_relaxed);
  for (size_t i = 0; i < used; ++i) slots_[i].is_inside.store(false, std::memory_order_relaxed);
  mine_ = nullptr;
  fence_.open();
  enrolling_.reset_after_fork();
  closing_.reset_after_fork();
}

}  // namespace cupool::order
