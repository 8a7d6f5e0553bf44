// The memory of one context: where blocks come from, where they go back to, and what happens when there are
// none. Ties slabs, ranges and thread caches together; asks the timeline when, never an event. No lock of the
// pool is held across a call of the driver. A pool record is never freed: when its context ends it is closed,
// and its memory leaves the page map.
#pragma once

#include <atomic>
#include <map>

#include "allocator/allocator.hpp"
#include "base/lock.hpp"
#include "driver/driver.hpp"
#include "order/lane_guess.hpp"
#include "order/timeline.hpp"
#include "pool/ranges.hpp"
#include "pool/settings.hpp"
#include "pool/size_classes.hpp"
#include "pool/slabs.hpp"
#include "pool/thread_cache.hpp"
#include "upstream/in_flight.hpp"
#include "upstream/upstream.hpp"

namespace cupool::pool {

using allocator::Held;
using allocator::Mark;
using allocator::Status;
using allocator::Taint;
using upstream::InFlight;

class Pool {
 public:
  Pool(driver::Context context, int device, uint64_t device_bytes, driver::Driver& driver,
       order::Timeline& order, InFlight& in_flight);

  // The context this pool serves; null once it is closed.
  driver::Context context() const { return context_.load(std::memory_order_relaxed); }
  int device() const { return device_; }
  // Whether `bytes` more could be had: they are neither more than the device has, nor more than the user
  // allows.
  bool may_take(uint64_t bytes) const {
    return bytes <= device_bytes_ && ranges_.reserved() + bytes <= settings_.limit;
  }
  // Whether a free is more than a note: the context has ended, or the user wants every free to wait.
  bool frees_specially() const { return context() == nullptr || settings_.free_waits; }
  const SizeClasses& sizes() const { return sizes_; }
  const Settings& settings() const { return settings_; }
  order::Timeline& order() const { return *order_.load(std::memory_order_relaxed); }

  // Around the search for a block until the application has it, and around what is more than a note of a
  // block that comes back: meanwhile the context does not end.
  class Use {
   public:
    Use(const Pool& pool, ThreadCache& cache) : cache_(cache) {
      // This store and load against those of close(): one of the two sees the other.
      cache_.begin_use();
      open_ = pool.context_.load(std::memory_order_acquire) != nullptr;
    }
    ~Use() { cache_.end_use(); }
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;
    // False: it has ended, or is about to.
    bool is_open() const { return open_; }

   private:
    ThreadCache& cache_;
    bool open_;
  };

  // A block of `bytes`, when the thread's cache had none that may be handed out. Not yet marked as held.
  Status find_block(ThreadCache& cache, unsigned size_class, uint64_t bytes, Entry* out);
  // No block of `bytes` was found, and nobody else had one: counts it, and explains it if the user wants
  // that.
  void note_failure(uint64_t bytes);
  // A block that the thread's cache does not keep, or has no room for.
  void take_back(ThreadCache& cache, unsigned size_class, const Entry& entry);
  // The end of a free of `bytes` while work is under way. Here the driver would have waited for it all, so
  // this is where seals are made, and where memory goes back to the driver that was not wanted any more.
  void finish_free(ThreadCache& cache, uint64_t bytes);
  // The same for a stream-ordered free, for which the driver would not have waited.
  void finish_ordered_free(ThreadCache& cache, uint64_t bytes);

  // Into the thread's cache, if there is room.
  bool keep(ThreadCache& cache, unsigned size_class, const Entry& entry);
  // Past any cache, to slabs and ranges.
  void give_blocks(unsigned size_class, const Entry* entries, size_t count);

  // ---- Making room (pool_release.cpp).

  // Gives wholly free segments back to the driver until at most `keep` free bytes are left; how many bytes
  // went. Stops the device once per segment.
  uint64_t release_free_segments(uint64_t keep);
  // The same after emptying the threads' caches.
  uint64_t trim(uint64_t keep);
  void set_max_cached(uint64_t bytes);
  // The largest block of which a thread keeps one. None where the user keeps an eye on what is cached: such a
  // block is hidden from the limits.
  uint64_t most_kept_large() const { return most_kept_large_.load(std::memory_order_relaxed); }
  // All that can be done to find room: what fences released, waiting, thread caches, free segments.
  uint64_t release_everything();
  void empty_thread_caches();
  // At a quiet moment, or in a free: segments that nobody used for CUPOOL_DECAY_MS go back.
  void decay(bool in_free);
  // After a free, when more is kept than the user wants.
  void trim_to_limit();

  // ---- Marks and taint (pool_marks.cpp).

  // Shows `visit` the mark of the block that holds `address`, whose free takes the slow path from then on.
  bool visit_mark(Address address, void (*visit)(Mark&, void*), void* data) {
    Guard hold(marks_lock_);
    Mark* mark = mark_locked(address);
    if (mark == nullptr) return false;
    visit(*mark, data);
    return true;
  }
  // The block is never handed to another owner. False: nobody holds it.
  bool taint(Address address, Taint reason);
  // The long way of a free: past the caches, and to the driver if it was the last of a tainted segment.
  void take_back_marked(unsigned size_class, const Entry& entry);
  void release_tainted();

  // ---- Threads.

  ThreadCache* adopt_cache();
  void abandon_cache(ThreadCache* cache);

  // ---- Questions.

  // The block that contains `address`, if the application holds it.
  bool find_held(Address address, Held* out);
  // As the statistics of its threads have it; nothing decides by it.
  uint64_t live_bytes();
  // What would go back to the driver if everything were trimmed.
  uint64_t releasable_bytes();
  Ranges& ranges() { return ranges_; }
  Slabs& slabs() { return slabs_; }

  // The context is of no use any more, but the program still holds it: from now on the driver answers. Other
  // threads may be in here at this moment, so everything stays where it is until close().
  void fail() {
    failed_.store(context_.exchange(nullptr, std::memory_order_relaxed), std::memory_order_relaxed);
  }
  // Whether this pool serves `context`, or served it until that failed.
  bool belongs_to(driver::Context context) const {
    return context_.load(std::memory_order_relaxed) == context ||
           failed_.load(std::memory_order_relaxed) == context;
  }
  // The context is going away: no thread begins to use the pool any more.
  void shut() { context_.store(nullptr, std::memory_order_seq_cst); }
  // Whether a thread still does. After order_for_owners().
  bool is_in_use() CUPOOL_EXCLUDES(caches_lock_);
  // Then nothing is ours any more. The driver frees the memory itself. `number` rises with every pool that is
  // closed.
  void close(uint64_t number);
  // That number; 0: it is not closed.
  uint64_t closed_at() const { return closed_at_; }
  // Serves another context of the same device. False: it is not closed, or the device is another.
  bool reopen(driver::Context context, int device, order::Timeline& order);

 private:
  // How a block was found, for the statistics, what the driver said if none was, and how far it may go.
  enum class How { kThread, kSlab, kRange, kAfterWait, kMiss };
  struct Search {
    Status status = driver::kSuccess;
    How how = How::kThread;
    order::Reach reach = order::Reach::kCheap;
    order::LaneName lane = order::LaneName::kNone;  // that will use it, if several are at work
  };

  static bool is_held(const Range& range);
  void report_shortage(uint64_t asked);
  Mark* mark_locked(Address address) CUPOOL_REQUIRES(marks_lock_);
  // Around everything that takes segments out to give them back.
  class Release;
  // To the driver. False: the driver refused.
  bool give_back(Segment* segment);
  uint64_t hand_back(Segment* segment);
  bool find_small(ThreadCache& cache, unsigned size_class, Entry* out, Search* search);
  bool fetch_small(ThreadCache& cache, unsigned size_class, Entry* out, Search* search);
  bool fetch_small_reached(ThreadCache& cache, unsigned size_class, Entry* out, Search* search);
  bool find_large(ThreadCache& cache, unsigned size_class, uint64_t bytes, Entry* out, Search* search);
  static bool keeps(ThreadCache& cache, unsigned size_class);
  bool keeps_many(ThreadCache& cache, unsigned size_class);
  bool take_after_wait(ThreadCache& cache, unsigned size_class, Entry* out);
  Range* take_kept_range(ThreadCache& cache, unsigned size_class, uint64_t bytes, Search* search);
  Range* find_range(ThreadCache& cache, unsigned size_class, uint64_t bytes, Search* search);
  Range* make_range(ThreadCache& cache, unsigned size_class, uint64_t bytes, Search* search);
  Range* make_range_for_lane(ThreadCache& cache, unsigned size_class, uint64_t bytes, Search* search);
  Range* take_own_range(uint64_t bytes, Search* search);
  Range* take_range(uint64_t bytes, How how, Search* search);
  Range* grow(uint64_t bytes, Search* search);
  static bool enter_pages(Address start, uint64_t bytes);
  Range* add_segment(uint64_t bytes, uint64_t taken, Search* search);
  uint64_t largest_split(uint64_t need) const;
  uint64_t segment_bytes(uint64_t need) const;
  bool may_spread(uint64_t bytes);
  uint64_t most_unsealed(uint64_t bytes) const;
  bool is_above_budget(uint64_t bytes);
  uint64_t release_for_growth(ThreadCache& cache);
  void give_range(Range* range, Epoch stamp);
  void give_large(const Entry& entry);
  order::LaneName guess_lane(uint64_t bytes);
  void take_back_large(ThreadCache& cache, const Entry& entry);
  void merge_large(ThreadCache& cache);
  // All that threads keep: it died with the context.
  void drop_kept() CUPOOL_EXCLUDES(caches_lock_);
  bool make_room(ThreadCache& cache, unsigned size_class);
  uint64_t thread_share() const;
  void empty_another_shelf(ThreadCache& cache, unsigned size_class);
  void spill(ThreadCache& cache, unsigned size_class, uint32_t keep);
  void spill_ranges(ThreadCache& cache);

  std::atomic<driver::Context> context_;
  std::atomic<driver::Context> failed_{nullptr};
  uint64_t closed_at_ = 0;  // under the lock of all pools
  const int device_;
  stats::Device& stats_;
  const uint64_t device_bytes_;
  std::atomic<order::Timeline*> order_;
  const Settings settings_;
  upstream::Upstream upstream_;
  InFlight& in_flight_;
  const SizeClasses sizes_;
  Slabs slabs_;
  Ranges ranges_;

  Lock guess_lock_;
  order::LaneGuess guess_ CUPOOL_GUARDED_BY(guess_lock_);
  Lock marks_lock_;
  std::map<Address, Mark> marks_
      CUPOOL_GUARDED_BY(marks_lock_);  // small nodes: the host may be short of memory
  std::atomic<uint32_t> tainted_segments_{0};
  std::atomic<uint64_t> lost_{0};  // bytes that the driver would not take and nobody can use, until the end

  Lock caches_lock_;
  ThreadCache* caches_ CUPOOL_GUARDED_BY(caches_lock_) = nullptr;
  std::atomic<unsigned> threads_{0};  // that have a cache here
  std::atomic<uint64_t> max_cached_{0};
  std::atomic<uint64_t> most_kept_large_{0};
  std::atomic<uint64_t> decayed_at_{0};
  std::atomic<uint64_t> allocated_segments_{0};
  std::atomic<uint64_t> released_segments_{0};
  std::atomic<uint64_t> unfinished_{0};  // bytes freed since a free last waited, where reuse is exact
  std::atomic<uint64_t> spread_{0};      // bytes that were taken so that streams need not wait for each other
};

}  // namespace cupool::pool
