// See place.hpp. Only system calls that are safe in a signal handler.
#include "trace/place.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <initializer_list>

#include "base/descriptors.hpp"
#include "base/fork_gate.hpp"
#include "base/output.hpp"

namespace cupool::trace {
namespace {

const char* reason(int error) {
  switch (error) {
    case ENOSPC:
      return "no space is left on the device";
    case EDQUOT:
      return "the disk quota is used up";
    case EFBIG:
      return "the limit on the size of files is reached";
    case EIO:
      return "the device reports an error";
    case EAGAIN:
      return "nobody reads what is written there";
    case EMFILE:
    case ENFILE:
      return "too many files are open";
    case EACCES:
    case EPERM:
      return "no permission";
    default:
      return "the system refuses";
  }
}
constexpr char kGone[] = "the file was removed or replaced, or cannot be reached any more";
// Blocks without what came before them would be no trace.
constexpr char kCut[] = "somebody has cut the file";

// What stands in its place by now may be anything: a pipe that nobody reads, a terminal.
constexpr int kFlags = O_WRONLY | O_APPEND | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;

const char* refusal(int error) {
  for (const int one : {ENOENT, ELOOP, ENOTDIR, ENXIO, EISDIR}) {
    if (error == one) return kGone;
  }
  return reason(error);
}

}  // namespace

void Place::begin(const char* path, uint64_t device, uint64_t inode) {
  strncpy(path_, path, sizeof path_ - 1);
  device_ = device;
  inode_ = inode;
  size_ = 0;
}

const char* Place::open_file(int* descriptor) const {
  struct stat about;
  const auto is_this = [&] {
    return about.st_dev == device_ && about.st_ino == inode_ && about.st_nlink != 0;
  };
  // What was kept may be the file of an earlier trace.
  if (*descriptor >= 0 && (fstat(*descriptor, &about) != 0 || !is_this())) {
    close(*descriptor);
    *descriptor = -1;
  }
  if (*descriptor < 0) {
    *descriptor = move_up(open(path_, kFlags));
    if (*descriptor < 0) return refusal(errno);
    if (fstat(*descriptor, &about) != 0) return reason(errno);
  }
  if (!is_this()) return kGone;
  // (What is no file has no size.)
  return S_ISREG(about.st_mode) && static_cast<uint64_t>(about.st_size) < size_ ? kCut : nullptr;
}

const char* Place::append(const void* data, size_t bytes, int* kept) {
  if (kept != nullptr) return append_to(kept, data, bytes);
  // Among the program's descriptors: no fork child may have it, and a number that the program could be given
  // next it has only until it is moved.
  const NoFork gate;
  int own = -1;
  const char* const why = append_to(&own, data, bytes);
  if (own >= 0) close(own);
  return why;
}

const char* Place::append_to(int* descriptor, const void* data, size_t bytes) {
  const char* why = open_file(descriptor);
  if (why == nullptr) {
    const int error = write_fully(*descriptor, static_cast<const char*>(data), bytes);
    if (error != 0) {
      // What stands there of a block is no block. (If this fails, too, readers find its end.)
      if (ftruncate(*descriptor, static_cast<off_t>(size_)) != 0) errno = 0;
      why = reason(error);
    } else {
      size_ += bytes;
    }
  }
  if (*descriptor >= 0 && why != nullptr) {
    close(*descriptor);
    *descriptor = -1;
  }
  return why;
}

}  // namespace cupool::trace
