/* The pending seals, as seals.cpp keeps them: each under its epoch. All of it runs inside a d_step, under the lock. */

#define WAITED 1         /* a wait of the program stands for it */
#define FOR_COMPLETION 2
#define IN_FREE 3
byte kind[EPOCHS + 1];
byte lanes[EPOCHS + 1];

inline remove(epoch) {
  kind[epoch] = 0;
  lanes[epoch] = NONE;
  event[epoch] = 0
}

/* Every other one passes into its successor: what work may wait for passes only into another such seal. The code
   spares the oldest, so that its end is known soon; here there are too few for that, and no rule depends on it. */
inline make_room() {
  i = 0;
  for (k : 1 .. EPOCHS) { if :: kind[k] != 0 -> i++ :: else fi }
  if
  :: i > MOST ->
    i = 0; /* the one that may pass into the next */
    k = 1;
    do
    :: k <= EPOCHS && kind[k] == 0 -> k++
#ifdef WITHOUT_MERGE_KIND
    :: k <= EPOCHS && kind[k] != 0 && i == 0 -> i = k; k++
    :: k <= EPOCHS && kind[k] != 0 && i != 0 ->
#else
    :: k <= EPOCHS && kind[k] != 0 && (i == 0 || (kind[i] == IN_FREE && kind[k] != IN_FREE)) -> i = k; k++
    :: k <= EPOCHS && kind[k] != 0 && i != 0 && !(kind[i] == IN_FREE && kind[k] != IN_FREE) ->
#endif
#ifndef WITHOUT_MERGE_LANES
      lanes[k] = UNITE(lanes[k], lanes[i]);
#endif
#ifdef WITHOUT_MERGE_EVENT
      event[k] = event[i];
#endif
      remove(i);
      i = 0;
      k++
    :: k > EPOCHS -> break
    od
  :: else
  fi;
  i = 0;
  k = 0
}

/* The first seal that work may be made to wait for and that covers an epoch; 0: there is none. */
inline covering(epoch, result) {
  result = epoch;
  do
  :: result <= EPOCHS && kind[result] != IN_FREE -> result++
  :: result > EPOCHS -> result = 0; break
  :: result <= EPOCHS && kind[result] == IN_FREE -> break
  od
}

inline lanes_up_to(epoch, result) {
  result = NONE;
  for (k : 1 .. EPOCHS) { if :: k <= epoch -> result = UNITE(result, lanes[k]) :: else fi }
  k = 0;
  if :: UNTRACKED -> result = MANY :: else fi
}

/* Lanes of one that proved nothing pass to the next newer one, or else back to what is noted. */
inline abandon(epoch, result) {
  if
  :: kind[epoch] != 0 ->
    result = lanes[epoch];
    remove(epoch);
    k = epoch + 1;
    do :: k <= EPOCHS && kind[k] == 0 -> k++ :: else -> break od;
    if
    :: k <= EPOCHS -> lanes[k] = UNITE(lanes[k], result); result = NONE
    :: else
    fi;
    k = 0
  :: else
  fi
#ifdef WITHOUT_FAILED_LANES
  ;result = NONE
#endif
}
