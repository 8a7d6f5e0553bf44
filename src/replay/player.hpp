// Plays a program (program.hpp) against the pool itself, on a driver of numbers (device.hpp): every step on a
// thread of its own number, in the recorded order, by the recorded time. The page map, the counters and the
// options are the process's, so a process plays once; whoever wants several figures forks for each. The
// threads hand the turn to each other: only one runs at any time.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "replay/device.hpp"
#include "replay/program.hpp"

namespace cupool::replay {

struct Conditions {
  uint64_t capacity = uint64_t{1} << 40;  // of each device
  Lag lag;
  bool one_thread = false;
};

// What the same program needs of an allocator.
struct Figures {
  uint64_t peak_live = 0;      // as asked for
  uint64_t peak_reserved = 0;  // on all devices at once; of the pool as its own counters say
  uint64_t peak_taken = 0;     // what the driver had given at most, in its own steps; of the pool
  uint64_t driver_calls = 0;
  uint64_t allocations = 0;
  uint64_t hits = 0;   // without a call of the driver
  uint64_t waits = 0;  // a stream, a context or the host was made to wait; of the driver: frees that would
  uint64_t ns = 0;     // of the host; 0: not known
  uint64_t failed = 0;
  uint64_t last_reserved = 0;
  uint64_t most_on_a_device = 0;  // the highest peak of one
  uint64_t refused_bytes = 0;     // of the first allocation that failed
  uint64_t refused_step = 0;
  uint64_t compared = 0;      // moments at which the trace has the counters
  uint64_t agreed = 0;        // of them, those that were the same
  uint64_t served_alike = 0;  // allocations of which the trace says how they were served: as they were now
  uint64_t served_otherwise = 0;
  uint64_t kept = 0, slab = 0, range = 0, after_wait = 0, missed = 0;  // how allocations were served
  uint64_t segments_taken = 0, segments_given = 0;
  uint64_t pool_peak_reserved = 0, pool_peak_live = 0;  // as the counters say, of all devices

  double fragmentation() const {
    return peak_reserved <= peak_live
               ? 0
               : 1 - static_cast<double>(peak_live) / static_cast<double>(peak_reserved);
  }
};

// With the options of this process's environment. pre: nothing was played or served in it before.
Figures play(const Program& program, const Conditions& conditions);

}  // namespace cupool::replay
