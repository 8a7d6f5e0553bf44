// See held_locks.hpp. Each thread has a list of its own, so nothing here needs a lock. A signal handler adds
// to the list of the code that it interrupted and leaves it as it was: an entry is written before it counts.
#include "base/held_locks.hpp"

#if defined(CUPOOL_CHECK_LOCKS)

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <iterator>

namespace cupool {
namespace {

enum class Calls { none, may };
enum class Tries { ordered, anytime };

struct Row {
  const char* name;
  int rank;
  Calls calls;
  Tries tries;
};

constexpr Row kRows[] = {
#define CUPOOL_LOCK(name, rank, calls, tries, guards) {#name, rank, Calls::calls, Tries::tries},
#include "base/lock_ranks.def"
};
static_assert(std::is_sorted(std::begin(kRows), std::end(kRows),
                             [](const Row& a, const Row& b) { return a.rank < b.rank; }));

const Row& row(Rank rank) { return kRows[static_cast<size_t>(rank)]; }
// Without the letter of a constant.
const char* name(Rank rank) { return row(rank).name + 1; }

struct Held {
  const Ranked* lock;
  Rank rank;
};

constexpr int kMostHeld = 32;
constinit thread_local Held held[kMostHeld] = {};
constinit thread_local int held_count = 0;

[[noreturn]] void fail(std::initializer_list<const char*> words) {
  for (const char* word : words) {
    if (write(STDERR_FILENO, word, strlen(word)) < 0) break;
  }
  abort();
}

}  // namespace

void check_driver_call() {
  for (int i = 0; i < held_count; ++i) {
    const Rank one = held[i].rank;
    if (row(one).calls == Calls::none)
      fail({"cupool: the driver is called while the thread holds the lock ", name(one),
            ", under which it may not be (src/base/lock_ranks.def)\n"});
  }
}

void Ranked::check_order() const {
  for (int i = 0; i < held_count; ++i) {
    const Rank one = held[i].rank;
    if (held[i].lock == this) fail({"cupool: the thread takes the lock ", name(one), ", which it holds\n"});
    if (row(one).rank >= row(rank_).rank)
      fail({"cupool: the lock ", name(rank_), " is taken while the thread holds the lock ", name(one),
            ", which has to be taken after it (src/base/lock_ranks.def)\n"});
  }
}

void Ranked::note_taken() const {
  if (held_count == kMostHeld) fail({"cupool: the thread holds too many locks to take ", name(rank_), "\n"});
  held[held_count] = {this, rank_};
  std::atomic_signal_fence(std::memory_order_seq_cst);
  ++held_count;
}

void Ranked::note_tried() const {
  if (row(rank_).tries == Tries::ordered) check_order();
  note_taken();
}

void Ranked::note_given_back() const {
  if (!forget()) fail({"cupool: the thread gives back the lock ", name(rank_), ", which it does not hold\n"});
}

bool Ranked::forget() const {
  for (int i = held_count - 1; i >= 0; --i) {
    if (held[i].lock != this) continue;
    std::copy(held + i + 1, held + held_count, held + i);
    --held_count;
    return true;
  }
  return false;
}

}  // namespace cupool

#endif
