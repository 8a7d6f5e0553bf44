// The files that a report and metrics go to: expands their names (CUPOOL_STATS_FILE) and writes the file
// completely or not at all. The file is created next to its final place, for its user alone unless told
// otherwise, under a unique name, never through a link, and renamed when it is complete. Everything happens
// relative to the directory that was opened first. Async-signal-safe.
#pragma once

#include <limits.h>
#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "report/facts.hpp"
#include "report/writer.hpp"

namespace cupool::report {

// %p process, %h host, %r rank ("none" outside of a job), %e program, %% a percent sign. What does not fit is
// truncated; any other letter after a percent sign stays as it is. Slashes in inserted names are replaced.
void expand(const char* pattern, const Facts& facts, char* out, size_t room);

// The file of a kind that this process wrote last, and the mode of such files.
struct Written {
  mode_t mode = 0600;  // within the umask
  std::atomic<uint64_t> device{0};
  std::atomic<uint64_t> inode{0};  // 0: none
  std::atomic<int64_t> time{0};    // inode numbers are reused
};

// Calls write(Writer&) for the file at `path`. If another process has written a report there since this one
// was started, the pid goes into the name. Returns null, or why there is no new file; an existing file is
// untouched then.
using Write = void (*)(Writer& out, const void* argument);
const char* write_file(const char* path, Written& last, char* buffer, size_t room, Write write,
                       const void* argument);

// A file that is written to while the program runs. Made empty, for its user alone, never through a link; one
// that another process has made since this one was started is left alone: then the pid goes into the name.
// Null, or why there is none. Not async-signal-safe.
struct NewFile {
  char path[PATH_MAX] = "";  // from the root on
  uint64_t device = 0;
  uint64_t inode = 0;
};
const char* make_file(const char* path, NewFile* made);

}  // namespace cupool::report
