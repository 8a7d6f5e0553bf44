// See own_files.hpp.
#include "base/own_files.hpp"

#include <fcntl.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>

namespace cupool {
namespace {

// Linux 5.9; older headers do not name them.
constexpr long kCloseRange = 436;
constexpr unsigned kUnshareFirst = 1U << 1;

struct DirectoryEntry {
  uint64_t inode;
  int64_t next;
  unsigned short bytes;
  unsigned char kind;
  char name[];
};

// Before Linux 5.9. Each number is closed as it is listed, so that the listing begins anew until it is empty.
bool close_listed() {
  const int listing = open("/proc/thread-self/fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (listing < 0) return false;
  bool any = true;
  while (any) {
    any = false;
    lseek(listing, 0, SEEK_SET);
    alignas(8) char room[4096];
    long size;
    while ((size = syscall(SYS_getdents64, listing, room, sizeof room)) > 0) {
      for (long at = 0; at < size;) {
        const auto* const entry = reinterpret_cast<const DirectoryEntry*>(room + at);
        at += entry->bytes;
        if (entry->name[0] < '0' || entry->name[0] > '9') continue;
        const int number = atoi(entry->name);
        if (number != listing) any = close(number) == 0 || any;
      }
    }
  }
  close(listing);
  return true;
}

// Without /proc.
void close_all_numbers() {
  constexpr rlim_t kMost = 1 << 20;
  rlimit limit = {kMost, kMost};
  getrlimit(RLIMIT_NOFILE, &limit);
  const int end = static_cast<int>(std::min(std::max(limit.rlim_cur, limit.rlim_max), kMost));
  for (int number = 0; number < end; ++number) close(number);
}

// No file of ours may be taken for stdin, stdout or stderr.
bool take_standard_numbers() {
  int number;
  do {
    number = eventfd(0, EFD_CLOEXEC);
  } while (number >= 0 && number < STDERR_FILENO);
  return number >= 0;
}

}  // namespace

bool take_own_files() {
  // First, for containers allow it where they forbid unshare(2).
  if (syscall(kCloseRange, 0U, ~0U, kUnshareFirst) != 0) {
    if (syscall(SYS_unshare, CLONE_FILES) != 0) return false;
    if (!close_listed()) close_all_numbers();
  }
  return take_standard_numbers();
}

}  // namespace cupool
