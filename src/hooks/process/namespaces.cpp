// unshare() and setns(): a program that has one thread has no other one of ours meanwhile. Some namespaces
// the kernel grants to processes with a single thread alone; in the others our threads would stay where the
// program has left, with the files and the network there. They begin anew afterwards, beside the program. In
// a process without CUDA both act as without cupool.
#include <dlfcn.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

#include "base/own_thread.hpp"
#include "base/preserve_errno.hpp"
#include "cuda/real.hpp"
#include "hooks/process/background_thread.hpp"
#include "hooks/process/process_lifetime.hpp"

namespace cupool::hooks {
namespace {

#ifndef CLONE_NEWTIME
constexpr int CLONE_NEWTIME = 0x80;
#endif
// Refused to a process with several threads, by unshare() and by setns() (where 0 is any kind).
constexpr int kUnsharedByOne = CLONE_NEWUSER | CLONE_VM | CLONE_SIGHAND | CLONE_THREAD;
constexpr int kEnteredByOne = CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWTIME;
// What each thread has of its own. Not CLONE_NEWPID: it concerns children alone.
constexpr int kOfAThread =
    CLONE_FS | CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWCGROUP;

// Whether our threads must be gone for a call about these kinds.
bool is_to_be_alone(int kinds, int by_one) {
  if (!is_alive() || !is_own_process()) return false;
  if ((kinds & by_one) != 0) return true;
  // One of several threads does not take the others along, and so not ours.
  return (kinds & kOfAThread) != 0 && is_only_other_thread();
}

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
  return is_to_be_alone(flags, kUnsharedByOne) ? call_alone(call) : call();
}

int setns(int descriptor, int kind) noexcept {
  const auto real = next<int (*)(int, int)>("setns");
  const auto call = [&] {
    return real != nullptr ? real(descriptor, kind) : static_cast<int>(syscall(SYS_setns, descriptor, kind));
  };
  return is_to_be_alone(kind == 0 ? kEnteredByOne : kind, kEnteredByOne) ? call_alone(call) : call();
}

#pragma GCC visibility pop
}  // extern "C"

}  // namespace cupool::hooks
