// Who holds memory, as the recorder of traces knows it (trace/recorder.hpp): listed at exit (CUPOOL_LEAKS)
// and when memory runs out, by call stack, or without stacks by size, kind and thread; the largest first.
// What CUDA's own libraries keep is told apart by the module that asked. Prints to stderr; symbols are looked
// up in this process, so not in a signal handler, and with no lock of ours held.
#pragma once

#include <cstdint>
#include <string_view>

namespace cupool::report {

// A call stack that the recorder has stored, a line for each frame.
void print_stack(std::string_view who, uint32_t stack);

// All that is still held.
void write_leaks();
// The largest holders on a device, once behind each report of a shortage.
void write_holders(uint64_t device);

}  // namespace cupool::report
