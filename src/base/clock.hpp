// The clock behind all durations and deadlines, which a replay sets to the times of its record.
// Async-signal-safe.
#pragma once

#include <time.h>

#include <atomic>
#include <cstdint>

namespace cupool {

namespace detail {
inline constinit std::atomic<uint64_t> clock_stands_at{0};  // 0: it runs
}

// Nanoseconds of a monotonic clock.
inline uint64_t now_ns() {
  if (const uint64_t set = detail::clock_stands_at.load(std::memory_order_relaxed); set != 0) [[unlikely]]
    return set;
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

// From now on the clock stands at this time, until it is set again.
inline void set_clock(uint64_t ns) { detail::clock_stands_at.store(ns, std::memory_order_relaxed); }

// Moves a clock that stands on, instead of a sleep. False: it goes by itself.
inline bool move_clock(uint64_t ns) {
  const uint64_t set = detail::clock_stands_at.load(std::memory_order_relaxed);
  if (set == 0) [[likely]]
    return false;
  set_clock(set + ns);
  return true;
}

}  // namespace cupool
