// The contents of a report besides the counters: the identity of the process, the mode that ran, and figures
// that only the pool knows. The layers above supply the latter through a probe, because this layer does not
// know them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "stats/counters.hpp"

namespace cupool::report {

// The mode of reuse (lanes, fences, exact) and, where it is not the one in the options, the reason.
struct Mode {
  const char* name = "unused";
  const char* reason = "";
};

// Set once by the layer above; null before.
struct Probe {
  Mode (*mode)() = nullptr;
  // The figures of a device that only the pool knows. With `kNoLock` it must neither wait for a lock nor call
  // the driver; what cannot be known then stays 0.
  void (*fill)(int device, stats::Reading reading, stats::DeviceSums* sums) = nullptr;
  // CUPOOL_TRACE_SIGNAL has come; called in its handler.
  void (*switch_trace)() = nullptr;
};
void set_probe(const Probe& probe);
const Probe& probe();

struct Facts {
  int pid = 0;
  char host[65] = "";
  char rank[16] = "";      // of a parallel job, or empty
  char instance[17] = "";  // unique among all processes of all hosts
  const char* program = "";
  Mode mode;
};
// Collects the facts that a signal handler cannot ask for; once, at the first use of CUDA.
void note_facts();
// Async-signal-safe.
Facts facts();

// "solver[4711] rank 2": which process speaks, in messages that several may write to one terminal. The rank
// only in a parallel job. Async-signal-safe.
struct WhoText {
  char text[112];
  // NOLINTNEXTLINE(google-explicit-constructor): it is a text and prints as one
  operator std::string_view() const { return text; }
};
WhoText who();

// One device, with what only the pool knows filled in.
stats::DeviceSums read_device(int number, stats::Reading reading);
// All devices and the process, likewise; the largest free range is that of any device.
stats::Sums read_all(stats::Reading reading);
// The same from the sums of the process and of each device in use, when only the counts are known.
stats::Sums add_devices(stats::Sums sums, const stats::DeviceSums* devices, size_t count);

}  // namespace cupool::report
