// Libraries that the process loads after its first use of CUDA. Some let other devices reach our memory
// (direct_access.hpp), some import driver functions that we do not know (linked_names.hpp); both must be
// known before memory is handed out after the load. dlopen leaves us by a jump and does not come back, so a
// load takes the fast path away until an allocation has looked: the loading thread's next one, which comes
// after all that its load brought. Under a lock of its own.
#pragma once

#include <atomic>

namespace cupool::hooks {

namespace detail {
[[gnu::visibility("hidden")]] extern constinit std::atomic<bool> loads_pending;
}

// This thread is about to load a library.
void note_load();
// Whether an allocation has to look first.
inline bool loads_are_pending() { return detail::loads_pending.load(std::memory_order_acquire); }
void look_at_loads();

}  // namespace cupool::hooks
