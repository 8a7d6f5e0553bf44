// Whether the driver accepts calls from this thread. In a host function (cuLaunchHostFunc, a stream callback,
// a host node of a graph) it refuses to allocate and to free, and so must the pool. Host functions run on the
// driver's own threads, and the fast path needs a thread cache that only the slow path creates: asking on the
// slow path, once per thread, is enough. Holds no lock.
#pragma once

#include "cuda/cuda_api.hpp"

namespace cupool::hooks {

namespace detail {
[[gnu::visibility("hidden")]] extern constinit thread_local bool is_permitted;
bool ask_permission();
}  // namespace detail

// What the driver says first to a call of this thread, whatever it asks for: that it comes from a host
// function, that there is no context, or the error that ended it. Neither waits nor disturbs a capture.
CUresult ask_context();

inline bool thread_may_call() { return detail::is_permitted || detail::ask_permission(); }

}  // namespace cupool::hooks
