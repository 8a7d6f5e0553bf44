// The call stack of the calling thread, by libunwind where the system has it (opened at run time from the
// system's own folders, when the first stack is taken), else by glibc's backtrace, which opens libgcc.
// Printing resolves names through symbols.hpp. Takes no lock of ours; not for a signal handler.
#pragma once

#include <cstddef>
#include <string_view>

namespace cupool {

inline constexpr size_t kDeepestStack = 64;

// Fills `frames`, innermost first, and returns how many there are.
size_t call_stack(void** frames, size_t most);

// Copies the frames that are not this library's, up to `room`; returns how many.
size_t without_own_frames(void* const* frames, size_t count, void** out, size_t room);

// One line for each frame, on stderr, without those of this library: function, file and line where the
// object's symbols allow, else the command that finds them. Each begins with `who`, the process that speaks.
void print_call_stack(std::string_view who, void* const* frames, size_t count);

}  // namespace cupool
