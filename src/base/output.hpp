// Writes to a descriptor that the program owns, or that another process reads, without side effects: no
// SIGPIPE when the reader is gone, no SIGXFSZ at a file-size limit, no SIGTTOU stop of a background job, no
// endless wait for a reader that does not read, no thread cancelled half-way. Async-signal-safe; errno is
// preserved.
#pragma once

#include <pthread.h>
#include <signal.h>

#include <cstddef>

namespace cupool {

// The thread cannot be cancelled while one of these is alive: our code has no cleanup that would release its
// locks.
class CancelShield {
 public:
  CancelShield() { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before_); }
  ~CancelShield() { pthread_setcancelstate(before_, nullptr); }
  CancelShield(const CancelShield&) = delete;
  CancelShield& operator=(const CancelShield&) = delete;

 private:
  int before_ = PTHREAD_CANCEL_ENABLE;
};

// While one of these is alive, the signals that a write can raise are blocked on this thread. failed() says
// that a write did fail: what it raised is consumed at the end; what was pending before stays pending.
class NoSignals {
 public:
  NoSignals();
  ~NoSignals();
  NoSignals(const NoSignals&) = delete;
  NoSignals& operator=(const NoSignals&) = delete;
  void failed() { raised_ = true; }

 private:
  sigset_t ours_;
  sigset_t before_;
  bool raised_ = false;
};

// 0 when everything was written, or the errno of the write that failed; EAGAIN: the reader took nothing for
// some seconds.
int write_fully(int descriptor, const char* text, size_t size);

}  // namespace cupool
