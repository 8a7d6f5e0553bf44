// Process exits that skip the library's destructor: _exit and _Exit (Python's os._exit, the children of a
// fork server). They report first, if there is anything to report, without a lock: the caller may be a signal
// handler. Also exit() in a second thread: the C library lets it overtake the first thread's destructors and
// end the process in the middle of the report. In a process without CUDA, and in a fork child, all of them
// act as without cupool.
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>

#include "cuda/real.hpp"
#include "hooks/process/process_lifetime.hpp"
#include "report/report.hpp"

namespace cupool::hooks {
namespace {

using Exit = void (*)(int);
constinit std::atomic<Exit> real_exit{nullptr};
constinit std::atomic<bool> exits{false};

}  // namespace

void find_exit() {
  real_exit.store(reinterpret_cast<Exit>(cuda::loader_function("exit")), std::memory_order_relaxed);
}

extern "C" {
#pragma GCC visibility push(default)

void _exit(int status) {
  if (is_alive()) report::finish(report::Ending::kAbrupt);
  for (;;) syscall(SYS_exit_group, status);
}

void _Exit(int status) { _exit(status); }

void exit(int status) {
  if (is_alive() && exits.exchange(true)) report::finish(report::Ending::kAbrupt);
  if (real_exit.load(std::memory_order_relaxed) == nullptr) find_exit();
  if (const Exit leave = real_exit.load(std::memory_order_relaxed)) leave(status);
  std::fflush(nullptr);
  _exit(status);
}

#pragma GCC visibility pop
}  // extern "C"

}  // namespace cupool::hooks
