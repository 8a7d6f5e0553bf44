// Loads that can bypass our hooks: with RTLD_DEEPBIND a library binds libcuda's functions before ours, and
// dlmopen gives it a private libcuda. Neither is changed; we only note that our tracking of streams may be
// incomplete from now on. With dlclose, they also note that the thread is inside the loader, where no call
// stack is taken. The exported functions (jumps.S) ask here where to jump to, and leave every argument as it
// was.
#include <dlfcn.h>

#include <atomic>

#include "cuda/real.hpp"
#include "hooks/doors/loads.hpp"
#include "hooks/doors/untracked_work.hpp"
#include "hooks/state/serving.hpp"
#include "trace/loading.hpp"

namespace cupool::hooks {
namespace {

constinit std::atomic<void*> real_dlopen{nullptr};
constinit std::atomic<void*> real_dlmopen{nullptr};
constinit std::atomic<void*> real_dlclose{nullptr};

// Where the caller's stack begins, and its return address stands: `cfa` is that of the function that
// cupool_untracked_jump (jumps.S) has called, which has pushed so many words before.
void note_call_of_loader(const void* cfa) {
  const auto address = reinterpret_cast<uintptr_t>(cfa);
#if defined(__x86_64__)
  const uintptr_t slot = address + 7 * sizeof(uintptr_t);
  trace::note_loader_call(reinterpret_cast<const uintptr_t*>(slot), slot + sizeof(uintptr_t));
#else
  trace::note_loader_call(nullptr, address + 96);
#endif
}

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
  note_call_of_loader(__builtin_dwarf_cfa());
  if ((mode & RTLD_DEEPBIND) != 0) note_possible_bypass("a library was loaded with RTLD_DEEPBIND");
  if (is_serving()) note_load();
  return find(real_dlopen, "dlopen");
}

[[gnu::visibility("hidden"), gnu::used]] void* cupool_before_dlmopen() {
  note_call_of_loader(__builtin_dwarf_cfa());
  note_possible_bypass("a library was loaded with dlmopen");
  if (is_serving()) note_load();
  return find(real_dlmopen, "dlmopen");
}

[[gnu::visibility("hidden"), gnu::used]] void* cupool_before_dlclose() {
  note_call_of_loader(__builtin_dwarf_cfa());
  return find(real_dlclose, "dlclose");
}

}  // extern "C"
}  // namespace cupool::hooks
