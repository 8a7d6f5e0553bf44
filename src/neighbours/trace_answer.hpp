// Where a process puts what it is asked for about its trace (Ask::What): a file of a name that only who asks
// and who is asked know, made by the process that is asked, for its user alone and never in place of another.
// It holds a trace, or, if the process records one already, its path behind kElsewhere. It can be read once
// the process records, or has written what there is, and is complete when it can no longer be written to. No
// state.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>

#include "base/format.hpp"

namespace cupool::neighbours {

struct AnswerPath {
  explicit AnswerPath(uint64_t token, const char* folder = "/tmp") {
    format_into(text, "{}/cupool-{:016x}.trace", folder, token);
  }
  char text[64];
};

inline constexpr char kElsewhere[] = "cupool records elsewhere: ";

// A descriptor, or -1.
inline int make_answer(const AnswerPath& path) {
  return open(path.text, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0200);
}
inline void begin_answer(int descriptor) { fchmod(descriptor, 0600); }
inline bool has_begun(const struct stat& about) { return (about.st_mode & 0400) != 0; }
inline void complete_answer(int descriptor) { fchmod(descriptor, 0400); }
inline bool is_complete(const struct stat& about) { return (about.st_mode & 0200) == 0; }

}  // namespace cupool::neighbours
