// Where a function of aarch64 stores the address that it returns to. There the caller's instruction leaves it
// in a register, so it is on the stack only once the function has made its frame; how far below the caller's
// stack pointer, the instructions at its beginning tell.
#pragma once

#include <cstddef>
#include <cstdint>

namespace cupool::trace {

// In bytes; 0: these instructions do not tell.
size_t depth_of_saved_return(const uint32_t* code);

}  // namespace cupool::trace
