// Ends of the process that pass the library's destructor by: _exit and _Exit (Python's os._exit, the children
// of a fork server). They report first, if there is anything to report, without a lock: the caller may be a
// signal handler. In a process without CUDA, and in a forked child, they do what they always did.
#include <sys/syscall.h>
#include <unistd.h>

#include "hooks/life.hpp"
#include "report/report.hpp"

extern "C" {

[[gnu::visibility("default")]] void _exit(int status) {
  if (cupool::hooks::is_alive()) cupool::report::finish(cupool::report::Ending::kAbrupt);
  for (;;) syscall(SYS_exit_group, status);
}

[[gnu::visibility("default")]] void _Exit(int status) { _exit(status); }

}  // extern "C"
