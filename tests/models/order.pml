/* The order of work as src/order builds it, for exhaustive search: can work of a block's new life reach the GPU without
 * being ordered after all work of its old lives? Names are those of timeline.cpp. Every store to a word that is read
 * without the lock is a step of its own; a driver call is one step, as the driver's own locks make it.
 * WITHOUT_x takes one rule out, and the search must then find a violation. WITH_x adds a part of the world.
 * Lanes 1 and 2 are streams as the program names them; a destroyed stream's name comes back for another one.
 * scripts/check-model runs it, and says how large each world is: PROGRAMS, LIVES, LAUNCHES, SEALS, WAITS. */

#define NONE 0
#define MANY 3
#define EPOCHS 4
#ifdef WITH_DESTROY
#define STREAMS 3
#else
#define STREAMS 2
#endif

#define LARGER(a, b) ((a) > (b) -> (a) : (b))
#define UNITE(a, b) ((b) == NONE || (a) == (b) -> (a) : ((a) == NONE -> (b) : MANY))

/* ---- The GPU, as far as it concerns the one block: a bit says that there is work on it in a stream. The low bits stand
 * for the life that holds the block, the bits above for all former lives. */
#define PRESENT ((1 << STREAMS) - 1)
#define FORMER(bits) ((bits) >> STREAMS)
byte unordered;          /* what is submitted from now on, to another stream, does not wait for it */
byte event[EPOCHS + 1];  /* what an epoch's event covers */
#ifdef WITH_WAITS
byte running;            /* not over */
byte behind[STREAMS];    /* what is over when the stream's newest work is */
#define EXISTING running
#else
#define EXISTING unordered
#endif

/* ---- The program. */
bool taken; /* the block is held, or on its way */
byte stamp;
byte lives; /* of both threads together */
#ifdef WITH_DESTROY
byte submitting; /* threads inside a call on lane 2 */
bool dying, reborn;
#define STREAM(lane) (reborn && (lane) == 2 -> 2 : (lane) - 1)
#else
#define STREAM(lane) ((lane) - 1)
#endif

/* ---- The timeline. */
bool locked;
bool grant;
byte guard, guard_epoch, noted, safe, completed, ordered;
byte open = 1;
byte lanes[EPOCHS + 1];
bool recorded[EPOCHS + 1];
byte in_use; /* of whoever holds the lock */

inline lock() { atomic { !locked -> locked = true } }
inline unlock() { atomic { in_use = NONE; locked = false } }

inline look() {
  in_use = noted;
  for (k : 1 .. EPOCHS) { in_use = UNITE(in_use, lanes[k]) }
  k = 0
}

inline refresh() {
  d_step {
    look();
#ifdef WITHOUT_GUARD_EPOCH
    grant = in_use == NONE || (in_use != MANY && guard == in_use);
#else
    grant = in_use == NONE || (in_use != MANY && guard == in_use && guard_epoch == open);
#endif
#ifdef WITHOUT_FENCE
    grant = true;
#endif
    in_use = NONE
  }
}

inline record(epoch) {
  d_step {
    event[epoch] = EXISTING;
    recorded[epoch] = true
  }
}

/* The number goes up before anything is recorded. More epochs than the search has room for end this run. */
inline open_next(epoch) {
  atomic {
    open < EPOCHS;
    d_step {
      epoch = open;
      lanes[epoch] = noted;
      grant = false
    }
  }
  noted = NONE;
  open = epoch + 1
}

inline seal(epoch) {
#ifdef WITHOUT_NUMBER_FIRST
  record(open);
  open_next(epoch);
#else
  open_next(epoch);
  record(epoch);
#endif
  refresh()
}

inline barrier(epoch) {
  seal(epoch);
  d_step {
    unordered = unordered & ~event[epoch];
    for (k : 1 .. EPOCHS) { lanes[k] = NONE }
    k = 0;
    ordered = epoch;
    safe = LARGER(ordered, completed)
  }
  guard = NONE;
  refresh()
}

inline complete(epoch) {
  if
  :: epoch > completed ->
    d_step {
      for (k : 1 .. epoch) { lanes[k] = NONE; event[k] = 0; recorded[k] = false }
      k = 0;
      completed = epoch;
      safe = LARGER(ordered, completed)
    }
    d_step { if :: guard_epoch <= epoch -> guard = NONE :: else fi }
    refresh()
  :: else
  fi
}

inline before_submit(lane) {
#ifndef WITHOUT_GUARD
  if
  :: guard != NONE && guard != lane ->
    lock();
    if :: guard != NONE && guard != lane -> barrier(e) :: else fi;
    unlock()
  :: else
  fi
#else
  skip
#endif
}

inline after_submit(lane) {
#ifndef WITHOUT_NOTE
  if
  :: noted != lane && noted != MANY ->
    lock();
#ifndef WITHOUT_GRANT_FIRST
    grant = false; /* before others see that they need not note */
#endif
    noted = UNITE(noted, lane);
    refresh();
    unlock()
  :: else
  fi
#else
  skip
#endif
}

/* The real call. Work on the block must come after all work of its former lives, in whatever stream that was. */
inline submit(lane, on_block) {
  d_step {
#ifdef WITH_WAITS
    behind[STREAM(lane)] = behind[STREAM(lane)] | (running & ~unordered);
#endif
    if
    :: on_block ->
      assert((FORMER(unordered) & ~(1 << STREAM(lane))) == 0);
      for (k : 1 .. EPOCHS) { event[k] = event[k] & ~(1 << STREAM(lane)) }
      k = 0;
      unordered = unordered | (1 << STREAM(lane));
#ifdef WITH_WAITS
      for (k : 0 .. STREAMS - 1) { behind[k] = behind[k] & ~(1 << STREAM(lane)) }
      k = 0;
      behind[STREAM(lane)] = behind[STREAM(lane)] | (1 << STREAM(lane));
      running = running | (1 << STREAM(lane))
#endif
    :: else
    fi
  }
}

/* The holder's work becomes that of a former life. In its own stream it is the later, so what covers it covers both. */
#define RETIRED(bits, there) (((bits) & ~PRESENT & ~((there) << STREAMS)) | (((bits) & PRESENT) << STREAMS))
inline free_block() {
  d_step {
    stamp = open;
    e = EXISTING & PRESENT;
    for (k : 1 .. EPOCHS) { event[k] = RETIRED(event[k], e) }
#ifdef WITH_WAITS
    for (k : 0 .. STREAMS - 1) { behind[k] = RETIRED(behind[k], e) }
    running = RETIRED(running, 0);
#endif
    unordered = RETIRED(unordered, 0);
    k = 0;
    e = 0;
    lane = 0;
    taken = false
  }
}

inline launch(lane, on_block) {
#ifdef WITH_DESTROY
  atomic { lane == 1 || !dying -> if :: lane == 2 -> submitting++ :: else fi }
#endif
  before_submit(lane);
#ifdef WITHOUT_NOTE_AFTER
  after_submit(lane);
  submit(lane, on_block);
#else
  submit(lane, on_block);
  after_submit(lane);
#endif
#ifdef WITH_DESTROY
  d_step { if :: lane == 2 -> submitting-- :: else fi }
#endif
}

inline request_grant() {
  lock();
  d_step { look(); want = in_use; in_use = NONE }
  if
  :: want == MANY
  :: want == NONE -> refresh()
  :: want != MANY && want != NONE ->
    if :: guard != NONE && guard != want -> barrier(e) :: else fi;
    d_step { guard = want; guard_epoch = open; want = NONE }
    refresh()
  fi;
  unlock()
}

/* Taken first, then looked at: what was noted before the free is then seen. */
inline may_hand_out() {
#ifdef WITHOUT_READ_AFTER
  ok = grant;
  atomic { !taken -> taken = true; lives++ }
#else
  atomic { !taken -> taken = true; lives++ }
  ok = grant;
#endif
  ok = ok || stamp <= safe
}

/* Lives of one block: allocated, used on either stream, freed. What may not be handed out otherwise gets a barrier. */
active [PROGRAMS] proctype Program() {
  byte e, k, want, lane;
  bool ok;
  do
  :: lives < LIVES ->
    may_hand_out();
    if
    :: ok
    :: else ->
      request_grant();
      ok = grant;
      ok = ok || stamp <= safe;
      if
      :: ok
      :: else ->
        lock();
        barrier(e);
        unlock();
        e = 0;
        assert(stamp <= safe)
      fi
    fi;
#ifdef WITH_WAITS
    /* Memory the host may write to has no work left at all. */
    d_step { assert(stamp > completed || FORMER(running) == 0) }
#endif
    atomic {
      ok = false;
      if :: lane = 1 :: lane = 2 fi
    }
    launch(lane, true);
    free_block()
  :: else -> break
  od
}

/* Other work, on no block of ours. */
active proctype Other() {
  byte e, k, count;
  do
  :: count < LAUNCHES -> count++; launch(2, false); e = 0
  :: else -> break
  od
}

active proctype Sealer() {
  byte e, k, count;
  do
  :: count < SEALS ->
    lock();
    count++;
    seal(e);
    unlock();
    e = 0
  :: (completed < open - 1) ->
    lock();
    /* An event that is done: any one that was recorded, for work ends when it likes. */
    atomic {
      e = completed + 1;
      do :: e < open - 1 -> e++ :: break od
    }
    if
    :: e < open && recorded[e] ->
      d_step {
        unordered = unordered & ~event[e];
#ifdef WITH_WAITS
        running = running & ~event[e];
#endif
      }
      complete(e)
    :: else
    fi;
    unlock();
    e = 0
  :: count >= SEALS -> break
  od
}

#ifdef WITH_WAITS
/* The program waits for its context (MANY) or for one stream; a wait that failed proves nothing. */
active proctype Waiter() {
  byte e, k, lane, count;
  do
  :: count < WAITS ->
    lock();
    atomic {
      count++;
      if :: lane = MANY :: lane = 1 :: lane = 2 fi;
      d_step { look() }
    }
#ifdef WITHOUT_WAIT_AFTER_BARRIER
    if
    :: lane == MANY || in_use == lane ->
#else
    if
    :: lane == MANY || (in_use == lane && ordered <= completed) ->
#endif
      open_next(e);
      refresh();
      unlock();
      if
      :: d_step {
          if
          :: lane == MANY -> running = 0
          :: else -> running = running & ~behind[STREAM(lane)]
          fi;
          unordered = unordered & running
        }
        lock();
        complete(e);
        unlock()
      :: lock();
        d_step {
          grant = false;
          noted = UNITE(noted, lanes[e]);
          lanes[e] = NONE
        }
        refresh();
        unlock()
      fi
    :: else -> unlock()
    fi;
    e = 0;
    lane = 0
  :: else -> break
  od
}
#endif

#ifdef WITH_DESTROY
/* Stream 2 is destroyed while nobody submits to it, and the next one gets its handle. */
active proctype Destroyer() {
  byte e, k;
  atomic { submitting == 0 -> dying = true }
#ifndef WITHOUT_DESTROY_BARRIER
  lock();
  d_step { look() }
  if :: in_use == 2 || in_use == MANY || guard == 2 -> barrier(e) :: else fi;
  unlock();
#endif
  d_step { reborn = true; dying = false; e = 0 }
}
#endif
