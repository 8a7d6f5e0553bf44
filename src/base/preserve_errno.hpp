// For code of ours that runs on a thread of the program's and makes system calls: the program keeps its
// errno, and the thread is not cancelled on the way, which would leave a lock of ours held.
#pragma once

#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

#include "base/output.hpp"

namespace cupool {

class PreserveErrno {
 public:
  PreserveErrno() = default;
  ~PreserveErrno() { errno = value_; }
  PreserveErrno(const PreserveErrno&) = delete;
  PreserveErrno& operator=(const PreserveErrno&) = delete;

 private:
  int value_ = errno;
  CancelShield shield_;
};

// The raw system call: libc's nanosleep is a cancellation point.
inline void sleep_for(uint64_t ns) {
  timespec left{static_cast<time_t>(ns / 1'000'000'000), static_cast<long>(ns % 1'000'000'000)};
  while (syscall(SYS_nanosleep, &left, &left) != 0 && errno == EINTR) {
  }
}

}  // namespace cupool
