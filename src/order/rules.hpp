// One switch per rule of the order model (docs/order.md), all on in the product. A test build takes one out, and the
// oracle must then find a program that breaks: that is how we know that every rule is needed and every test can fail.
#pragma once

namespace cupool::order {

#ifdef CUPOOL_WITHOUT_FENCE
inline constexpr bool kFence = false;  // freed memory is handed out without looking at its stamp
#else
inline constexpr bool kFence = true;
#endif

#ifdef CUPOOL_WITHOUT_GUARD
inline constexpr bool kGuard = false;  // a submission to another stream makes no barrier
#else
inline constexpr bool kGuard = true;
#endif

#ifdef CUPOOL_WITHOUT_NOTE
inline constexpr bool kNote = false;  // submissions to a second stream are not noted
#else
inline constexpr bool kNote = true;
#endif

#ifdef CUPOOL_WITHOUT_GUARD_EPOCH
inline constexpr bool kGuardEpoch = false;  // an old guard serves hand-outs made after a later seal
#else
inline constexpr bool kGuardEpoch = true;
#endif

#ifdef CUPOOL_WITHOUT_NUMBER_FIRST
inline constexpr bool kNumberFirst = false;  // the event is recorded before the epoch's number goes up
#else
inline constexpr bool kNumberFirst = true;
#endif

#ifdef CUPOOL_WITHOUT_DESTROY_BARRIER
inline constexpr bool kDestroyBarrier = false;  // a destroyed stream's lane stays noted, its handle comes back
#else
inline constexpr bool kDestroyBarrier = true;
#endif

#ifdef CUPOOL_WITHOUT_THREAD_LANES
inline constexpr bool kThreadLanes = false;  // all threads' default streams count as one lane
#else
inline constexpr bool kThreadLanes = true;
#endif

}  // namespace cupool::order
