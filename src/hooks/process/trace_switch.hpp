// The trace as neighbours ask for it (neighbours/trace_answer.hpp): begins one, ends it when its time is over
// or somebody asks for that, and says where one is that is recorded already. Only processes of the same user,
// and root's, can ask: no others write to the registry. The file thread's alone; calls no driver.
#pragma once

#include <cstddef>

#include "neighbours/registry.hpp"

namespace cupool::hooks {

// Does what is asked about the trace, and leaves the other requests, whose number it returns.
size_t obey_trace_requests(neighbours::Ask* asks, size_t count);

// Now and then, while there is a trace or was: what is due. `kept`: as in trace::gather_now().
void attend_to_trace(int* kept);

}  // namespace cupool::hooks
