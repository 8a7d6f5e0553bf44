// The thread that gives idle memory back: of a program that makes no call, and for other processes that ask.
// It sleeps nearly always, begins with the first device memory, and ends before the driver does. It touches
// memory only while nothing is pending (order/idle_moment.hpp). It calls the driver and opens no file: the
// file thread (file_thread.hpp), which it starts, does that, and tells it when to work.
#pragma once

#include <atomic>
#include <cstdint>

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

// Notes whether the process is under a filter of system calls. If it is under one later, no thread starts:
// that may be what the filter forbids.
void note_filters();
bool may_start_threads();

// The driver is about to shut down: the thread makes no call any more. Waits a moment at most until it has
// ended.
void stop_background_thread();
bool is_background_stopped();
// The file thread has ended alone, under a filter of system calls: the other one sleeps for ever.
void note_background_thread_lost();

// How often it looks for idle memory, in nanoseconds; figures are published at this rate, too.
uint64_t background_period();

// While one of these exists the thread makes no call: a context may end, and its events with it, before our
// records of it are dropped. A call of the thread that takes longer than a moment is not waited for.
class BackgroundThreadPause {
 public:
  BackgroundThreadPause();
  ~BackgroundThreadPause();
  BackgroundThreadPause(const BackgroundThreadPause&) = delete;
  BackgroundThreadPause& operator=(const BackgroundThreadPause&) = delete;
};

// While one of these exists there are no background threads: some system calls are for processes with a
// single thread. They begin anew afterwards.
class BackgroundThreadAbsence {
 public:
  BackgroundThreadAbsence();
  ~BackgroundThreadAbsence();
  BackgroundThreadAbsence(const BackgroundThreadAbsence&) = delete;
  BackgroundThreadAbsence& operator=(const BackgroundThreadAbsence&) = delete;
  // Whether there were any, which the kernel may count for a moment longer.
  bool ended_any() const { return ended_any_; }

 private:
  bool ended_any_ = false;
};

}  // namespace cupool::hooks
