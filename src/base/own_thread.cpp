// See own_thread.hpp.
#include "base/own_thread.hpp"

#include <pthread.h>
#include <signal.h>

#include <cstddef>

namespace cupool {

bool start_own_thread(void* (*run)(void*), void* data) {
  constexpr size_t kStackBytes = 512 << 10;
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_attr_t attributes;
  if (pthread_attr_init(&attributes) != 0) return false;
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  pthread_attr_setstacksize(&attributes, kStackBytes);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  pthread_t thread;
  const bool started = pthread_create(&thread, &attributes, run, data) == 0;
  if (started) pthread_setname_np(thread, "cupool");
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  pthread_attr_destroy(&attributes);
  return started;
}

}  // namespace cupool
