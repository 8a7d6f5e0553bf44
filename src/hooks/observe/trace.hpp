// Switches the listener that records a trace (trace.cpp) while the program runs. For one thread at a time:
// hooks/process/trace_switch.cpp sees to that.
#pragma once

#include <cstdint>

#include "report/file.hpp"

namespace cupool::hooks::observe {

// Records to that file from now on. False: the host has no memory. pre: there is no trace.
bool begin_trace(const report::NewFile& place);
// Tells a trace that was begun at `began` what the program held then; at once, and a moment later what came
// of calls that were under way and knew of no trace. Events that were told meanwhile are the newer ones.
void tell_what_is_live(uint64_t began, int* kept);
void settle_what_is_live(uint64_t began, int* kept);
void end_trace();

}  // namespace cupool::hooks::observe
