// Who called: the return addresses of the calling thread, by libunwind where the system has it (opened at run
// time, when the first stack is asked for), else by glibc's backtrace, which opens libgcc. Printing names what the
// dynamic linker knows. Takes no lock of ours; not for a signal handler.
#pragma once

#include <cstddef>

namespace cupool {

inline constexpr size_t kDeepestStack = 64;

// Fills `frames`, innermost first, and returns how many there are.
size_t call_stack(void** frames, size_t most);

// One line for each frame, on stderr, without those of this library.
void print_call_stack(void* const* frames, size_t count);

}  // namespace cupool
