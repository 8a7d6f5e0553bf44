/*
 * Calls of ours in a stream and graphs that other threads launch into it, as order/graph_launches.hpp keeps them apart. All its
 * words are sequentially consistent, so that each step here is one load or one change of a word. Patience ends whenever it likes.
 *
 * Holds: a call of ours that found the moment quiet, and afterwards that it has lasted, has met no launch. scripts/check-model
 * takes each rule out once (WITHOUT_...). Not here: time, threads that end in between.
 */

#define LAUNCHERS 2
#define CALLERS 2
#ifndef LAUNCHES
#define LAUNCHES 1  /* of each launching thread; with 2 it holds, too (21 million states) */
#endif
#define RETRIES 1   /* of each launch */

/* The words of one place. */
byte begun, ended, overran, ours;

/* What really is. */
byte under_way;         /* launches inside the driver */
bool is_made[CALLERS];  /* a call of ours is inside the driver */
bool has_met[CALLERS];

inline enter_driver() {
  d_step {
    under_way++;
    i = 0;
    do
    :: i < CALLERS -> has_met[i] = has_met[i] || is_made[i]; i++
    :: else -> break
    od;
    i = 0
  }
}

proctype Launcher() {
  byte left = LAUNCHES;
  byte retries, i;
  do
  :: left == 0 -> break
  :: left > 0 ->
    left--;
    retries = RETRIES;
    do
    :: begun++;
#ifdef WITHOUT_STEPPING_BACK
       break
#else
       if
       :: ours == 0 -> break
       :: else
       fi;
       if
       :: true ->
#ifndef WITHOUT_TELLING
          overran++;
#endif
          break
       :: retries > 0 ->
          retries--;
          ended++
       fi
#endif
    od;
    enter_driver();
    under_way--;
    ended++
  od
}

proctype Caller(byte me) {
  byte told, seen;
#ifndef WITHOUT_OURS
  ours++;
#endif
  told = overran;
  do
  ::
#ifdef WITHOUT_ENDED_FIRST
    seen = begun;
    if
    :: seen == ended -> break
#else
    seen = ended;
    if
    :: seen == begun -> break
#endif
    :: else ->
      if
      :: true           /* looks again */
      :: true -> goto over
      fi
    fi
  od;
  skip; /* spin lets no loop end in a d_step */
  d_step { is_made[me] = true; has_met[me] = under_way > 0 }
  is_made[me] = false;
  assert(overran != told || !has_met[me]);
over:
#ifndef WITHOUT_OURS
  ours--
#else
  skip
#endif
}

init {
  byte i;
  atomic {
    i = 0;
    do
    :: i < LAUNCHERS -> run Launcher(); i++
    :: else -> break
    od;
    i = 0;
    do
    :: i < CALLERS -> run Caller(i); i++
    :: else -> break
    od
  }
}
