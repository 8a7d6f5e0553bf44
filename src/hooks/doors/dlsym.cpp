// The second door. The exported dlsym (jumps.S) asks here what to do: answer with a pointer, or leave by a
// jump to the real dlsym, which then sees the program's own call. Exact names only; a name that is not in the
// table costs a few compares. No lock and no allocation on that path: dlsym may be called from anywhere at
// any time.
#include <dlfcn.h>

#include <cstdint>

#include "cuda/real.hpp"
#include "hooks/doors/caller.hpp"
#include "hooks/doors/table.hpp"
#include "hooks/doors/untracked_work.hpp"
#include "stats/counters.hpp"

namespace cupool::hooks {
namespace {

struct Decision {
  void* target;
  uintptr_t is_answer;  // else: jump to `target`
};

Decision leave() { return {reinterpret_cast<void*>(cuda::real_dlsym()), 0}; }
Decision answer(void* pointer) { return {pointer, 1}; }

Decision answer_hooked(const Row& row, const void* caller) {
  if (is_below_us(caller)) return answer(row.real());
  stats::count(stats::Counter::hooked_by_dlsym);
  return answer(row.hook());
}

// A driver function that is in none of our tables may submit work that we do not see.
void note_if_unknown(const char* name, const void* caller) {
  if (name[2] < 'A' || name[2] > 'Z' || is_known_symbol(name)) return;
  if (!cuda::find_driver(cuda::Search::kLoaded) || cuda::driver_symbol(name) == nullptr) return;
  if (!is_below_us(caller)) note_unknown_entry_point(name);
}

Decision decide(void* handle, const char* name, const void* caller) {
  const cuda::Dlsym real_dlsym = cuda::real_dlsym();
  if (real_dlsym == nullptr) return answer(nullptr);
  if (name == nullptr || name[0] != 'c' || name[1] != 'u') return leave();
  const Row* const row = find_by_name(name);
  if (row == nullptr) note_if_unknown(name, caller);
  // The loader answers RTLD_NEXT correctly by itself: a caller loaded before us finds our export, one loaded
  // after us the driver's.
  if (row == nullptr || handle == RTLD_NEXT) return leave();
  void* const found = real_dlsym(handle, name);
  if (found == nullptr) return answer(nullptr);
  const bool has_driver = cuda::find_driver(cuda::Search::kLoaded);
  if (found == row->exported()) {
    // Our export was found first only because we are preloaded. Without us the lookup would have found the
    // driver's function, or none.
    const bool driver_has_it = has_driver && cuda::driver_symbol(name) != nullptr;
    return driver_has_it ? answer_hooked(*row, caller) : answer(real_dlsym(RTLD_NEXT, name));
  }
  // Anything else is what the caller asked for: a libcuda of another namespace, or a third party's wrapper.
  return has_driver && found == row->real() ? answer_hooked(*row, caller) : answer(found);
}

}  // namespace

extern "C" [[gnu::visibility("hidden"), gnu::used]] Decision cupool_find_symbol(void* handle,
                                                                                const char* name,
                                                                                const void* caller) {
  return decide(handle, name, caller);
}

}  // namespace cupool::hooks
