// See output.hpp. The signals that a write can raise are blocked for its duration and consumed if this write
// raised them; a signal that was pending before stays pending.
#include "base/output.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace cupool {
namespace {

constexpr int kLongestWaitMs = 3000;
constexpr size_t kPipePart = 4096;  // a larger write may block even when poll says that a pipe has room
constexpr size_t kKernelSetBytes = 8;

bool has_room(int descriptor) {
  pollfd one{descriptor, POLLOUT, 0};
  for (;;) {
    const int ready = poll(&one, 1, kLongestWaitMs);
    if (ready >= 0 || errno != EINTR) return ready != 0;
  }
}

// How much goes into a pipe at once. All of it if it fits, so that two processes' lines do not mix.
size_t pipe_part(int descriptor, size_t size) {
  int unread = 0;
  const int capacity = fcntl(descriptor, F_GETPIPE_SZ);
  if (capacity > 0 && ioctl(descriptor, FIONREAD, &unread) == 0 &&
      static_cast<size_t>(capacity) >= static_cast<size_t>(unread) + size + kPipePart)
    return size;
  return std::min(size, kPipePart);
}

ssize_t write_some(int descriptor, mode_t mode, const char* text, size_t size) {
  if (S_ISSOCK(mode)) return send(descriptor, text, size, MSG_NOSIGNAL | MSG_DONTWAIT);
  return write(descriptor, text, S_ISFIFO(mode) ? pipe_part(descriptor, size) : size);
}

int write_quietly(int descriptor, const char* text, size_t size) {
  struct stat about;
  if (fstat(descriptor, &about) != 0) return errno;
  NoSignals quiet;
  while (size > 0) {
    if (!has_room(descriptor)) return EAGAIN;
    const ssize_t written = write_some(descriptor, about.st_mode, text, size);
    if (written > 0) {
      text += written;
      size -= static_cast<size_t>(written);
    } else if (written == 0) {
      return EIO;
    } else if (errno != EINTR && errno != EAGAIN) {
      const int error = errno;
      quiet.failed();
      return error;
    }
  }
  return 0;
}

}  // namespace

NoSignals::NoSignals() {
  sigemptyset(&ours_);
  for (const int one : {SIGPIPE, SIGXFSZ, SIGTTOU}) sigaddset(&ours_, one);
  sigset_t pending;
  sigemptyset(&pending);
  sigpending(&pending);
  pthread_sigmask(SIG_BLOCK, &ours_, &before_);
  for (const int one : {SIGPIPE, SIGXFSZ, SIGTTOU}) {
    if (sigismember(&pending, one) == 1) sigdelset(&ours_, one);
  }
}

NoSignals::~NoSignals() {
  // The raw system call: the C library's wrapper is a cancellation point.
  const timespec no_time{0, 0};
  while (raised_ && syscall(SYS_rt_sigtimedwait, &ours_, nullptr, &no_time, kKernelSetBytes) > 0) {
  }
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

int write_fully(int descriptor, const char* text, size_t size) {
  const int saved_errno = errno;
  const CancelShield shield;
  const int error = write_quietly(descriptor, text, size);
  errno = saved_errno;
  return error;
}

}  // namespace cupool
