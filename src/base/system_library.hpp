// Opens a library of the system's that we can do without, at run time, by its whole path: a search path may
// name the current directory, and anybody may have put a library there. Not for a signal handler.
#pragma once

namespace cupool {

// Null where the system has none.
void* open_system_library(const char* name);

}  // namespace cupool
