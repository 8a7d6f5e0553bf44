/* The world around the rules of order.pml: how large it is, the GPU, the program's blocks, and the driver's calls, each of
 * which is one step. It also holds what the properties P1 and P2 look at. No rule stands here. */

#ifndef PROGRAMS
#define PROGRAMS 2
#endif
#ifndef LANES
#define LANES 2
#endif
#ifndef BLOCKS
#define BLOCKS 1
#endif
#ifndef EPOCHS
#define EPOCHS 2
#endif
#ifndef MOST
#define MOST EPOCHS
#endif
#ifndef LIVES
#define LIVES 2
#endif
#ifndef LAUNCHES
#define LAUNCHES 3
#endif
#ifndef WAITS
#define WAITS 1
#endif
#ifndef DESTROY_LANE
#define DESTROY_LANE 2
#endif
#ifndef P2
#define P2 0
#endif
#ifdef WITH_PAST
#define AT_START 2
#else
#define AT_START 0
#endif
#ifdef WITH_FLAG
#define ITEMS (AT_START + LAUNCHES + 2)
#else
#define ITEMS (AT_START + LAUNCHES)
#endif
#ifdef WITH_DESTROY
#define OWN_STREAMS (LANES + 1)
#define STREAM(h) ((h) == DESTROY_LANE && reborn -> LANES : (h) - 1)
#else
#define OWN_STREAMS LANES
#define STREAM(h) ((h) - 1)
#endif
#ifdef WITH_PEERS
/* The stream of the other context. Events, frees and waits of this context do not cover what is submitted there. */
#define PEER (OWN_STREAMS + 1)
#define STREAMS (OWN_STREAMS + 1)
#define OF_PEER in_stream[PEER - 1]
#define OWN_WORK (alive & ~OF_PEER)
#else
#define STREAMS OWN_STREAMS
#define OWN_WORK alive
#endif
#if defined(FENCES) || defined(WITH_UNTRACKED)
#define CAN_BE_UNTRACKED
#endif
#define ME _pid
#define LARGER(a, b) ((a) > (b) -> (a) : (b))
#define BIT(n) (1 << (n))

/* Lanes, as lane.hpp has them. */
#define NONE 0
#define MANY 7
#define UNITE(a, b) ((a) == (b) || (b) == NONE -> (a) : ((a) == NONE -> (b) : MANY))

/* ---- The GPU. A piece of work is one bit, from its submission until it is done; then the bit leaves every mask, and may
 * serve again. It runs in one step: what a mask does not hold back can come first in some interleaving. */
byte alive;
byte deps[ITEMS];        /* what must be done before it may run */
byte older[ITEMS];       /* work of older lives of its block */
byte in_stream[STREAMS]; /* what is submitted there */
byte holds[STREAMS];     /* what the stream was told to wait for */
#ifdef WITH_OVERLAP
byte firm[STREAMS];      /* that part which a programmatic launch does not jump over */
byte front[STREAMS];     /* what the newest work of the stream waits for: a programmatic launch starts with it */
#endif
byte event[EPOCHS + 1];  /* what the event of a pending epoch covers */
byte pinned[PROGRAMS];   /* what the event covers that a thread is about to make something wait for */
#ifdef WITH_FLAG
byte waiting, releasing; /* work that waits for the flag; work that sets it */
bool flag_used, flag_set;
byte debtor;             /* the thread, plus 1, by which the work that sets the flag is still to come */
#endif
#if defined(CAN_BE_UNTRACKED) || defined(OVERLAP_BARRIER)
#define CONTEXT_WAITS
byte context_holds;      /* what every later submission waits for, to streams to come as well */
#endif

/* ---- The program. */
bool taken[BLOCKS + 1];  /* block b is held, or on its way */
byte work[BLOCKS + 1];   /* of the present life */
byte past[BLOCKS + 1];   /* of the lives before */
byte lives, launches, finished;
#ifdef WITH_PAST
bool begun;
#endif
#ifdef WITH_PASS
byte mail, mail_to;      /* a block on its way to the other thread */
#endif
#ifdef WITH_WAITS
byte waits;
#endif
#ifdef WITH_RELEASE
bool released;
bool just_freed[PROGRAMS];
#endif
#if defined(WITH_WAITS) || defined(WITH_RELEASE) || defined(WITH_OLD_DRIVER)
#define HOST_WAITS
byte awaited[PROGRAMS];  /* what a thread waits for on the host */
#endif
#ifdef WITH_PEERS
#ifdef CONNECTED
#define AT_ONCE true
#else
#define AT_ONCE false
#endif
bool enabling = AT_ONCE; /* the program has asked for the access */
bool access = AT_ONCE;   /* work of the other context may touch blocks of this one */
#ifdef WITH_FLAG
bool peer_waits;         /* the work that waits for the flag is the other context's, and what sets it is this one's */
bool flag_relied_on;     /* the former is submitted, by any thread; who is to submit the latter knows beforehand */
#endif
#endif
#ifdef WITH_DESTROY
byte submitting;         /* threads in a call on the lane that is to be destroyed */
bool dying, reborn, destroy_begun;
#endif

/* ---- What the driver's own free would have waited for. No rule reads it, P2 does. */
#if P2
byte freed_any;
byte freed_by[PROGRAMS], mail_freed;
#define DRIVER_WAITS freed_any = freed_any | OWN_WORK; freed_by[ME] = freed_by[ME] | OWN_WORK
#else
#define DRIVER_WAITS skip
#endif
#if P2 == 2
#define MAY_WAIT_FOR freed_by[ME]
#else
#define MAY_WAIT_FOR freed_any
#endif

/* ---- The driver's calls, one step each. */

/* Without the pin, an event that is done may have been recorded again, here. */
#ifdef WITHOUT_PIN
#define RECORDED_ANEW if :: pinned[ME] == 0 -> pinned[ME] = OWN_WORK :: else fi
#else
#define RECORDED_ANEW skip
#endif

/* A wait is for the event of a seal that was pinned under the lock: what that covers, whatever becomes of the seal. */
inline pin(epoch) { pinned[ME] = event[epoch] }

inline stream_wait(handle) {
  d_step {
    k = STREAM(handle);
    RECORDED_ANEW;
#if P2
    assert((pinned[ME] & ~in_stream[k] & ~holds[k] & ~MAY_WAIT_FOR) == 0);
#endif
    holds[k] = holds[k] | pinned[ME];
#ifdef WITH_OVERLAP
    if :: (pinned[ME] & in_stream[k]) == 0 -> firm[k] = firm[k] | pinned[ME] :: else fi;
#endif
    pinned[ME] = 0;
    k = 0
  }
}

#ifdef CONTEXT_WAITS
inline context_wait() {
  d_step {
    RECORDED_ANEW;
#ifdef WAIT_EVERYWHERE
    if :: access -> holds[PEER - 1] = holds[PEER - 1] | pinned[ME] :: else fi;
#endif
    for (k : 0 .. OWN_STREAMS - 1) {
#if P2
      assert((pinned[ME] & ~in_stream[k] & ~holds[k] & ~MAY_WAIT_FOR) == 0);
#endif
      holds[k] = holds[k] | pinned[ME];
#ifdef WITH_OVERLAP
      firm[k] = firm[k] | pinned[ME]
#endif
    }
    context_holds = context_holds | pinned[ME];
    pinned[ME] = 0;
    k = 0
  }
}
#endif

/* what: 1 waits for the flag, 2 sets it. */
inline submit(handle, overlapping, block, what) {
  d_step {
    i = 0;
    do :: i < ITEMS && (alive & BIT(i)) -> i++ :: else -> break od;
    k = STREAM(handle);
#ifdef WITH_OVERLAP
    if
    :: overlapping -> deps[i] = front[k] | firm[k]
    :: else -> deps[i] = in_stream[k] | holds[k]
    fi;
    front[k] = deps[i];
#else
    deps[i] = in_stream[k] | holds[k];
#endif
#if defined(WITH_PEERS) && P2
    /* Under the driver nothing of the other context waits for this one, whatever was freed here. */
    assert(k != PEER - 1 || (deps[i] & ~OF_PEER) == 0);
#endif
    in_stream[k] = in_stream[k] | BIT(i);
    alive = alive | BIT(i);
    if
    :: block ->
      older[i] = past[block];
      work[block] = work[block] | BIT(i)
    :: else
    fi;
#ifdef WITH_FLAG
    if :: what == 1 -> waiting = BIT(i) :: what == 2 -> releasing = BIT(i) :: else fi;
#endif
    i = 0;
    k = 0
  }
}

#ifdef WITH_FLAG
#define CAN_RUN(n) (n < ITEMS && (alive & BIT(n)) && deps[n] == 0 && (!(waiting & BIT(n)) || flag_set))
#else
#define CAN_RUN(n) (n < ITEMS && (alive & BIT(n)) && deps[n] == 0)
#endif

inline finish(item) {
  assert(older[item] == 0); /* P1 */
  alive = alive & ~BIT(item);
  for (k : 0 .. ITEMS - 1) { deps[k] = deps[k] & ~BIT(item); older[k] = older[k] & ~BIT(item) }
  for (k : 0 .. STREAMS - 1) {
    in_stream[k] = in_stream[k] & ~BIT(item);
    holds[k] = holds[k] & ~BIT(item);
#ifdef WITH_OVERLAP
    firm[k] = firm[k] & ~BIT(item);
    front[k] = front[k] & ~BIT(item)
#endif
  }
  for (k : 1 .. EPOCHS) { event[k] = event[k] & ~BIT(item) }
  for (k : 0 .. PROGRAMS - 1) { pinned[k] = pinned[k] & ~BIT(item) }
  for (k : 1 .. BLOCKS) { work[k] = work[k] & ~BIT(item); past[k] = past[k] & ~BIT(item) }
#ifdef HOST_WAITS
  for (k : 0 .. PROGRAMS - 1) { awaited[k] = awaited[k] & ~BIT(item) }
#endif
#if P2
  freed_any = freed_any & ~BIT(item);
  mail_freed = mail_freed & ~BIT(item);
  for (k : 0 .. PROGRAMS - 1) { freed_by[k] = freed_by[k] & ~BIT(item) }
#endif
#ifdef CONTEXT_WAITS
  context_holds = context_holds & ~BIT(item);
#endif
#ifdef WITH_FLAG
  waiting = waiting & ~BIT(item);
  if :: releasing & BIT(item) -> flag_set = true; releasing = 0 :: else fi;
#endif
  k = 0
}
