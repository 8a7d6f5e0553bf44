// Whether the calling thread is inside the loader (dlopen, dlclose, and the constructors and destructors that
// they run). The doors of these functions leave by a jump and do not see them return, so each notes where the
// return address stands: while it is there and deeper in the stack than that, the call may still run. A place
// that an outer call has left as it was looks the same; then a stack is missing, and nothing else is wrong.
#pragma once

#include <atomic>
#include <cstdint>

namespace cupool::trace {

// A door: the call returns to the address that stands at `slot`; null: it is not known where it stands, and
// `top` is the stack pointer of the caller.
void note_loader_call(const uintptr_t* slot, uintptr_t top);
bool is_inside_loader();
// Whether any thread has been through a door within the last seconds.
bool has_loaded_lately(uint64_t now);

}  // namespace cupool::trace
