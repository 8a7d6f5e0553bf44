// Loads that can bypass our hooks: with RTLD_DEEPBIND a library binds libcuda's functions before ours, and
// dlmopen gives it a private libcuda. Neither is changed; we only note that our tracking of streams may be
// incomplete from now on. The exported dlopen and dlmopen (jumps.S) ask here where to jump to, and leave
// every argument as it was.
#include <dlfcn.h>

#include <atomic>

#include "cuda/real.hpp"
#include "hooks/doors/loads.hpp"
#include "hooks/doors/untracked_work.hpp"
#include "hooks/state/serving.hpp"

namespace cupool::hooks {
namespace {

constinit std::atomic<void*> real_dlopen{nullptr};
constinit std::atomic<void*> real_dlmopen{nullptr};

void* find(std::atomic<void*>& found, const char* name) {
  void* function = found.load(std::memory_order_relaxed);
  if (function == nullptr) {
    function = cuda::loader_function(name);
    found.store(function, std::memory_order_relaxed);
  }
  return function;
}

}  // namespace

extern "C" {

[[gnu::visibility("hidden"), gnu::used]] void* cupool_before_dlopen(const char*, int mode) {
  if ((mode & RTLD_DEEPBIND) != 0) note_possible_bypass("a library was loaded with RTLD_DEEPBIND");
  if (is_serving()) note_load();
  return find(real_dlopen, "dlopen");
}

[[gnu::visibility("hidden"), gnu::used]] void* cupool_before_dlmopen() {
  note_possible_bypass("a library was loaded with dlmopen");
  if (is_serving()) note_load();
  return find(real_dlmopen, "dlmopen");
}

}  // extern "C"
}  // namespace cupool::hooks
