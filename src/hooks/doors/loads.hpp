// Libraries that the process loads after its first use of CUDA. Some let other devices access our memory
// (direct_access.hpp), some import driver functions that we do not know (linked_names.hpp); both must be
// detected before memory is handed out after the load. Our dlopen leaves by a jump and never returns here, so
// a load disables the fast path until an allocation has checked: the loading thread's next one, which comes
// after everything that its load brought in. Under its own lock.
#pragma once

#include "hooks/state/serving.hpp"

namespace cupool::hooks {

// This thread is about to load a library.
void note_load();
// Whether an allocation has to check first.
inline bool loads_are_pending() { return is_slow_for(SlowReason::kLoadsPending); }
void look_at_loads();

}  // namespace cupool::hooks
