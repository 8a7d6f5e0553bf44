// One switch per rule of the order model (docs/order.md), all on in the product. A test build (tests/seeds)
// turns them off one at a time, and the oracle must then find a program that breaks: so every rule is needed
// and every test can fail.
#pragma once

namespace cupool::order {

#ifdef CUPOOL_RULES_BY_NAME
#define CUPOOL_RULE(name) extern bool name
#else
#define CUPOOL_RULE(name) inline constexpr bool name = true
#endif

CUPOOL_RULE(kFence);        // without: freed memory is handed out without looking at its stamp
CUPOOL_RULE(kLean);         // without: a submission does not wait for the seal that a hand-out leans on
CUPOOL_RULE(kAllLanes);     // without: the own-lane skip looks at one epoch, not at all unfinished ones
CUPOOL_RULE(kNote);         // without: submissions to a second stream are not noted
CUPOOL_RULE(kNumberFirst);  // without: the event is recorded before the epoch's number goes up
CUPOOL_RULE(kRename);       // without: a destroyed stream's lane stays noted while its handle is reused
CUPOOL_RULE(kDropWaited);   // without: a destroyed stream's waits count for the next one with its handle
CUPOOL_RULE(kDropOverlap);  // without: a programmatic launch may jump over the wait
CUPOOL_RULE(kThreadLanes);  // without: all threads' default streams count as one lane
CUPOOL_RULE(kTurn);         // without: the turn stays with the lane that was given work first
CUPOOL_RULE(kDropName);     // without: a destroyed stream's name goes to the next one with its handle
CUPOOL_RULE(kSealInFree);   // without: work may wait for an event that was recorded outside a free
CUPOOL_RULE(kExports);      // without: memory leaves the process before its old work is done
CUPOOL_RULE(kMoves);        // without: memory that moved is handed out without looking at its old work
CUPOOL_RULE(kGraphsApart);  // without: a wait of ours may be lost to a graph launched in that moment
CUPOOL_RULE(kVacated);      // without: a place that was left is unmapped before its old work is done
CUPOOL_RULE(kDoneGoes);     // without: a segment goes back without a wait before its old work is done
CUPOOL_RULE(kPeersDone);  // without: memory that another context may access is reused before its work is done
CUPOOL_RULE(kFormer);     // without: a stream-ordered free forgets the work of the block's former lives

#undef CUPOOL_RULE

}  // namespace cupool::order
