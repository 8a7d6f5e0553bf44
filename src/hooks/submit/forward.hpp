// The minimal hook: call the driver and count success. A call that reaches us from inside the driver on the
// same thread is not the program's: it is passed on and not counted.
#pragma once

#include "base/clock.hpp"
#include "base/reentry.hpp"
#include "cuda/real.hpp"
#include "hooks/observe/tell.hpp"
#include "hooks/state/serving.hpp"
#include "hooks/submit/room.hpp"
#include "stats/counters.hpp"

namespace cupool::hooks {

// Makes the real call, and repeats it if it failed for lack of memory and some could be released. Memory is
// released outside of the guard: inside it, every call counts as the driver's own.
template <typename... Params, typename... Args>
CUresult call_guarded(const cuda::Entry<CUresult (*)(Params...)>& entry, const Args&... args) {
  const auto call = [&] {
    const Reentry guard;
    return entry(args...);
  };
  const CUresult result = call();
  if (result != CUDA_ERROR_OUT_OF_MEMORY) [[likely]]
    return result;
  const int where = device_named(entry.room(), args...);
  const auto room = [&](allocator::Effort effort) {
    return make_room(effort, where, nullptr, bytes_named(args...));
  };
  return call_with_room(result, room, call);
}

// Makes the real call of an entry point that tells the observer itself; `what` is a stats::Counter or
// stats::Event.
template <typename What, typename... Params, typename... Args>
CUresult pass_on(What what, const cuda::Entry<CUresult (*)(Params...)>& entry, Args... args) {
  if (Reentry::inside()) return entry(args...);
  const CUresult result = call_guarded(entry, args...);
  if (result == CUDA_SUCCESS) stats::count(what);
  note_result(result);
  return result;
}

// The same, and tells the observer: the call has no event of its own.
template <typename What, typename... Params, typename... Args>
CUresult forward(What what, const cuda::Entry<CUresult (*)(Params...)>& entry, Args... args) {
  uint64_t begin = 0;
  const CUresult result = observe_call(entry.call(), &begin, [&] { return pass_on(what, entry, args...); });
  return tell_forwarded(entry.call(), result, begin);
}
// The same for calls that have no counter.
template <typename... Params, typename... Args>
CUresult forward(const cuda::Entry<CUresult (*)(Params...)>& entry, Args... args) {
  uint64_t begin = 0;
  const CUresult result = observe_call(entry.call(), &begin, [&] { return call_guarded(entry, args...); });
  return tell_forwarded(entry.call(), result, begin);
}

// A call in which the host waits for a stream, or, with null, for an event or a context.
template <typename... Params, typename... Args>
CUresult forward_wait(CUstream stream, const cuda::Entry<CUresult (*)(Params...)>& entry, Args... args) {
  const auto call = [&] { return pass_on(stats::Counter::synchronisations, entry, args...); };
  if (!is_slow_for(SlowReason::kCallsObserved)) [[likely]]
    return call();
  const uint64_t begin = now_ns();
  const CUresult result = call();
  observer.waited({entry.call(), number_of(stream), result, now_ns() - begin});
  return result;
}

}  // namespace cupool::hooks
