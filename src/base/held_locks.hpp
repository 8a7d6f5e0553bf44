// The ranks of locks (lock_ranks.def) and, in builds with CUPOOL_CHECK_LOCKS, the locks that each thread
// holds: one that is taken out of rank, or a call of the driver under one that forbids it, ends the process
// with the names of both, though nothing hangs this time. In other builds all of this is empty.
#pragma once

#include <cstdint>

namespace cupool {

enum class Rank : uint8_t {
#define CUPOOL_LOCK(name, rank, calls, tries, guards) name,
#include "base/lock_ranks.def"
};

#if defined(CUPOOL_CHECK_LOCKS)

// Before a call of the driver.
void check_driver_call();

// The part of a Lock that knows its rank.
class Ranked {
 protected:
  constexpr explicit Ranked(Rank rank) : rank_(rank) {}
  void check_order() const;  // before it is waited for
  void note_taken() const;
  void note_tried() const;  // after a try that succeeded
  void note_given_back() const;
  bool forget() const;  // false: this thread does not hold it

 private:
  Rank rank_;
};

#else

inline void check_driver_call() {}

class Ranked {
 protected:
  constexpr explicit Ranked(Rank) {}
  static void check_order() {}
  static void note_taken() {}
  static void note_tried() {}
  static void note_given_back() {}
  static void forget() {}
};

#endif

}  // namespace cupool
