// Whether a memory checker or a debugger watches this process. Such a tool needs to see every allocation of
// the program as a driver allocation. Reads the environment and /proc once; no state.
#pragma once

namespace cupool::config {

// The tool's name for messages, or null when the process is not watched.
const char* watching_tool();

// The same for a given environment (null-terminated) and name of the tracing process (empty: none); for
// tests.
const char* watching_tool(const char* const* environment, const char* tracer);

}  // namespace cupool::config
