// The memory of one context: where blocks come from, where they go back to, and what happens when there are none. Ties
// slabs, ranges and thread caches together; asks the timeline when, never an event. No lock of the pool is held across a
// call of the driver. A pool record is never freed: when its context ends it is closed, and its memory leaves the page map.
#pragma once

#include <atomic>

#include "base/lock.hpp"
#include "driver/driver.hpp"
#include "order/timeline.hpp"
#include "pool/ranges.hpp"
#include "pool/settings.hpp"
#include "pool/size_classes.hpp"
#include "pool/slabs.hpp"
#include "pool/thread_cache.hpp"

namespace cupool::pool {

using driver::Status;

class Pool {
 public:
  Pool(driver::Context context, uint64_t device_bytes, driver::Driver& driver, order::Timeline& order);

  // The context this pool serves; null once it is closed.
  driver::Context context() const { return context_.load(std::memory_order_relaxed); }
  const SizeClasses& sizes() const { return sizes_; }
  const Settings& settings() const { return settings_; }
  order::Timeline& order() { return order_; }

  // A block of `bytes`, when the thread's cache had none that may be handed out. Not yet marked as held.
  Status find_block(ThreadCache& cache, unsigned size_class, uint64_t bytes, Entry* out);
  // A block that the thread's cache does not keep, or has no room for.
  void take_back(ThreadCache& cache, unsigned size_class, const Entry& entry);

  // Past any cache, to slabs and ranges.
  void give_blocks(unsigned size_class, const Entry* entries, size_t count);

  // ---- Making room (trim.cpp).

  // Gives wholly free segments back to the driver until at most `keep` free bytes are left; how many bytes went.
  // Stops the device once per segment.
  uint64_t release_free_segments(uint64_t keep);
  // All that can be done to find room: what fences released, waiting, thread caches, free segments.
  uint64_t release_everything();
  void empty_thread_caches();
  // After a free, when more is kept than the user wants.
  void trim_to_limit();

  // ---- Threads.

  ThreadCache* adopt_cache();
  void abandon_cache(ThreadCache* cache);

  // ---- Questions.

  struct Held {
    Address start;
    uint64_t bytes;
    bool whole;  // the block is all of its segment
  };
  // The block that contains `address`, if the application holds it.
  bool find_held(Address address, Held* out);
  uint64_t live_bytes();
  // What would go back to the driver if everything were trimmed.
  uint64_t releasable_bytes();
  Ranges& ranges() { return ranges_; }
  Slabs& slabs() { return slabs_; }

  // The context is going away: nothing is ours any more. The driver frees the memory itself.
  void close();
  // Serves another context of a like device. False: it is not closed, or the device is another.
  bool reopen(driver::Context context, uint64_t device_bytes);

 private:
  static bool is_held(const Range& range);
  Epoch limit() const { return order_.is_granted() ? kAnyStamp : order_.safe(); }
  Status find_small(ThreadCache& cache, unsigned size_class, Entry* out);
  bool fetch_small(ThreadCache& cache, unsigned size_class, Entry* out);
  Range* find_range(ThreadCache& cache, uint64_t bytes, Status* status);
  Range* grow(uint64_t bytes, Status* status);
  Range* add_segment(uint64_t bytes, uint64_t taken, Status* status);
  uint64_t segment_bytes(uint64_t need) const;
  bool may_grow_unsafe(uint64_t bytes);
  void give_range(Range* range, Epoch stamp);
  bool keep(ThreadCache& cache, unsigned size_class, const Entry& entry);
  void spill(ThreadCache& cache, unsigned size_class, uint32_t keep);

  std::atomic<driver::Context> context_;
  const uint64_t device_bytes_;
  driver::Driver& driver_;
  order::Timeline& order_;
  const Settings settings_;
  const SizeClasses sizes_;
  Slabs slabs_;
  Ranges ranges_;

  Lock caches_lock_;
  ThreadCache* caches_ CUPOOL_GUARDED_BY(caches_lock_) = nullptr;
  std::atomic<uint64_t> allocated_segments_{0};
  std::atomic<uint64_t> released_segments_{0};
};

}  // namespace cupool::pool
