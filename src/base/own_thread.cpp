// See own_thread.hpp.
#include "base/own_thread.hpp"

#include <dlfcn.h>
#include <linux/capability.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <new>

#include "base/after_fork.hpp"

namespace cupool {
namespace {

constinit std::atomic<int> running{0};
CUPOOL_AFTER_FORK(own_threads_after_fork, [] { running.store(0, std::memory_order_relaxed); });

struct Start {
  OwnThread run;
  void* data;
  const char* name;
  sigset_t mask;  // of the program's thread that starts this one
  bool is_joined;
};

using Capabilities = __user_cap_data_struct[_LINUX_CAPABILITY_U32S_3];
constexpr uint32_t kToChangeUser = 1U << CAP_SETUID | 1U << CAP_SETGID;

bool read_capabilities(pid_t thread, Capabilities& out) {
  __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, thread};
  return syscall(SYS_capget, &header, out) == 0;
}

// Of the whole process; 0: not known. The directory has one link for each, beside those that every one has.
int count_threads() {
  struct stat tasks;
  return stat("/proc/self/task", &tasks) != 0 ? 0 : static_cast<int>(tasks.st_nlink) - 2;
}

void* outlive(void* thread) {
  pthread_join(reinterpret_cast<pthread_t>(thread), nullptr);
  return nullptr;
}

// The C library calls exit(0) in the last of its threads. A new one, with the program's default stack, waits
// for the end of this one; without it this one is the last.
void hand_over(const sigset_t& mask) {
  pthread_sigmask(SIG_SETMASK, &mask, nullptr);
  pthread_t last;
  pthread_create(&last, nullptr, outlive, reinterpret_cast<void*>(pthread_self()));
}

void* begin(void* argument) {
  auto* const given = static_cast<Start*>(argument);
  const Start start = *given;
  delete given;
  prctl(PR_SET_NAME, start.name);
  follow_capabilities();
  const ThreadEnds how = start.run(start.data);
  running.fetch_sub(1, std::memory_order_release);
  if (how == ThreadEnds::kLast) {
    hand_over(start.mask);
  } else if (!start.is_joined) {
    pthread_detach(pthread_self());
  }
  return nullptr;
}

// What we need, and what the C library takes out of a stack for the thread-local variables of all objects
// that were loaded at the start: a program may have half a megabyte of them. Its function has no public name.
size_t stack_bytes(const pthread_attr_t& attributes) {
  constexpr size_t kOurs = 512 << 10;
  using Least = size_t (*)(const pthread_attr_t*);
  const auto least = reinterpret_cast<Least>(dlvsym(RTLD_DEFAULT, "__pthread_get_minstack", "GLIBC_PRIVATE"));
  size_t usual = 0;
  if (least != nullptr) return kOurs + least(&attributes);
  return pthread_attr_getstacksize(&attributes, &usual) == 0 ? std::max(kOurs, usual) : kOurs;
}

}  // namespace

bool start_own_thread(OwnThread run, void* data, const char* name, pthread_t* joined) {
  auto* const start = new (std::nothrow) Start{run, data, name, {}, joined != nullptr};
  pthread_attr_t attributes;
  if (start == nullptr || pthread_attr_init(&attributes) != 0) {
    delete start;
    return false;
  }
  pthread_attr_setstacksize(&attributes, stack_bytes(attributes));
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &start->mask);
  const sigset_t before = start->mask;
  pthread_t thread;
  running.fetch_add(1, std::memory_order_relaxed);
  const bool started = pthread_create(&thread, &attributes, begin, start) == 0;
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  pthread_attr_destroy(&attributes);
  if (started) {
    if (joined != nullptr) *joined = thread;
    return true;
  }
  running.fetch_sub(1, std::memory_order_relaxed);
  delete start;
  return false;
}

// Looks first: a filter of system calls may be deadly to a process that sets capabilities, and one that has
// none need not set them.
void follow_capabilities() {
  Capabilities own = {};
  Capabilities mains = {};
  const bool has_any = read_capabilities(0, own) &&
                       std::any_of(std::begin(own), std::end(own), [](const __user_cap_data_struct& one) {
                         return (one.effective | one.permitted | one.inheritable) != 0;
                       });
  if (!has_any || !read_capabilities(getpid(), mains)) return;
  Capabilities kept = {};
  kept[0].permitted = own[0].permitted & mains[0].permitted & kToChangeUser;
  kept[0].effective = own[0].effective & mains[0].effective & kToChangeUser;
  if (memcmp(kept, own, sizeof own) == 0) return;
  __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
  syscall(SYS_capset, &header, kept);
}

// A main thread that has ended stays as a zombie, which has no executable.
bool has_main_ended() {
  char name[8];
  return readlink("/proc/self/exe", name, sizeof name) < 0 && errno == ENOENT && count_threads() != 0;
}

bool are_only_own_threads_left() {
  // The ended main thread counts.
  return has_main_ended() && count_threads() == count_own_threads() + 1;
}

bool is_only_other_thread() { return count_threads() == count_own_threads() + 1; }

int count_own_threads() { return running.load(std::memory_order_acquire); }

void end_own_thread_now() {
  running.fetch_sub(1, std::memory_order_release);
  for (;;) syscall(SYS_exit, 0);
}

}  // namespace cupool
