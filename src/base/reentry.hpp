// The re-entry guard, one count per thread. While our code is inside the real driver, an entry point that the
// driver (or a library it calls back) reaches on the same thread must act as if we were not there: it would
// otherwise count twice, or ask for a lock that this thread holds. Thread-local, initial-exec: reading it
// costs one load and never allocates. Next to it, how much work the thread has submitted: code that touches
// one mostly touches the other, and shares the thread-local address.
#pragma once

#include <cstdint>

namespace cupool {

class Reentry {
 public:
  Reentry() { ++thread_.depth; }
  ~Reentry() { --thread_.depth; }
  Reentry(const Reentry&) = delete;
  Reentry& operator=(const Reentry&) = delete;

  // Whether this thread is inside a driver call of ours.
  static bool inside() { return thread_.depth != 0; }

  // Pieces of work that this thread has submitted. `place` names where one went, and is not 0. True: the one
  // before it went somewhere else, or there was none.
  static uint64_t work() { return thread_.work; }
  // The same as a number that no two threads share: one more is this thread's next piece of work.
  static uint64_t work_mark() {
    constexpr unsigned kShift = 24;
    return (reinterpret_cast<uintptr_t>(&thread_) << kShift) + thread_.work;
  }
  // Where it went.
  static uint64_t last_place() { return thread_.place; }
  static bool note_work(uint64_t place) {
    ++thread_.work;
    if (thread_.place == place) [[likely]]
      return false;
    thread_.place = place;
    return true;
  }

 private:
  struct Thread {
    int depth;
    uint64_t work;
    uint64_t place;
  };
  static inline constinit thread_local Thread thread_{0, 0, 0};
};

}  // namespace cupool
