// Whether a tool that judges memory accesses, or a debugger, looks at this process. Such a tool wants to see
// every allocation of the program as one of the driver's. Looks at the environment and at /proc once; no
// state.
#pragma once

namespace cupool::config {

// What to call it in a message, or null when nobody watches.
const char* watching_tool();

// The same for a given environment (null-terminated) and name of the tracing process (empty: none); for
// tests.
const char* watching_tool(const char* const* environment, const char* tracer);

}  // namespace cupool::config
