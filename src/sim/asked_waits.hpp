// What the driver itself makes a call of the application wait for, whatever a preloaded library does inside
// it: the measure for waits of the library. Under the state mutex.
#pragma once

#include <cstdint>

#include "sim/clock.hpp"
#include "sim/origin.hpp"

namespace cupool::sim {

// What the call waits for by itself; nothing where it does not wait.
VectorClock asked_target(const ObservedCall& call);

// The context that the call is about: of the memory that it frees, else the one current when it began (of a
// green context, the one that it is a part of). 0: none.
std::uint64_t context_of(const ObservedCall& call);

// The call may wait by the driver's own rules, however long: a launch stands in a full queue of its context,
// or a free there still waits.
bool stands_by_itself(const ObservedCall& call);

// Whether the driver is sure to let the call return now. A call that gives a stream work is never sure to.
bool would_return(const ObservedCall& call);

}  // namespace cupool::sim
