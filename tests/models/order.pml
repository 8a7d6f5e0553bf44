/* The order of work as src/order builds it, for exhaustive search. Names are those of timeline.cpp. Every store to a word
 * that is read without the lock is a step of its own; a driver call is one step, as the driver's own locks make it.
 * seals.pml holds the list of seals, gpu.pml the world around the rules, program.pml what runs in it. scripts/check-model runs
 * it and says how large each world is.
 *
 * Properties
 *   P1  When the GPU runs work on a block, all work of older lives of that block is done.
 *   P2  Nothing of ours waits, on the GPU or on the host, for work that was submitted after the last free. P2=1: the last
 *       free of any thread. P2=2 (exact): of the thread that waits, or of one that the program ordered before it.
 *   P3  WITH_FLAG: a thread submits work to lane 1 that ends only when work it submits later to lane 2 has run. A program
 *       that ends under the driver alone must end here: an invalid end state is a hang that we caused.
 *
 * World: PROGRAMS threads, LANES stream handles, BLOCKS blocks; at most LIVES allocations, LAUNCHES submissions, EPOCHS
 * epochs that are closed, MOST pending seals before two of them become one. Reuse is kLean, or
 *   FENCES             kOrder: submissions may be unseen, a hand-out first makes the whole context wait
 *   EXACT              kCompleted: nothing is handed out before its old work is over; a free may wait on the host for all
 *                      work before it
 * WITH_x adds a part of the world:
 *   WITH_PAST          begins with two blocks freed under two pending seals, each with its work on a lane of its own
 *   WITH_UNTRACKED         expect_untracked_work() is called once; submissions may be unseen after that
 *   WITH_WAITS         the program waits for its context or for one stream (WAITS times)
 *   WITH_FAILURES      waits of the program and records of ours may fail
 *   WITH_ORDERED_FREE  a free may be ordered by a stream: the driver waits for nothing in it
 *   WITH_RELEASE       an allocation may give segments back once nothing is pending
 *   WITH_DESTROY       lane DESTROY_LANE is destroyed once and a new stream gets its handle
 *   WITH_OVERLAP       programmatic launches
 *   WITH_PASS          a thread may hand its block to the other one
 *   WITH_OLD_DRIVER    no events of contexts: a free that would seal waits on the host
 *   WITH_SOLE          a block that was taken and freed within one lane's turn asks nothing of that lane
 *   WITH_PEERS         a second context with one stream, and a call that lets its work touch this one's blocks (CONNECTED: made
 *                      before the beginning). With the flag, one context has the work that waits and the other what sets it,
 *                      from one thread or two (PEER_WAITS: it is the other context's that waits)
 * WITHOUT_x takes one rule out, and the search must then find a violation. Six variants say why the rules are no
 * simpler: LEAN_OF_THREAD (a word for each thread: breaks blocks that are passed on), OVERLAP_BARRIER (a programmatic launch
 * makes the context wait for an event recorded there: waits for new work), SEAL_LATE (an allocation seals), WAIT_LATE (EXACT:
 * the host waits in an allocation, not in a free), WAIT_EVERYWHERE (a hand-out makes the other context wait for the seal, too),
 * DONE_LATE (a block that another context may touch is handed out sealed, and the host waits for it).
 *
 * Two contexts. The timeline is that of the context which owns the blocks. Work of the other one on them is not noted here, and
 * no event, wait or free of the owner covers it: the program frees a block when that work is done, as it must under the driver.
 * P1 is for work of both. P2 allows no wait of the other context for the owner's work, whatever was freed, since its threads may
 * never have met the one that frees. The other context's own blocks have their own timeline, another instance of these rules.
 * One is enough here: neither reads or writes a word of the other's, and by P2 each makes only its own context wait, only for
 * what a free there would have waited for. Not here: a copy without the access, whose stream waits for the owner's seal
 * (before_visit). Green contexts need no model: to frees, events and waits their streams are the primary context's (measured). */

#include "gpu.pml"

/* ---- The timeline's words, read without the lock, and the stamps. */
bool locked;
byte open = 1;
byte completed, sealed, noted;
#ifdef FENCES
bool idle;
#else
bool idle = true;
#endif
byte waited[LANES + 1];   /* the newest seal that the lane has waited for, or need not */
byte stamp[BLOCKS + 1];
#ifdef LEAN_OF_THREAD
byte lean_of[PROGRAMS];
#define LEAN lean_of[ME]
#else
byte lean;                /* the highest stamp that every lane is asked to wait for */
#define LEAN lean
#endif
#ifdef WITH_SOLE
byte others[LANES + 1];   /* what all lanes but this one are asked to wait for */
byte demand;              /* the number of the newest of these; 0: all of them are over */
byte demands_made;
byte met[LANES + 1];      /* the newest that the lane has met */
byte turn, turn_lane;
byte taken_in[BLOCKS + 1], sole[BLOCKS + 1];
#define DEMAND demand
#define MET(lane) met[lane]
#define SOLE(block) sole[block]
#else
#define DEMAND 0
#define MET(lane) 0
#define SOLE(block) NONE
#endif
#ifdef CAN_BE_UNTRACKED
byte ordered;
#define ORDERED ordered
#ifdef FENCES
bool untracked = true;
#define MAY_BE_UNSEEN true
#else
bool untracked, fences;      /* `fences`: reuse is kOrder by now */
bool untracked_begun, untracked_over;
#define MAY_BE_UNSEEN untracked_over
#endif
#define UNTRACKED untracked
#else
#define ORDERED completed
#define UNTRACKED false
#endif
#ifdef WITH_PEERS
bool direct = AT_ONCE;    /* another context may touch the memory */
bool done_only = AT_ONCE; /* reuse is kCompleted by now */
#endif
#if !defined(WITH_PEERS) || defined(WITHOUT_ORDERED_LOWERED) || defined(WAIT_EVERYWHERE)
#define KEEPS_ORDERED true
#else
#define KEEPS_ORDERED (!done_only) /* else what waits is ordered, but not to be had */
#endif

#include "seals.pml"

inline lock() { atomic { !locked -> locked = true } }
inline unlock() { locked = false }

/* ---- timeline.cpp, under the lock. */

inline refresh() {
  d_step {
    idle = noted == NONE;
    for (k : 1 .. EPOCHS) { idle = idle && lanes[k] == NONE }
    k = 0;
    idle = idle && !UNTRACKED
  }
}

inline add_noted(lane) {
#ifndef WITHOUT_IDLE_FIRST
  if :: lane != NONE -> idle = false :: else fi;
#endif
  noted = UNITE(noted, lane);
  refresh()
}

/* The number goes up before anything is recorded. pre: open <= EPOCHS. */
inline open_next(epoch) {
  d_step {
    make_room();
    epoch = open;
    kind[epoch] = WAITED;
    lanes[epoch] = noted;
    idle = false
  }
  noted = NONE;
#ifndef WITHOUT_NUMBER_FIRST
  open = epoch + 1
#endif
}

/* is_free: the driver would have waited here. */
inline seal(epoch, how, is_free) {
  open_next(epoch);
  if
  :: d_step {
      event[epoch] = OWN_WORK;
      kind[epoch] = how;
      if :: is_free -> DRIVER_WAITS :: else fi
    }
#ifdef WITHOUT_NUMBER_FIRST
    open = epoch + 1;
#endif
    if :: kind[epoch] == IN_FREE -> sealed = epoch :: else fi;
    refresh()
#ifdef WITH_FAILURES
  :: d_step { abandon(epoch, s) }
#ifdef WITHOUT_NUMBER_FIRST
    open = epoch + 1;
#endif
    add_noted(s);
    s = 0
#endif
  fi;
  epoch = 0
}

#ifdef WITH_SOLE
#define OTHERS LARGER(others[1], others[2])
#define HIGHEST LARGER(lean, OTHERS)
#define ASKED(lane) LARGER(lean, ((lane) == 1 -> others[2] : others[1]))
#define NOTE_WAITED(lane, epoch, number) d_step { waited[lane] = LARGER(waited[lane], epoch); met[lane] = number }
#else
#define HIGHEST LEAN
#define ASKED(lane) LEAN
#define NOTE_WAITED(lane, epoch, number) waited[lane] = LARGER(waited[lane], epoch)
#endif

/* Several words in one step: who sees only the first of them is the more careful. */
inline complete(epoch) {
  if
  :: epoch > completed ->
    for (k : 1 .. EPOCHS) { if :: k <= epoch -> remove(k) :: else fi }
    k = 0;
    completed = epoch;
    sealed = LARGER(sealed, completed);
#ifdef CAN_BE_UNTRACKED
    ordered = LARGER(ordered, completed);
#endif
#ifdef WITH_SOLE
    if :: OTHERS <= completed -> demand = 0 :: else fi;
#endif
    refresh()
  :: else
  fi
}

/* What was freed while nothing was in use is over. Only as often as there are epochs to close: to leave it out is the more
 * careful. */
inline close_idle_epoch() {
  d_step { lanes_up_to(EPOCHS, s); s = UNITE(s, noted) }
  if
#ifdef WITHOUT_IDLE_EPOCH
  :: open <= EPOCHS && !UNTRACKED ->
#else
  :: s == NONE && open <= EPOCHS && !UNTRACKED ->
#endif
    e = open;
    open = e + 1;
    d_step { complete(e); e = 0 }
  :: true
  fi;
  s = 0
}

#ifdef WITH_SOLE
inline leave_open() {
#ifdef WITHOUT_TURN_LANE_FIRST
  turn++;
  turn_lane = NONE
#else
  turn_lane = NONE;
  turn++
#endif
}

inline change_turn(handle) {
  if :: turn_lane != NONE -> leave_open() :: else fi;
  turn_lane = handle
}
#define TURN_OF(handle) (turn_lane == handle)
#else
#define TURN_OF(handle) true
#endif

#ifdef CAN_BE_UNTRACKED
/* Without the lock, but for the look at the seals and the note. */
inline order(epoch) {
  lock();
  d_step { if :: epoch > ordered -> covering(epoch, s); pin(s) :: else fi }
  unlock();
  if
  :: s != 0 ->
#ifndef WITHOUT_ORDER
    context_wait();
#endif
    lock();
    d_step { if :: KEEPS_ORDERED -> ordered = LARGER(ordered, s) :: else fi; s = 0 }
    unlock()
  :: else
  fi
}
#endif

#ifdef WITHOUT_COVERED_NOTED
#define NOTHING_SINCE true
#else
#define NOTHING_SINCE (noted == NONE)
#endif
#ifdef WITHOUT_COVERED_KIND
#define NEWEST_IN_FREE true
#else
#define NEWEST_IN_FREE (kind[e] == IN_FREE)
#endif
#ifdef WITHOUT_COVERED_BLIND
#define ALL_SEEN true
#else
#define ALL_SEEN (!UNTRACKED)
#endif

inline seal_in_free() {
  lock();
  d_step {
    lanes_up_to(EPOCHS, s);
    s = UNITE(s, noted);
    for (k : 1 .. EPOCHS) { if :: kind[k] != 0 -> e = k :: else fi }
    k = 0;
    ok = false;
    if
    :: s == NONE || open > EPOCHS -> s = 0
    :: else ->
      s = 1;
      if :: e != 0 && NOTHING_SINCE && NEWEST_IN_FREE && ALL_SEEN -> ok = true :: else fi
    fi
  }
  if
  :: s == 0 -> e = 0
  :: s != 0 && ok ->
    /* Nothing was submitted since the newest seal: it serves for the open epoch as well. */
    d_step {
      s = 0;
      ok = false;
      kind[open] = kind[e];
      event[open] = event[e];
      lanes[open] = lanes[e];
      remove(e);
      k = 0;
      e = open;
      DRIVER_WAITS
    }
    open = e + 1;
    sealed = e;
    e = 0
  :: else ->
    d_step { s = 0; e = 0 }
    seal(e, IN_FREE, true)
  fi;
  unlock()
}

/* ---- Around a submission. */

inline before_submit(handle) {
#ifndef WITHOUT_LEAN
  n = DEMAND;
  l = LEAN;
  if
  :: (l > completed && l > waited[handle]) || n > MET(handle) ->
    lock();
    d_step {
      l = DEMAND;
      n = ASKED(handle);
      if
      :: n > completed && n > waited[handle] ->
        covering(n, e);
        assert(e != 0);
#ifdef WITHOUT_ALL_LANES
        s = lanes[e];
#else
        lanes_up_to(e, s)
#endif
      :: else
      fi
    }
    if
    :: e == 0 -> NOTE_WAITED(handle, n, l)
    :: e != 0 && s != NONE && s != handle ->
      /* The wait itself is made without the lock. */
      d_step { s = 0; pin(e) }
#ifdef WITHOUT_WAIT_FIRST
      NOTE_WAITED(handle, e, l);
      unlock();
      stream_wait(handle);
      lock()
#else
      unlock();
      stream_wait(handle);
      lock();
      NOTE_WAITED(handle, e, l)
#endif
    :: else -> s = 0; NOTE_WAITED(handle, e, l)
    fi;
    e = 0;
    unlock()
  :: else
  fi;
  d_step { l = 0; n = 0 }
#else
  skip
#endif
}

inline after_submit(handle) {
#ifndef WITHOUT_NOTE
  if
  :: (noted != handle && noted != MANY) || !TURN_OF(handle) ->
    lock();
#ifdef WITH_SOLE
    if :: turn_lane != handle -> change_turn(handle) :: else fi;
#endif
    close_idle_epoch();
    add_noted(handle);
    unlock()
  :: else
  fi
#else
  skip
#endif
}

inline launch(handle, overlapping, block, what) {
#ifdef WITH_DESTROY
  atomic { handle != DESTROY_LANE || !dying -> if :: handle == DESTROY_LANE -> submitting++ :: else fi }
#endif
#ifdef WITH_RELEASE
  just_freed[ME] = false;
#endif
#ifdef WITH_OVERLAP
  /* It is ordered neither by its stream nor by a wait that leads back to it. */
#ifdef OVERLAP_BARRIER
  if
  :: overlapping && (lean > completed || DEMAND != 0) ->
    lock();
    if :: open <= EPOCHS -> seal(e, IN_FREE, false); pin(sealed); context_wait() :: else -> overlapping = false fi;
    unlock()
  :: else
  fi;
#elif !defined(WITHOUT_DROP_OVERLAP)
  if :: overlapping && (lean > completed || DEMAND != 0) -> overlapping = false :: else fi;
#endif
#endif
#ifdef CAN_BE_UNTRACKED
  if
  :: MAY_BE_UNSEEN -> submit(handle, overlapping, block, what)
  :: true ->
    before_submit(handle);
    submit(handle, overlapping, block, what);
    after_submit(handle)
  fi;
#else
  before_submit(handle);
#ifdef WITHOUT_NOTE_AFTER
  after_submit(handle);
  submit(handle, overlapping, block, what);
#else
  submit(handle, overlapping, block, what);
  after_submit(handle);
#endif
#endif
#ifdef WITH_DESTROY
  d_step { if :: handle == DESTROY_LANE -> submitting-- :: else fi }
#endif
}

/* ---- Allocation and free. */

inline raise_lean(to) {
#ifdef WITHOUT_LEAN_LARGER
  l = LARGER(LEAN, to);
  LEAN = l;
  l = 0
#else
  d_step { LEAN = LARGER(LEAN, to) }
#endif
}

#ifdef WITH_SOLE
/* `to` is asked of all lanes but one. */
inline demand_of_others(to, lane) {
  lock();
  if
  :: to > completed && to > others[lane] ->
    d_step { others[lane] = to; demands_made++; demand = demands_made }
  :: else
  fi;
  unlock()
}
#endif

/* P2, for a wait on the host until an epoch is over. pre: inside a d_step. */
inline check_wait(epoch) {
#if P2
  if
  :: epoch > completed ->
    covering(epoch, s);
    assert((event[s] & ~MAY_WAIT_FOR) == 0);
    s = 0
  :: else
  fi
#else
  skip
#endif
}

#ifdef WITH_PEERS
inline wait_for(epoch) {
  d_step { check_wait(epoch) }
  epoch <= completed
}
#endif

/* Before a sealed block is handed out. What is asked is published first and the mode read then; expect_untracked_work() and
 * enable_peer_access() do it the other way round. */
inline lean_on(to, lane) {
#if defined(WITH_UNTRACKED) && defined(WITHOUT_LEAN_BEFORE_MODE)
  ok = fences;
#endif
#if defined(WITH_PEERS) && defined(WITHOUT_LEAN_BEFORE_DIRECT)
  ok = direct;
#endif
  if
  :: to <= LEAN
#ifdef WITH_SOLE
  :: to > LEAN && lane != NONE -> demand_of_others(to, lane)
#endif
  :: else -> raise_lean(to)
  fi
#ifdef WITH_UNTRACKED
  ;
#ifndef WITHOUT_LEAN_BEFORE_MODE
  ok = fences;
#endif
  if :: ok -> order(to) :: else fi;
  ok = true
#endif
#ifdef WITH_PEERS
  ;
#ifdef FENCES
  ok = !done_only;
  if :: ok -> order(to) :: else fi;
#endif
#ifndef WITHOUT_LEAN_BEFORE_DIRECT
  ok = direct;
#endif
#ifndef WITHOUT_PEERS_DONE
  if :: ok -> wait_for(to) :: else fi;
#endif
  ok = true
#endif
}

#if defined(EXACT) || defined(WITH_PEERS)
/* Waits on the host until what is sealed is over. In a free that is what the driver waits for: all work before it. */
inline wait_on_host(is_free) {
  d_step {
    l = sealed;
    if :: is_free -> DRIVER_WAITS :: else fi;
    check_wait(l)
  }
  l <= completed;
  l = 0
}
#endif

/* What it takes to make sealed blocks reachable. */
inline reach() {
#ifdef CAN_BE_UNTRACKED
#ifdef WITH_UNTRACKED
  if :: fences -> l = sealed; order(l); l = 0 :: else fi
#else
  if :: KEEPS_ORDERED -> l = sealed; order(l); l = 0 :: else fi
#endif
#elif defined(WAIT_LATE)
  wait_on_host(false)
#else
  skip
#endif
}

#ifdef WITHOUT_FENCE
#define LIMIT 255
#elif defined(FENCES)
#define LIMIT ordered
#elif defined(EXACT)
#define LIMIT completed
#elif defined(WITH_UNTRACKED)
#define LIMIT (fences -> ordered : sealed)
#elif defined(WITH_PEERS) && !defined(WITHOUT_PEERS_DONE) && !defined(DONE_LATE)
#define LIMIT (done_only -> completed : sealed)
#else
#define LIMIT sealed
#endif

/* Taken first, then looked at: what was noted before the free is then seen. */
inline allocate() {
#ifdef WITHOUT_READ_AFTER
  ok = idle;
#endif
  atomic {
    if
    :: !taken[1] -> b = 1
#if BLOCKS > 1
    :: !taken[2] -> b = 2
#endif
    :: else /* another thread has it: this one takes new memory */
    fi;
    if :: b != 0 -> taken[b] = true :: else fi
  }
  if
  :: b != 0 ->
#ifndef WITHOUT_READ_AFTER
    ok = idle;
#endif
    if
    :: !ok && stamp[b] <= LIMIT ->
      ok = true;
      if :: stamp[b] > ORDERED -> lean_on(stamp[b], SOLE(b)) :: else fi
#ifdef SEAL_LATE
    :: !ok && stamp[b] > sealed && open <= EPOCHS -> lock(); if :: open <= EPOCHS -> seal(e, IN_FREE, false) :: else fi; unlock()
#endif
    :: else
    fi
  :: else
  fi;
#ifdef WITH_SOLE
  /* Another lane may be expected to use it. */
  if :: turn_lane != NONE && b != 0 && ok -> lock(); if :: turn_lane != NONE -> leave_open() :: else fi; unlock() :: true fi;
  taken_in[b] = turn;
#endif
  d_step {
    if :: b == 0 :: b != 0 && ok -> held = b; lives++ :: b != 0 && !ok -> taken[b] = false fi;
    ok = false;
    b = 0
  }
}

#ifdef WITH_RELEASE
/* Whole segments go back to the driver while nothing is pending, for it waits for all work in that. Before, what the last
   free would have waited for is waited for, under a seal of its own; the code gives up after a while, so here it may at any
   time. */
inline await_before_release(pending) {
  d_step {
    awaited[ME] = pending;
#if P2
    assert((awaited[ME] & ~MAY_WAIT_FOR) == 0)
#endif
  }
}

inline release_for_growth() {
#ifndef EXACT
#ifdef WITHOUT_JUST_FREED
  ok = !idle;
#else
  ok = !idle && just_freed[ME];
#endif
  if
  :: ok && open <= EPOCHS ->
    lock();
    if
    :: open <= EPOCHS -> seal(e, FOR_COMPLETION, false); e = open - 1
    :: else
    fi;
    unlock();
    if
    :: e != 0 && kind[e] == FOR_COMPLETION ->
      await_before_release(event[e]);
      if
      :: awaited[ME] == 0 -> lock(); d_step { complete(e) } unlock()
      :: true -> awaited[ME] = 0
      fi
    :: else
    fi;
    e = 0
  :: else
  fi;
#endif
  ok = idle;
  if
  :: ok -> await_before_release(OWN_WORK); awaited[ME] == 0
  :: else
  fi;
  ok = false
}
#endif

inline put_away() {
#ifdef WITH_SOLE
  l = turn_lane;
#ifndef WITHOUT_TURN_NUMBER
  if :: turn == taken_in[held] :: else -> l = NONE fi;
#endif
  sole[held] = l;
  l = 0;
#endif
  s = open;
  d_step {
    stamp[held] = s;
    past[held] = past[held] | work[held];
    work[held] = 0;
    taken[held] = false;
    held = 0;
    s = 0
  }
}

/* A seal is made when one is due, or not if another thread is at it. Where reuse is exact, the free may wait for it. */
inline free_block() {
  put_away();
  if
  :: idle
  :: !idle ->
    if
#ifdef WITH_OLD_DRIVER
    :: open <= EPOCHS -> wait(0)
#else
    :: open <= EPOCHS -> seal_in_free()
#endif
    :: true
    fi;
#ifdef WITH_RELEASE
    just_freed[ME] = true;
#endif
#ifdef EXACT
    if :: true :: wait_on_host(true) fi
#elif defined(WITH_PEERS)
    if :: true :: done_only -> wait_on_host(true) fi
#endif
  fi;
  d_step { DRIVER_WAITS }
}

#ifdef WITH_ORDERED_FREE
inline free_ordered() {
  put_away();
  if
  :: open <= EPOCHS ->
    lock();
    if
#ifdef WITHOUT_SEAL_IN_FREE
    :: open <= EPOCHS -> seal(e, IN_FREE, false)
#else
    :: open <= EPOCHS -> seal(e, FOR_COMPLETION, false)
#endif
    :: else
    fi;
    unlock()
  :: true
  fi
}
#endif

/* ---- The program's own waits, for its context (0) or for one stream; ours where there are no events. */
#if defined(WITH_WAITS) || defined(WITH_OLD_DRIVER)
inline wait(handle) {
  lock();
  d_step { lanes_up_to(EPOCHS, s); s = UNITE(s, noted) }
  if
#ifdef WITHOUT_WAIT_LANE
  :: open <= EPOCHS ->
#else
  :: open <= EPOCHS && (handle == 0 || s == handle) ->
#endif
    s = 0;
    open_next(e);
    refresh();
    unlock();
    d_step { if :: handle == 0 -> awaited[ME] = OWN_WORK :: else -> awaited[ME] = in_stream[STREAM(handle)] fi }
    if
    :: awaited[ME] == 0 ->
      lock();
#ifdef WITHOUT_NUMBER_FIRST
      open = e + 1;
#endif
      d_step { complete(e) }
      unlock()
#ifdef WITH_FAILURES
    :: true ->
      awaited[ME] = 0;
      lock();
      d_step {
#ifdef WITHOUT_FAILED_WAIT
        complete(e)
#else
        abandon(e, s)
#endif
      }
      add_noted(s);
      s = 0;
      unlock()
#endif
    fi
  :: else -> s = 0; unlock()
  fi;
  e = 0
}
#endif

#ifdef WITH_DESTROY
inline destroy_stream() {
  lock();
#ifndef WITHOUT_DROP_WAITED
  waited[DESTROY_LANE] = 0;
#ifdef WITH_SOLE
  met[DESTROY_LANE] = 0;
#endif
#endif
#if defined(WITH_SOLE) && !defined(WITHOUT_DROP_NAME)
  /* The next stream with this handle has another name. */
  d_step {
    lean = LARGER(lean, others[DESTROY_LANE]);
    others[DESTROY_LANE] = 0;
    for (k : 1 .. BLOCKS) { if :: sole[k] == DESTROY_LANE -> sole[k] = NONE :: else fi }
    k = 0
  }
  if :: turn_lane == DESTROY_LANE -> leave_open() :: else fi;
#endif
#ifndef WITHOUT_RENAME
  d_step {
    for (k : 1 .. EPOCHS) { if :: lanes[k] == DESTROY_LANE -> lanes[k] = MANY :: else fi }
    k = 0
  }
  if :: noted == DESTROY_LANE -> add_noted(MANY) :: else fi;
#endif
  unlock()
}

inline destroy() {
#ifndef WITHOUT_DROP_FIRST
  destroy_stream();
#endif
  d_step {
#ifdef CONTEXT_WAITS
    holds[LANES] = context_holds;
#ifdef WITH_OVERLAP
    firm[LANES] = context_holds;
#endif
#endif
    reborn = true;
    dying = false
  }
#ifdef WITHOUT_DROP_FIRST
  destroy_stream()
#endif
}
#endif

#ifdef WITH_UNTRACKED
inline expect_untracked_work() {
  lock();
  untracked = true;
  fences = true;
  refresh();
#ifndef WITHOUT_UNTRACKED_WAITS
  l = HIGHEST;
  unlock();
  order(l);
#else
  unlock();
#endif
  l = 0;
  untracked_over = true
}
#endif

#ifdef WITH_PEERS
/* After the driver's call. The program may use the access once this has returned. */
inline enable_peer_access() {
  direct = true;
  lock();
  done_only = true;
#if defined(CAN_BE_UNTRACKED) && !defined(WITHOUT_ORDERED_LOWERED)
  /* What is ordered but not done is no longer handed out, and counts as leant on. */
  LEAN = LARGER(LEAN, ordered);
  ordered = completed;
#endif
  unlock();
#ifndef WITHOUT_PEERS_WAIT
  lock();
  l = HIGHEST;
  unlock();
  wait_for(l);
  l = 0;
#endif
  access = true
}
#endif

#include "program.pml"
