// Opens an optional system library at run time, by its absolute path: a search path may contain the current
// directory, where anyone may have put a library. Not for a signal handler.
#pragma once

namespace cupool {

// Null if the system does not have it.
void* open_system_library(const char* name);

}  // namespace cupool
