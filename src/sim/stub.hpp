// What a function that the simulated device lacks answers. Without cuda.h, for unsupported.cpp.
#pragma once

namespace cupool::sim {

// NOT_SUPPORTED, or the fault injected under this name, which must live for ever.
int answer_of_stub(const char* name);

}  // namespace cupool::sim
