// The hooked functions as members of our namespace: with C linkage they are the very functions that cuda.h
// declares. A file that defines some includes this, which makes them exported C functions. A definition whose
// arguments are not those of the driver's prototype is another function, and the library does not link.
#pragma once

#include "cuda/cuda_api.hpp"

namespace cupool::hooks {

extern "C" {
#pragma GCC visibility push(default)

#define CUPOOL_REAL(name)
#define CUPOOL_LATE(name, version)
#define CUPOOL_UNTRACKED(name)
#define CUPOOL_ROW(symbol, like) decltype(::like) symbol;
#include "cuda/api.def"

#pragma GCC visibility pop
}

}  // namespace cupool::hooks
