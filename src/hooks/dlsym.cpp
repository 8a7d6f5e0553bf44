// The second door. The exported dlsym (jumps.S) asks here what to do: answer with a pointer, or leave by a
// jump to the real dlsym, which then sees the program's own call. Exact names only; a name that is not in the
// table costs a few compares. No lock and no allocation on that way: anything may call dlsym at any time.
#include <dlfcn.h>

#include <cstdint>

#include "cuda/real.hpp"
#include "hooks/caller.hpp"
#include "hooks/table.hpp"
#include "hooks/untracked_work.hpp"
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

// A function of the driver that we do not hook and have never heard of may submit work past us.
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
  // RTLD_NEXT has a natural answer: who stands before us finds our export, who stands behind us the driver's.
  if (row == nullptr || handle == RTLD_NEXT) return leave();
  void* const found = real_dlsym(handle, name);
  if (found == nullptr) return answer(nullptr);
  const bool has_driver = cuda::find_driver(cuda::Search::kLoaded);
  if (found == row->exported()) {
    // We came first, by our preloading alone. Without us the program would have found the driver's, if
    // anybody's.
    const bool driver_has_it = has_driver && cuda::driver_symbol(name) != nullptr;
    return driver_has_it ? answer_hooked(*row, caller) : answer(real_dlsym(RTLD_NEXT, name));
  }
  // Another libcuda of another namespace, or somebody's own wrapper, is what was asked for.
  return has_driver && found == row->real() ? answer_hooked(*row, caller) : answer(found);
}

}  // namespace

extern "C" [[gnu::visibility("hidden"), gnu::used]] Decision cupool_find_symbol(void* handle,
                                                                                const char* name,
                                                                                const void* caller) {
  return decide(handle, name, caller);
}

}  // namespace cupool::hooks
