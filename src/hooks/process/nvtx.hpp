// NVTX ranges as phases of a trace; see nvtx.cpp.
#pragma once

namespace cupool::hooks {

// While the library is loaded, when there is one thread: names it as NVTX's tool, if a trace is wanted.
void offer_nvtx();

}  // namespace cupool::hooks
