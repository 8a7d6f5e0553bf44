// The thread that gives idle memory back: of a program that makes no call, and for other processes that ask.
// It sleeps nearly always, begins with the first device memory, and ends before the
// driver does. It touches memory only while nothing is pending (order/idle_moment.hpp).
#pragma once

#include <atomic>

namespace cupool::hooks {

namespace detail {
[[gnu::visibility("hidden")]] extern constinit std::atomic<bool> has_background_thread;
void start_background_thread();
}  // namespace detail

// The program has device memory.
inline void note_device_memory() {
  if (!detail::has_background_thread.load(std::memory_order_relaxed)) [[unlikely]]
    detail::start_background_thread();
}

// The driver is about to shut down: the thread makes no call any more.
void stop_background_thread();

// While one of these exists the thread makes no call: a context may end, and its events with it, before our
// records of it are dropped. A call of the thread that takes longer than a moment is not waited for.
class BackgroundThreadPause {
 public:
  BackgroundThreadPause();
  ~BackgroundThreadPause();
  BackgroundThreadPause(const BackgroundThreadPause&) = delete;
  BackgroundThreadPause& operator=(const BackgroundThreadPause&) = delete;
};

}  // namespace cupool::hooks
