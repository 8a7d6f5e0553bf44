// The third door. The driver answers first: name, version, flags and status stay its business. A pointer that
// belongs to a row of the table is then replaced by the hook. A name in none of our tables is noted, because
// it may submit work that we do not see.
#include <string_view>

#include "base/reentry.hpp"
#include "hooks/doors/caller.hpp"
#include "hooks/doors/table.hpp"
#include "hooks/doors/untracked_work.hpp"
#include "hooks/state/entry_points.hpp"
#include "stats/counters.hpp"

namespace cupool::hooks {

using cuda::real;

namespace {

void replace(const char* symbol, void** function, const void* caller) {
  if (function == nullptr || *function == nullptr || !cuda::find_driver(cuda::Search::kLoaded)) return;
  const Row* const row = find_by_pointer(*function);
  if (row == nullptr) {
    if (!is_known(symbol, *function)) note_unknown_entry_point(symbol);
    return;
  }
  if (is_below_us(caller)) return;
  stats::count(stats::Counter::hooked_by_proc_address);
  *function = row->hook();
}

template <typename Call>
CUresult ask(const char* symbol, void** function, const void* caller, Call&& call) {
  if (Reentry::inside()) return call();
  CUresult result;
  {
    const Reentry guard;
    result = call();
  }
  if (result == CUDA_SUCCESS && symbol != nullptr) replace(symbol, function, caller);
  return result;
}

}  // namespace

CUresult cuGetProcAddress(const char* symbol, void** function, int version, cuuint64_t flags) {
  return ask(symbol, function, __builtin_return_address(0),
             [&] { return real.cuGetProcAddress(symbol, function, version, flags); });
}

CUresult cuGetProcAddress_ptsz(const char* symbol, void** function, int version, cuuint64_t flags) {
  return ask(symbol, function, __builtin_return_address(0),
             [&] { return real.cuGetProcAddress_ptsz(symbol, function, version, flags); });
}

CUresult cuGetProcAddress_v2(const char* symbol, void** function, int version, cuuint64_t flags,
                             CUdriverProcAddressQueryResult* status) {
  return ask(symbol, function, __builtin_return_address(0),
             [&] { return real.cuGetProcAddress_v2(symbol, function, version, flags, status); });
}

CUresult cuGetProcAddress_v2_ptsz(const char* symbol, void** function, int version, cuuint64_t flags,
                                  CUdriverProcAddressQueryResult* status) {
  return ask(symbol, function, __builtin_return_address(0),
             [&] { return real.cuGetProcAddress_v2_ptsz(symbol, function, version, flags, status); });
}

}  // namespace cupool::hooks
