// The cut memory of one context: ties thread caches, slabs, ranges and the driver together. Asks the timeline
// when a block may be reused, never an event. No pool lock is held across a call of the driver. A pool record
// is never freed: when its context ends it is closed, and its memory leaves the page map.
#pragma once

#include <algorithm>
#include <atomic>
#include <map>

#include "allocator/allocator.hpp"
#include "base/lock.hpp"
#include "driver/driver.hpp"
#include "mapped/space.hpp"
#include "order/lane_guess.hpp"
#include "order/timeline.hpp"
#include "pool/ordered_frees.hpp"
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
using allocator::Short;
using allocator::Status;
using allocator::Taint;
using upstream::InFlight;

// To wait for the last work on such a block takes long.
inline constexpr uint64_t kVeryLarge = 48 << 20;

class Pool {
 public:
  // `mapping`: segments are mapped; null: they are allocations of the driver.
  Pool(driver::Context context, int device, uint64_t device_bytes, driver::Driver& driver,
       driver::Mapping* mapping, order::Timeline& order, InFlight& in_flight);

  // The context this pool serves; null once it is closed.
  driver::Context context() const { return context_.load(std::memory_order_relaxed); }
  int device() const { return device_; }
  // Whether `bytes` more fit the device and the user's limit beside what is live.
  bool may_take(uint64_t bytes);
  // Whether frees must take the slow path: the context has ended, or the user wants every free to wait.
  bool frees_specially() const { return context() == nullptr || settings_.free_waits; }
  const SizeClasses& sizes() const { return sizes_; }
  const Settings& settings() const { return settings_; }
  order::Timeline& order() const { return *order_.load(std::memory_order_relaxed); }

  // Scope of a slow allocation, until the application has the block, or of a slow free: meanwhile the context
  // does not end.
  class Use {
   public:
    Use(const Pool& pool, ThreadCache& cache) : cache_(cache) {
      // The closing thread mirrors this store and load: at least one side sees the other.
      cache_.begin_use();
      open_ = pool.context_.load(std::memory_order_acquire) != nullptr;
    }
    ~Use() { cache_.end_use(); }
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;
    // False: the context has ended, or is about to.
    bool is_open() const { return open_; }

   private:
    ThreadCache& cache_;
    bool open_;
  };

  // Slow path of an allocation: the thread's cache had no block that may be handed out. The block is not yet
  // tagged as live.
  Status find_block(ThreadCache& cache, unsigned size_class, uint64_t bytes, Short when_short, Entry* out);
  // An allocation of `bytes` has failed for good: counts it, and reports why if the user wants that.
  void note_failure(uint64_t bytes);
  // Takes back a block that the thread's cache does not keep, or has no room for.
  void take_back(ThreadCache& cache, unsigned size_class, const Entry& entry);
  // The end of a free of `bytes` while work is pending. The driver's free would have waited for all of it, so
  // this is the place to make seals and to release surplus memory.
  void finish_free(ThreadCache& cache, uint64_t bytes);
  // Takes back a block that is freed in stream order: it is free when the stream comes to that. `elsewhere`:
  // the timeline of the stream's context, if it is not this one. pre: it is counted as leaving.
  void take_back_on(driver::Stream stream, order::Timeline* elsewhere, unsigned size_class, Entry entry,
                    uint64_t asked);
  // Looks which of these streams have come to the free; asks so many times at most.
  void give_reached(size_t most = ~size_t{0});

  // Into the thread's cache, if there is room.
  bool keep(ThreadCache& cache, unsigned size_class, const Entry& entry);
  // Returns blocks to slabs and ranges, past the thread caches.
  void give_blocks(unsigned size_class, const Entry* entries, size_t count);

  // ---- Making room (pool_release.cpp).

  // Gives free memory back to the driver until at most `keep` free bytes are left; returns the bytes
  // released. Wholly free segments of the driver's, each of which costs a device synchronisation, and mapped
  // chunks whose work is done, which cost nobody anything.
  uint64_t release_free_segments(uint64_t keep);
  // The same after emptying the threads' caches.
  uint64_t trim(uint64_t keep);
  // Releases all free memory on which no work is pending, and waits for none. What the driver takes back only
  // after a wait stays.
  uint64_t release_done();
  void set_max_cached(uint64_t bytes);
  // The largest block of which a thread keeps one. 0 if the user limits what is cached: such a block would
  // escape the limits.
  uint64_t most_kept_large() const { return most_kept_large_.load(std::memory_order_relaxed); }
  // Makes all the room it can with such an effort: empties thread caches, releases tainted and free segments.
  uint64_t release_everything(allocator::Effort effort = allocator::Effort::kAll);
  void empty_thread_caches();
  // Takes from another thread a large block that fits a request of this lane's well and need not be waited
  // for.
  void collect_large(uint64_t bytes, order::LaneName lane);
  uint64_t release_idle(const allocator::Idle& which);
  // After a free: trims to CUPOOL_MAX_CACHED.
  void trim_to_limit();

  // ---- Marks and taint (pool_marks.cpp).

  // Calls `visit` with the mark of the block that contains `address`, whose free takes the slow path from
  // then on.
  bool visit_mark(Address address, void (*visit)(Mark&, void*), void* data) {
    Guard hold(marks_lock_);
    Mark* mark = mark_locked(address);
    if (mark == nullptr) return false;
    visit(*mark, data);
    return true;
  }
  // The block is never reused. False: no live block contains `address`.
  bool taint(Address address, Taint reason);
  // Frees a marked block: past the thread caches.
  void take_back_marked(unsigned size_class, const Entry& entry);
  // `may_wait`: segments of the driver's, too, whose free waits for work.
  uint64_t release_tainted(bool may_wait = true);

  // ---- Threads.

  ThreadCache* adopt_cache();
  void abandon_cache(ThreadCache* cache);

  // ---- Queries.

  // The block that contains `address`, if the application holds it.
  bool find_held(Address address, Held* out);
  // From the threads' tallies, for statistics only.
  uint64_t live_bytes();
  // How many bytes a trim of everything would release.
  uint64_t releasable_bytes();
  // How many bytes more it could have for a block at most, once all work is done.
  uint64_t most_releasable();
  Ranges& ranges() { return ranges_; }
  Slabs& slabs() { return slabs_; }
  mapped::Space& space() { return space_; }

  // The context has failed, but the program still holds it: from now on the driver answers. Other threads may
  // be in the pool right now, so all records stay until close().
  void fail() {
    failed_.store(context_.exchange(nullptr, std::memory_order_relaxed), std::memory_order_relaxed);
  }
  // Whether this pool serves `context`, or served it until the context failed.
  bool belongs_to(driver::Context context) const {
    return context_.load(std::memory_order_relaxed) == context ||
           failed_.load(std::memory_order_relaxed) == context;
  }
  // The context is ending: no thread enters the pool from now on.
  void shut() { context_.store(nullptr, std::memory_order_seq_cst); }
  // Whether a thread is still in it. pre: AllThreads::order() was called after shut().
  bool is_in_use() CUPOOL_EXCLUDES(caches_lock_);
  // Drops all records; the driver frees the memory itself, but for what is mapped: ended() must follow.
  // `number` rises with every closed pool.
  void close(uint64_t number);
  // The `number` given to close(); 0: not closed.
  uint64_t closed_at() const { return closed_at_; }
  // The context is gone: unmaps its memory. `gone` false: it lives on, and the program may use its blocks.
  void ended(bool gone);
  bool is_ending() const { return is_ending_.load(std::memory_order_acquire); }
  // Reuses the closed record for another context of the same device. False: not closed, or another device.
  bool reopen(driver::Context context, int device, order::Timeline& order);

 private:
  // One search for a block: how it was found (for statistics), the driver's status if it was not, and how far
  // it may reach.
  enum class How { kThread, kSlab, kRange, kAfterWait, kMiss };
  struct Search {
    Status status = driver::kSuccess;
    How how = How::kThread;
    order::Reach reach = order::Reach::kCheap;
    Short when_short = Short::kMakeRoom;
    order::LaneName lane = order::LaneName::kNone;  // the lane expected to use it, if several are at work
    bool wants_new = false;                         // mapped memory that does not lie free elsewhere
    uint64_t returned = 0;                          // how often it gave back what it had found in vain
    // Where a slab is wanted: for blocks of which class, and whom one that was found meanwhile is for.
    unsigned small_class = kNotKept;
    ThreadCache* cache = nullptr;
    Entry* small = nullptr;
    bool has_small = false;  // one was found, and no slab is wanted any more
  };

  bool find_in_ranges(Address address, Held* out);
  static bool is_held(const Range& range);
  bool record_on(driver::Stream stream, driver::Event event);
  void give_left(unsigned size_class, const Entry& entry);
  uint64_t releasable_chunks_locked(const Segment& segment);
  uint64_t most_of_tail();
  void report_shortage(uint64_t asked);
  Mark* mark_locked(Address address) CUPOOL_REQUIRES(marks_lock_);
  // Scope of detaching segments and giving them back.
  class Release;
  // Gives a detached segment to the driver; false: the driver refused.
  bool give_back(Segment* segment);
  uint64_t hand_back(Segment* segment);
  uint64_t hand_back_done(Segment* segment);
  void note_released(uint64_t bytes);
  void note_pause(uint64_t needed, uint64_t spread);
  uint64_t found_needed();
  void note_needed(uint64_t bytes);
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
  Range* take_range(uint64_t bytes, How how, Search* search,
                    Ranges::Cut cut = Ranges::Cut::kUnlessOneIsPending);
  bool fetch_wanted(Search* search);
  bool is_nearly_full();
  void note_answer(Status status);
  // Whether what was freed last may be all that the next allocation can have. (Not if much lies free.)
  bool is_short() const {
    return is_short_.load(std::memory_order_relaxed) && ranges_.free_bytes() < ranges_.reserved() / 4;
  }
  Range* grow(uint64_t bytes, Search* search);
  Range* take_after_frees(uint64_t bytes, Search* search);
  bool may_make_room(uint64_t bytes, const Search& search);
  static bool enter_pages(Address start, uint64_t bytes);
  void keep_events();
  Range* add_segment(uint64_t bytes, uint64_t taken, Search* search);
  Range* add_run(uint64_t bytes, uint64_t taken, Search* search);
  Range* extend_tail(uint64_t bytes, uint64_t taken, Search* search);
  struct Moving;
  struct Run;
  void gather(uint64_t enough, const Search& search, Moving* out);
  Status map_run(Search* search, Run* run);
  bool grow_run(Search* search, Run* run);
  Status map_run_of(Moving* moving, Search* search, Run* run);
  void note_returned(Search* search);
  void drop_run(const Run& run);
  void put_back(Segment* segment);
  void unmap_left();
  uint64_t chunk_bytes() const;
  bool device_seems_to_have(uint64_t bytes) const;
  uint64_t most_of_chunk(uint64_t run) const;
  uint64_t run_bytes(uint64_t need) const;
  bool may_exceed(uint64_t bytes) const;
  bool should_grow(uint64_t bytes);
  bool may_grow(uint64_t bytes) const;
  void note_moved(size_t chunks, uint64_t bytes);
  void forget_moves();
  uint64_t release_chunks(Ranges::Leaving which);
  uint64_t release_idle_chunks(const allocator::Idle& which, uint64_t now_ms);
  uint64_t largest_split(uint64_t need) const;
  uint64_t segment_bytes(uint64_t need) const;
  void note_need(uint64_t need);
  bool is_newly_tainted() const { return newly_tainted_.load(std::memory_order_relaxed); }
  bool may_spread(uint64_t bytes);
  // What is reserved, but for what was taken so that streams need not wait for each other.
  uint64_t needed() const {
    const uint64_t reserved = ranges_.reserved();
    return reserved - std::min(reserved, spread_.load(std::memory_order_relaxed));
  }
  uint64_t most_unsealed(uint64_t bytes) const;
  bool is_above_budget(uint64_t bytes);
  uint64_t release_for_growth(ThreadCache& cache);
  bool is_all_before_last_free(ThreadCache& cache);
  void give_range(Range* range, Epoch stamp);
  void give_large(const Entry& entry);
  order::LaneName guess_lane(uint64_t bytes);
  void take_back_large(ThreadCache& cache, const Entry& entry);
  void merge_large(ThreadCache& cache);
  // Drops what thread caches keep: it died with the context.
  void drop_kept() CUPOOL_EXCLUDES(caches_lock_);
  bool make_room(ThreadCache& cache, unsigned size_class);
  uint64_t thread_share() const;
  void empty_another_shelf(ThreadCache& cache, unsigned size_class);
  void spill(ThreadCache& cache, unsigned size_class, uint32_t keep);
  void spill_ranges(ThreadCache& cache);

  // First what every call reads: between two calls of ours a program may use all of the processor's caches.
  // The large tables come last.
  std::atomic<driver::Context> context_;
  std::atomic<driver::Context> failed_{nullptr};
  uint64_t closed_at_ = 0;  // under the lock of all pools
  const int device_;
  stats::Device& stats_;
  const uint64_t device_bytes_;
  std::atomic<order::Timeline*> order_;
  std::atomic<unsigned> threads_{0};           // with a cache here
  std::atomic<uint32_t> collects_to_skip_{0};  // see collects_skipped_
  std::atomic<uint64_t> max_cached_{0};
  std::atomic<uint64_t> most_kept_large_{0};
  std::atomic<uint64_t> spread_{0};  // bytes taken so that streams need not wait for each other
  // When idle memory went back: those bytes, and the most that was reserved beside them.
  std::atomic<uint64_t> spread_once_{0};
  std::atomic<uint64_t> needed_once_{0};
  std::atomic<uint32_t> tainted_segments_{0};
  std::atomic<bool> waits_to_grow_{true};  // false: it was in vain
  std::atomic<bool> is_short_{false};      // the device was nearly full when it last refused a segment
  const Settings settings_;
  upstream::Upstream upstream_;
  InFlight& in_flight_;

  OrderedFrees ordered_frees_;
  Lock marks_lock_;
  std::map<Address, Mark> marks_
      CUPOOL_GUARDED_BY(marks_lock_);  // small nodes: the host may be short of memory
  std::atomic<uint64_t> lost_{0};  // bytes that the driver would not take and nobody can use, until the end

  Lock caches_lock_;
  ThreadCache* caches_ CUPOOL_GUARDED_BY(caches_lock_) = nullptr;
  // How many requests do not look for large blocks that other threads keep after one did; in
  // collects_to_skip_ those that are still to come.
  uint32_t collects_skipped_ CUPOOL_GUARDED_BY(caches_lock_) = 0;
  std::atomic<uint64_t> allocated_segments_{0};
  std::atomic<uint64_t> released_segments_{0};
  std::atomic<uint64_t> last_need_{0};       // for which the last segment was taken, in whole pages
  std::atomic<uint64_t> equal_segments_{0};  // how many in a row were taken for this need
  std::atomic<uint64_t> unfinished_{0};      // bytes freed since a free last waited, where reuse is exact
  static constexpr uint64_t kFewMoves = 32;
  std::atomic<uint64_t> moved_{0};              // chunks, since more was handed out at once than ever before
  std::atomic<uint64_t> few_moves_{kFewMoves};  // so many are too few to take more memory instead
  std::atomic<uint64_t> largest_moved_{0};      // the largest run they were moved for
  std::atomic<uint64_t> peak_at_move_{0};       // that most, at the last move
  std::atomic<bool> newly_tainted_{false};      // a segment was, since the last one was taken
  std::atomic<bool> is_ending_{false};
  const SizeClasses sizes_;
  Slabs slabs_;
  Lock guess_lock_;
  order::LaneGuess guess_ CUPOOL_GUARDED_BY(guess_lock_);
  Ranges ranges_;
  mapped::Space space_;
};

}  // namespace cupool::pool
