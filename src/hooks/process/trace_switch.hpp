// The trace, switched while the program runs: as neighbours ask for it (neighbours/trace_answer.hpp), by
// CUPOOL_TRACE_SIGNAL and by the C interface. Begins one, with what the program holds told first, ends it
// when its time is over or somebody asks for that, and says where one is that is recorded already. Of
// neighbours only processes of the same user, and root's, can ask: no others write to the registry. One
// switch at a time, under a lock that is only tried; calls no driver.
#pragma once

#include <cstddef>

#include "neighbours/registry.hpp"

namespace cupool::hooks {

// ---- The file thread's.

// Does what is asked about the trace, and leaves the other requests, whose number it returns.
size_t obey_trace_requests(neighbours::Ask* asks, size_t count);

// Now and then: what is due. `kept`: as in trace::gather_now().
void attend_to_trace(int* kept);

// ---- Any thread's.

enum class Switched { kDone, kNoSuchFile, kNotNow };
// Begins a trace in a new file, named as by CUPOOL_TRACE. kNotNow: there is one, or another thread switches.
Switched begin_trace_now(const char* pattern);
// kNotNow: there is none that is written to a file, or another thread switches.
Switched end_trace_now();

// The file thread begins a trace, or ends it. Safe in a signal handler.
void switch_trace_soon();

}  // namespace cupool::hooks
