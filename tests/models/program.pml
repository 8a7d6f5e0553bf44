/* What a program may do with blocks and streams, and what the GPU does meanwhile. */

active [PROGRAMS] proctype Program() {
  byte e, k, l, n, s, b, h, i, held;
  bool p, ok;
#ifdef WITH_FLAG
#define OWES (debtor == ME + 1)
#else
#define OWES false
#endif
#ifdef WITH_PEERS
/* The driver's free waits for its own context only: the program sees to it that work of the other one on the block is done. */
#define IS_LEFT ((work[held] & OF_PEER) == 0)
#else
#define IS_LEFT true
#endif
#if defined(WITH_PEERS) && defined(WITH_FLAG)
#define FREE_WOULD_HANG (OWES && !peer_waits)
#else
#define FREE_WOULD_HANG OWES
#endif
#ifdef WITH_PAST
  begun;
#endif
  do
  :: lives < LIVES && held == 0 && (!taken[1] || !taken[BLOCKS]) ->
#if defined(CAN_BE_UNTRACKED) || defined(WAIT_LATE)
    if :: true :: reach() fi;
#endif
    allocate()
  :: atomic {
      launches < LAUNCHES -> launches++;
      if
      :: h = 1
      :: h = 2
#if LANES > 2
      :: h = 3
#endif
      fi;
#ifdef WITH_OVERLAP
      if :: p = true :: p = false fi
#endif
    }
    launch(h, p, held, 0);
    d_step { h = 0; p = false }
  :: held != 0 && !FREE_WOULD_HANG && IS_LEFT -> free_block()
#ifdef WITH_ORDERED_FREE
  :: held != 0 && IS_LEFT -> free_ordered()
#endif
#ifdef WITH_RELEASE
  :: atomic { !released && held == 0 -> released = true }
    release_for_growth()
#endif
#ifdef WITH_PASS
  :: atomic {
      held != 0 && mail == 0 -> mail = held; mail_to = 1 - ME; held = 0;
#if P2
      mail_freed = freed_by[ME]
#endif
    }
  :: atomic {
      held == 0 && mail != 0 && mail_to == ME && !OWES -> held = mail; mail = 0; mail_to = 0;
#if P2
      freed_by[ME] = freed_by[ME] | mail_freed; mail_freed = 0
#endif
    }
#endif
#ifdef WITH_WAITS
  :: atomic { waits < WAITS && !OWES -> waits++; if :: h = 0 :: h = 1 :: h = 2 fi }
    wait(h);
    h = 0
#endif
#ifdef WITH_DESTROY
  :: atomic { !destroy_begun && submitting == 0 -> destroy_begun = true; dying = true }
    destroy()
#endif
#ifdef WITH_UNTRACKED
  :: atomic { !untracked_begun -> untracked_begun = true }
    expect_untracked_work()
#endif
#ifdef WITH_PEERS
  :: atomic { access && held != 0 && launches < LAUNCHES -> launches++ }
    submit(PEER, false, held, 0)
  :: atomic { !enabling -> enabling = true }
    enable_peer_access()
#endif
#ifdef WITH_FLAG
#ifdef WITH_PEERS
  :: atomic {
      !flag_used -> flag_used = true; debtor = ME + 1;
      if
#ifndef PEER_WAITS
      :: skip
#endif
      :: peer_waits = true
      fi
    }
  :: atomic { debtor != 0 && !flag_relied_on -> flag_relied_on = true }
    if :: peer_waits -> submit(PEER, false, 0, 1) :: else -> launch(1, p, 0, 1) fi
  :: OWES ->
    if :: peer_waits -> launch(2, p, held, 2) :: else -> submit(PEER, false, 0, 2) fi;
    debtor = 0
#else
  :: atomic { !flag_used && !OWES -> flag_used = true; debtor = ME + 1 }
    launch(1, p, 0, 1)
  :: OWES ->
    launch(2, p, held, 2);
    debtor = 0
#endif
#endif
  :: !OWES -> break
  od;
  atomic { finished++; held = 0 }
}

#define EVENT_DONE(n) (n <= EPOCHS && kind[n] >= FOR_COMPLETION && event[n] == 0)

/* The GPU, and the one who asks whether events are done. */
active proctype Gpu() {
  byte i, k;
#ifdef WITH_PAST
  d_step {
    alive = 3;
    for (k : 1 .. 2) {
      kind[k] = IN_FREE;
      stamp[k] = k;
      past[k] = k;
      lanes[k] = k;
      in_stream[k - 1] = k
    }
    event[1] = 1;
    event[2] = 3;
#if P2
    freed_any = 3;
    freed_by[0] = (PROGRAMS == 1 -> 3 : 1);
    freed_by[PROGRAMS - 1] = 3;
#endif
#ifdef WITH_SOLE
    sole[1] = 1;
    sole[2] = 2;
    turn_lane = 2;
#endif
    k = 0;
    open = 3;
    sealed = 2;
    idle = false;
    begun = true
  }
#endif
  do
  :: atomic {
      if
      :: CAN_RUN(0) -> i = 0
      :: CAN_RUN(1) -> i = 1
      :: CAN_RUN(2) -> i = 2
      :: CAN_RUN(3) -> i = 3
      :: CAN_RUN(4) -> i = 4
      :: CAN_RUN(5) -> i = 5
      :: CAN_RUN(6) -> i = 6
      fi;
      d_step { finish(i); i = 0 }
    }
  :: d_step {
      !locked && (EVENT_DONE(1) || EVENT_DONE(2) || EVENT_DONE(3) || EVENT_DONE(4) || EVENT_DONE(5)) ->
      i = EPOCHS;
      do :: !EVENT_DONE(i) -> i-- :: else -> break od;
      complete(i);
      i = 0
    }
  :: finished == PROGRAMS && alive == 0 -> break
  od
}
