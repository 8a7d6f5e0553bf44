// What a report is made of besides the counters: who the process is, which mode ran, and what only the pool knows. The
// layers above fill in the latter through a probe, because this one does not know them.
#pragma once

#include <cstdint>

#include "stats/counters.hpp"

namespace cupool::report {

// How freed memory became ready, and, where that is not what the options say, why.
struct Mode {
  const char* name = "unused";
  const char* reason = "";
};

// Set once by the layer above; null before.
struct Probe {
  // pre: `kNoLock` may not wait for a lock.
  Mode (*mode)() = nullptr;
  // The largest free range of one device; 0 when it cannot be asked now.
  uint64_t (*largest_free)(int device, stats::Reading reading) = nullptr;
};
void set_probe(const Probe& probe);
const Probe& probe();

struct Facts {
  int pid = 0;
  char host[65] = "";
  char rank[16] = "";  // of a parallel job, or empty
  const char* program = "";
  Mode mode;
};
Facts facts();

// One device, with what only the pool knows filled in.
stats::DeviceSums read_device(int number, stats::Reading reading);
// Of all devices.
uint64_t largest_free_range(stats::Reading reading);

}  // namespace cupool::report
