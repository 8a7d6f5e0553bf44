// The one place that includes cuda.h. With the two macros the header declares every symbol of the ABI under
// its own name (old versions and per-thread forms too), renames none of them, and gives them default
// visibility, so that a hook's type can be taken from it (hooks/state/entry_points.hpp).
#pragma once

#define __CUDA_API_VERSION_INTERNAL
#define __CUDA_API_PUSH_VISIBILITY_DEFAULT
#include <cuda.h>

#include "cuda/later.hpp"

extern "C" {
#pragma GCC visibility push(default)

// Exported by the driver but declared in no header.
decltype(cuGetProcAddress) cuGetProcAddress_ptsz;
decltype(cuGetProcAddress_v2) cuGetProcAddress_v2_ptsz;

// Their arguments have types from graphics headers, which we do not include: such a call is passed on by a
// jump.
#define CUPOOL_UNTRACKED(name) CUresult name();
#include "cuda/api.def"

#pragma GCC visibility pop
}
