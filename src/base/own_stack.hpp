// Runs a function on a stack of ours: a report may be requested on a signal stack, or on a thread, of a few
// kilobytes. The caller ensures that a stack is used by one thread at a time.
#pragma once

#include <cstddef>

namespace cupool {

template <size_t bytes>
struct alignas(16) Stack {
  char room[bytes];
  void* top() { return room + bytes; }
};

extern "C" [[gnu::visibility("hidden")]] void cupool_call_on_stack(void* top, void (*function)(void*),
                                                                   void* argument);

}  // namespace cupool
