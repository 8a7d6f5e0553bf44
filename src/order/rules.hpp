// One switch per rule of the order model (docs/order.md), all on in the product. A test build (tests/seeds)
// takes them out one at a time, and the oracle must then find a program that breaks: that is how we know that
// every rule is needed and every test can fail.
#pragma once

namespace cupool::order {

#ifdef CUPOOL_RULES_BY_NAME
#define CUPOOL_RULE(name) extern bool name
#else
#define CUPOOL_RULE(name) inline constexpr bool name = true
#endif

CUPOOL_RULE(kFence);           // without: freed memory is handed out without looking at its stamp
CUPOOL_RULE(kGuard);           // without: a submission to another stream makes no barrier
CUPOOL_RULE(kNote);            // without: submissions to a second stream are not noted
CUPOOL_RULE(kGuardEpoch);      // without: an old guard serves hand-outs made after a later seal
CUPOOL_RULE(kNumberFirst);     // without: the event is recorded before the epoch's number goes up
CUPOOL_RULE(kDestroyBarrier);  // without: a destroyed stream's lane stays noted, its handle comes back
CUPOOL_RULE(kThreadLanes);     // without: all threads' default streams count as one lane

#undef CUPOOL_RULE

}  // namespace cupool::order
