// One thread's cache of one pool: shelves of freed blocks (shelves.hpp), one large block (kept_large.hpp),
// what the thread has handed out and freed lately (recent_frees.hpp). A block has no owner thread; the
// freeing thread keeps it, up to a bound. The owner uses its cache without a lock; another thread may empty
// it (out of memory, end of a context) through stop().
#pragma once

#include <atomic>

#include "order/timeline.hpp"
#include "pool/kept_large.hpp"
#include "pool/owner_handshake.hpp"
#include "pool/recent_frees.hpp"
#include "pool/settings.hpp"
#include "pool/shelves.hpp"
#include "pool/size_classes.hpp"
#include "stats/device.hpp"

namespace cupool::pool {

class alignas(128) ThreadCache : public OwnerHandshake {
 public:
  static constexpr uint64_t kLargestKept = 64 << 20;

  ThreadCache(Pool* pool, const SizeClasses& sizes, const Settings& settings, stats::Device& device,
              order::Timeline& order)
      : pool_(pool), order_(&order), tally_(device.add_thread_tally()), shelves_(sizes, settings) {}

  // Between enter() and exit(), or while the owner is stopped.
  Shelves& shelves() { return shelves_; }
  KeptLarge& large() { return large_; }
  // The size of a block that is in the cache, just left it, or is about to enter.
  uint64_t kept_bytes(unsigned size_class, const Entry& entry) const {
    return size_class != kNotKept ? shelves_.of(size_class).block_bytes : entry.range->bytes;
  }
  // From any thread: whether anything is kept.
  bool is_empty() const { return shelves_.are_empty() && large_.bytes() == 0; }
  // While the owner is stopped and nothing is kept: nothing will be until the owner has entered to put.
  void close() {
    for (unsigned size_class = 0; size_class < SizeClasses::kMostClasses; ++size_class)
      shelves_.close(size_class);
  }

  // Owner only.
  RecentFrees& frees() { return frees_; }
  const RecentFrees& frees() const { return frees_; }
  const SizeClasses& sizes() const { return shelves_.sizes(); }
  // Counts what this thread handed out and took back; other threads read it.
  stats::ThreadTally& tally() { return tally_; }
  const stats::ThreadTally& tally() const { return tally_; }

  Pool* pool() const { return pool_; }
  // The pool's timeline. Changes only while the pool is closed.
  order::Timeline& order() const { return *order_.load(std::memory_order_relaxed); }
  void set_order(order::Timeline& order) { order_.store(&order, std::memory_order_relaxed); }

  ThreadCache* next_of_pool = nullptr;    // under the pool's cache lock
  ThreadCache* next_of_thread = nullptr;  // owner only
  ThreadCache* next_listed = nullptr;     // in the list of those that may keep something; the same
  ThreadCache* next_abandoned = nullptr;  // its thread has ended; the same
  // It is in that list. Set by the owner, cleared while the owner is stopped.
  std::atomic<bool> is_listed{false};

 private:
  Pool* pool_;
  std::atomic<order::Timeline*> order_;
  stats::ThreadTally& tally_;
  RecentFrees frees_;
  KeptLarge large_;
  Shelves shelves_;
};

}  // namespace cupool::pool
