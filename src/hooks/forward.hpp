// The minimal hook: call the driver and count success. A call that reaches us from inside the driver on the
// same thread is not the program's: it is passed on and not counted.
#pragma once

#include "base/reentry.hpp"
#include "cuda/real.hpp"
#include "hooks/serving.hpp"
#include "stats/counters.hpp"

namespace cupool::hooks {

// Makes the real call; `what` is a stats::Counter or stats::Event.
template <typename What, typename... Params, typename... Args>
CUresult forward(What what, const cuda::Entry<CUresult (*)(Params...)>& entry, Args... args) {
  if (Reentry::inside()) return entry(args...);
  CUresult result;
  {
    const Reentry guard;
    result = entry(args...);
  }
  if (result == CUDA_SUCCESS) stats::count(what);
  note_result(result);
  return result;
}

// The same for calls that have no counter.
template <typename... Params, typename... Args>
CUresult forward(const cuda::Entry<CUresult (*)(Params...)>& entry, Args... args) {
  const Reentry guard;
  return entry(args...);
}

}  // namespace cupool::hooks
