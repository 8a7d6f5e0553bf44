// unshare() and setns() for what the kernel grants to processes with a single thread alone, such as a user
// namespace of one's own: a program that has one thread has no other one of ours meanwhile. In a process
// without CUDA both act as without cupool.
#include <dlfcn.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

#include "base/preserve_errno.hpp"
#include "cuda/real.hpp"
#include "hooks/process/background_thread.hpp"
#include "hooks/process/process_lifetime.hpp"

namespace cupool::hooks {
namespace {

#ifndef CLONE_NEWTIME
constexpr int CLONE_NEWTIME = 0x80;
#endif
constexpr int kForOneThread = CLONE_NEWUSER | CLONE_VM | CLONE_SIGHAND | CLONE_THREAD;

// The answer of the kernel to a process that has other threads.
template <typename Call>
int call_alone(Call&& call) {
  constexpr int kMostTries = 100;
  constexpr uint64_t kMillisecond = 1'000'000;
  const BackgroundThreadAbsence absence;
  int result = call();
  for (int i = 0; result != 0 && errno == EINVAL && absence.ended_any() && i < kMostTries; ++i) {
    sleep_for(kMillisecond);
    result = call();
  }
  return result;
}

template <typename Function>
Function next(const char* name) {
  const auto find = cuda::real_dlsym();
  return find == nullptr ? nullptr : reinterpret_cast<Function>(find(RTLD_NEXT, name));
}

}  // namespace

extern "C" {
#pragma GCC visibility push(default)

int unshare(int flags) noexcept {
  const auto real = next<int (*)(int)>("unshare");
  const auto call = [&] {
    return real != nullptr ? real(flags) : static_cast<int>(syscall(SYS_unshare, flags));
  };
  return is_alive() && (flags & kForOneThread) != 0 && is_own_process() ? call_alone(call) : call();
}

int setns(int descriptor, int kind) noexcept {
  const auto real = next<int (*)(int, int)>("setns");
  const auto call = [&] {
    return real != nullptr ? real(descriptor, kind) : static_cast<int>(syscall(SYS_setns, descriptor, kind));
  };
  const bool may_be_for_one = kind == 0 || (kind & (CLONE_NEWUSER | CLONE_NEWTIME)) != 0;
  return is_alive() && may_be_for_one && is_own_process() ? call_alone(call) : call();
}

#pragma GCC visibility pop
}  // extern "C"

}  // namespace cupool::hooks
