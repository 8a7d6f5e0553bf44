// The thread caches of one pool: made with a thread's first allocation, adopted by a new thread when the
// owner ends, emptied when memory is short; and what the owner does with its cache when a block finds no
// room in it. Those that may keep something are listed: who empties them all closes them, and a closed one
// is listed again when its owner first puts a block in, so that threads which sleep cost nobody anything. The
// lists are under `lock_`; another thread's cache is stopped before it is touched. Never calls the driver,
// but to ask which streams have come to a free.
#pragma once

#include <atomic>

#include "base/lock.hpp"
#include "pool/free_blocks.hpp"
#include "pool/growth_history.hpp"
#include "pool/stream_frees.hpp"
#include "pool/tenancy.hpp"
#include "pool/thread_cache.hpp"

namespace cupool::pool {

class ThreadCaches {
 public:
  ThreadCaches(Pool* pool, Tenancy& tenancy, FreeBlocks& blocks, StreamFrees& frees,
               const GrowthHistory& growth)
      : pool_(pool), tenancy_(tenancy), blocks_(blocks), frees_(frees), growth_(growth) {}

  // For a thread that has none here; null: no host memory.
  ThreadCache* adopt() CUPOOL_EXCLUDES(lock_);
  // Its thread ends.
  void abandon(ThreadCache* cache) CUPOOL_EXCLUDES(lock_);
  // Returns all that threads keep to slabs and ranges.
  void empty_all() CUPOOL_EXCLUDES(lock_);
  // Whether a short look shows that threads keep nothing.
  bool are_empty() CUPOOL_EXCLUDES(lock_);
  // Whether a request that would spare the driver a call should do so first. Where memory is short, it always
  // should.
  bool is_time_to_empty(uint64_t bytes);
  // Whether to look for a large block that another thread keeps.
  bool is_time_to_collect();
  // Takes from another thread a large block that fits a request of this lane's well and need not be waited
  // for.
  void collect_large(uint64_t bytes, order::LaneName lane) CUPOOL_EXCLUDES(lock_);

  // ---- For the owner of a cache.

  // As cache.enter(), where a block may be put in, or a shelf or the place for a large block opened.
  void enter_to_put(ThreadCache& cache) CUPOOL_EXCLUDES(lock_) {
    cache.enter();
    while (!cache.is_listed.load(std::memory_order_relaxed)) {
      cache.exit();
      list(cache);
      cache.enter();
    }
  }
  // Into the cache, if there is room.
  bool keep(ThreadCache& cache, unsigned size_class, const Entry& entry);
  // Takes back a block that the cache does not keep, or has no room for.
  void take_back(ThreadCache& cache, unsigned size_class, const Entry& entry);
  // Whether the cache keeps blocks of a class.
  static bool keeps(ThreadCache& cache, unsigned size_class);
  // Whether it keeps so many of them that waiting for the oldest beats taking more memory.
  bool keeps_many(ThreadCache& cache, unsigned size_class) const;
  // Gives its large block, or all its ranges, back to the ranges, where they merge.
  void merge_large(ThreadCache& cache);
  void evict_ranges(ThreadCache& cache);

  // ---- For all of them.

  // Whether a thread is still in the pool. pre: AsymmetricFence::order_all_threads() was called
  // after Tenancy::shut().
  bool is_in_use() CUPOOL_EXCLUDES(lock_);
  // Drops what they keep: it died with the context.
  void drop_kept() CUPOOL_EXCLUDES(lock_);
  void set_order(order::Timeline& order) CUPOOL_EXCLUDES(lock_);
  // From the threads' tallies, for statistics only.
  uint64_t live_bytes() CUPOOL_EXCLUDES(lock_);

 private:
  void list(ThreadCache& cache) CUPOOL_EXCLUDES(lock_);
  // Stops all that are listed, with one barrier, and takes them off the list, by whose links they hang
  // together; the caller closes them and starts them again. Null if they are few and keep nothing.
  ThreadCache* stop_listed() CUPOOL_REQUIRES(lock_);
  void take_back_large(ThreadCache& cache, const Entry& entry);
  bool widen_or_evict(ThreadCache& cache, unsigned size_class);
  void empty_another_shelf(ThreadCache& cache, unsigned size_class);
  void evict(ThreadCache& cache, unsigned size_class, uint32_t keep);

  Pool* const pool_;
  Tenancy& tenancy_;
  FreeBlocks& blocks_;
  StreamFrees& frees_;
  const GrowthHistory& growth_;
  std::atomic<unsigned> threads_{0};           // with a cache here
  std::atomic<unsigned> listed_count_{0};      // written under lock_
  std::atomic<uint32_t> collects_to_skip_{0};  // see collects_skipped_
  std::atomic<uint64_t> wanted_{0};            // bytes, since a request last found it time to empty all
  Lock lock_{Rank::kCaches};
  ThreadCache* caches_ CUPOOL_GUARDED_BY(lock_) = nullptr;
  ThreadCache* listed_ CUPOOL_GUARDED_BY(lock_) = nullptr;     // those that may keep something
  ThreadCache* abandoned_ CUPOOL_GUARDED_BY(lock_) = nullptr;  // those of threads that have ended
  // How many requests do not look for large blocks that other threads keep after one did; in
  // collects_to_skip_ those that are still to come.
  uint32_t collects_skipped_ CUPOOL_GUARDED_BY(lock_) = 0;
};

}  // namespace cupool::pool
