// Whether the calling thread is inside the loader (dlopen, dlclose, and the constructors and destructors that
// they run). The doors of these functions leave by a jump and do not see them return, so each notes where the
// return address stands: while it is there and deeper in the stack than that, the call may still run. A place
// that an outer call has left as it was looks the same; then a stack is missing, and nothing else is wrong.
#pragma once

#include <atomic>
#include <cstdint>

namespace cupool::trace {

// The call returns to `returns_to`, which stands at `slot` while it runs; null: it is not known where. `top`
// is the stack pointer of the caller.
struct LoaderCall {
  const uintptr_t* slot;
  uintptr_t returns_to;
  uintptr_t top;
};
void note_loader_call(const LoaderCall& call);
bool is_inside_loader();
// Whether any thread has been through a door within the last seconds.
bool has_loaded_lately(uint64_t now);

}  // namespace cupool::trace
