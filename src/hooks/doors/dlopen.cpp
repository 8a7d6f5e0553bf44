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
#include "trace/saved_return.hpp"

namespace cupool::hooks {
namespace {

constinit std::atomic<void*> real_dlopen{nullptr};
constinit std::atomic<void*> real_dlmopen{nullptr};
constinit std::atomic<void*> real_dlclose{nullptr};

// `cfa` is where the stack of cupool_untracked_jump (jumps.S) ended when it called. Above that stands what it
// saved: on x86-64 six registers and a gap, and then the caller's own return address; on aarch64 the caller's
// frame and return address first, and that one is where `function` will have stored it.
void note_call_of_loader(const void* cfa, [[maybe_unused]] const void* function) {
  const auto address = reinterpret_cast<uintptr_t>(cfa);
#if defined(__x86_64__)
  const uintptr_t slot = address + 7 * sizeof(uintptr_t);
  const uintptr_t returns_to = *reinterpret_cast<const uintptr_t*>(slot);
  const uintptr_t top = slot + sizeof(uintptr_t);
#else
  const uintptr_t returns_to = *reinterpret_cast<const uintptr_t*>(address + sizeof(uintptr_t));
  const uintptr_t top = address + 96;
  const size_t depth =
      function == nullptr ? 0 : trace::depth_of_saved_return(static_cast<const uint32_t*>(function));
  const uintptr_t slot = depth == 0 ? 0 : top - depth;
#endif
  trace::note_loader_call({reinterpret_cast<const uintptr_t*>(slot), returns_to, top});
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
  void* const function = find(real_dlopen, "dlopen");
  note_call_of_loader(__builtin_dwarf_cfa(), function);
  if ((mode & RTLD_DEEPBIND) != 0) note_possible_bypass("a library was loaded with RTLD_DEEPBIND");
  if (is_serving()) note_load();
  return function;
}

[[gnu::visibility("hidden"), gnu::used]] void* cupool_before_dlmopen() {
  void* const function = find(real_dlmopen, "dlmopen");
  note_call_of_loader(__builtin_dwarf_cfa(), function);
  note_possible_bypass("a library was loaded with dlmopen");
  if (is_serving()) note_load();
  return function;
}

[[gnu::visibility("hidden"), gnu::used]] void* cupool_before_dlclose() {
  void* const function = find(real_dlclose, "dlclose");
  note_call_of_loader(__builtin_dwarf_cfa(), function);
  return function;
}

}  // extern "C"
}  // namespace cupool::hooks
