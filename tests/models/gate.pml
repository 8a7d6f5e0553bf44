/*
 * The gate for submissions, as order/submission_gate.* keeps it: two threads that submit, one that closes the gate to release.
 * A thread's stores become visible in their order, but at any later moment (a store buffer), at latest when the closing
 * thread's membarrier flushes all buffers. Loads see memory as it is then; locks, and what the closing thread stores, are visible at once.
 *
 * Holds: never a submission and a release together; what was submitted before a release is noted; no thread waits for ever,
 * though a submission may wait for the closing thread's next step (it may wait for the device, which waits for that thread).
 * scripts/check-model takes each rule out once (WITHOUT_...). Not here: slots of threads that are gone, more threads than slots.
 */

#define THREADS 2
#ifndef PASSES
#define PASSES 2         /* of each submitting thread */
#endif
#define CLOSINGS 2
#define NOBODY 255

/* Stores that may be under way. */
mtype = { inside, outside, enrolled, unlock, note };
chan buffer[THREADS] = [6] of { mtype, byte };

/* Memory. */
bool is_inside[THREADS];   /* by slot */
bool is_closed;
byte used;                 /* slots */
byte enrolling = NOBODY;   /* locks */
byte closing = NOBODY;
byte noted;

/* What really is. */
bool is_submitting[THREADS];
bool is_releasing;
byte submitted;
byte closings_over;

inline becomes_visible(thread) {
  if
  :: buffer[thread] ? inside(at) -> is_inside[at] = true
  :: buffer[thread] ? outside(at) -> is_inside[at] = false
  :: buffer[thread] ? enrolled(at) -> used = at
  :: buffer[thread] ? unlock(at) -> enrolling = NOBODY
  :: buffer[thread] ? note(at) -> noted = noted + at
  fi;
  at = 0
}

/* Memory takes the stores of a thread when it likes. */
proctype Memory(byte me) {
  byte at;
end:
  do
  :: d_step { nempty(buffer[me]) -> becomes_visible(me) }
  od
}

inline flush(thread) {
  do
  :: nempty(buffer[thread]) -> becomes_visible(thread)
  :: empty(buffer[thread]) -> break
  od
}

/* A lock is taken by an atomic operation, which waits for the thread's own stores. */
inline enroll() {
  d_step { enrolling == NOBODY && empty(buffer[me]) -> enrolling = me };
  slot = used;
  buffer[me] ! enrolled(slot + 1);
  buffer[me] ! unlock(0)
}

inline wait_until_open() {
  do
  :: buffer[me] ! outside(slot);
    d_step { closing == NOBODY && empty(buffer[me]) -> closing = me };
    closing = NOBODY;
    buffer[me] ! inside(slot);
#ifdef WITHOUT_SECOND_LOOK
    break
#else
    if :: is_closed :: else -> break fi
#endif
  od
}

proctype Submitter(byte me) {
  byte slot;
  byte passes;
  enroll();
  do
  :: passes < PASSES ->
    buffer[me] ! inside(slot);
#ifndef WITHOUT_LOOK
    if :: is_closed -> wait_until_open() :: else fi;
#endif
    atomic {
      assert(!is_releasing);
      is_submitting[me] = true;
      submitted++
    };
    /* The driver may be done at once, or when the closing thread has gone on. */
    if :: true :: true -> closings_over > 0 fi;
    d_step { is_submitting[me] = false; passes++ };
#ifdef WITHOUT_NOTE_INSIDE
    buffer[me] ! outside(slot);
    buffer[me] ! note(1)
#else
    buffer[me] ! note(1);
    buffer[me] ! outside(slot)
#endif
  :: else -> break
  od
}

/* Looks at a slot as often as it likes, but not for ever. */
inline look_at_slots() {
  at = 0;
  is_empty = true;
#ifndef WITHOUT_SLOTS
  do
  :: at < slots && is_empty ->
#ifdef WITHOUT_GIVING_UP
    !is_inside[at] -> at++
#else
    if
    :: !is_inside[at] -> at++
    :: is_inside[at]  /* again */
    :: is_inside[at] -> is_empty = false
    fi
#endif
  :: else -> break
  od;
#endif
  at = 0
}

proctype Closer() {
  byte at;
  byte slots;
  bool is_empty;
  do
  :: closings_over < CLOSINGS ->
    if
    :: d_step { closing == NOBODY -> closing = THREADS };
      is_closed = true;
#ifdef WITHOUT_USED_AFTER
      slots = used;
#endif
#ifndef WITHOUT_BARRIER
      d_step { flush(0); flush(1) };
#endif
#ifndef WITHOUT_USED_AFTER
      slots = used;
#endif
      look_at_slots();
      if
      :: is_empty ->
        d_step {
          is_releasing = true;
          assert(!is_submitting[0] && !is_submitting[1]);
          assert(noted == submitted)
        };
        is_releasing = false
      :: else
      fi;
      is_closed = false;
      closing = NOBODY
    :: closing != NOBODY  /* a thread that waits holds it for a moment: not closed */
    fi;
    closings_over++
  :: else -> break
  od
}

init {
  atomic {
    run Memory(0);
    run Memory(1);
    run Submitter(0);
    run Submitter(1);
    run Closer()
  }
}
