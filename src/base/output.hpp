// Writing to a descriptor that is the program's, or somebody else's at its other end, without harm: no
// SIGPIPE when the reader is gone, no SIGXFSZ at a file-size limit, no stop for a background job, no waiting
// for ever for a reader that does not read, no thread cancelled half-way. Async-signal-safe; errno is kept.
#pragma once

#include <pthread.h>

#include <cstddef>

namespace cupool {

// While one of these lives the thread cannot be cancelled: nothing of ours would unlock what it holds.
class CancelShield {
 public:
  CancelShield() { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before_); }
  ~CancelShield() { pthread_setcancelstate(before_, nullptr); }
  CancelShield(const CancelShield&) = delete;
  CancelShield& operator=(const CancelShield&) = delete;

 private:
  int before_ = PTHREAD_CANCEL_ENABLE;
};

// All of it, or the errno of the write that failed; EAGAIN: nobody took it for some seconds.
int write_fully(int descriptor, const char* text, size_t size);

}  // namespace cupool
