// Where the observer's calls go on to: the next object in preload order, else whatever the program's own
// look-up found. Pointers are resolved on first use and kept; atomics, no lock.
#pragma once

#include <cuda.h>

#define CUPOOL_NEXT(symbol) \
  reinterpret_cast<decltype(&symbol)>(::cupool::observer::next_function(::cupool::observer::Hook::k_##symbol))

namespace cupool::observer {

enum class Hook {
#define OBSERVER_HOOK(symbol, name, version, per_thread) k_##symbol,
#include "sim/observer/hooks.def"
#undef OBSERVER_HOOK
  kCount
};

void* next_function(Hook hook);

// The answer of cuGetProcAddress, replaced where it is one of ours.
void* through_proc_address(const char* name, int version, cuuint64_t flags, void* found);

// The simulated driver's ears; calls that do nothing when the driver is another one.
struct LifeCalls {
  void (*begin)(CUdeviceptr, unsigned long long, const char*);
  int (*end)(CUdeviceptr);
  void (*goes_on)(CUdeviceptr);
  void (*call_begins)(const char*, unsigned long long);
  void (*call_ends)(int);
};
const LifeCalls& life_calls();

}  // namespace cupool::observer
