// Whether the driver takes calls from this thread. In a host function (cuLaunchHostFunc, a stream callback, a
// host node of a graph) it refuses to allocate and to free, and so must the pool. Host functions run on
// threads of the driver's, and the pool's fast path needs a cache that only the slow path gives to a thread:
// it is enough to ask there, once for every thread. Holds no lock.
#pragma once

namespace cupool::hooks {

namespace detail {
[[gnu::visibility("hidden")]] extern constinit thread_local bool is_permitted;
bool ask_permission();
}  // namespace detail

inline bool thread_may_call() { return detail::is_permitted || detail::ask_permission(); }

}  // namespace cupool::hooks
