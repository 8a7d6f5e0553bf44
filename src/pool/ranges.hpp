// Device memory of one pool above the slabs: segments from the driver, tiled by ranges that are split on
// allocation and merged when free. Has the tables (range_table.hpp), the account of their bytes
// (range_bytes.hpp) and the lock of both. Never calls the driver: segments come with add() after it gave the
// memory, and go to it after detach(), with no lock held. A segment of mapped memory grows, joins its
// neighbour and is parted (ranges_mapped.cpp); one of the driver's stays as it is.
#pragma once

#include <atomic>

#include "base/lock.hpp"
#include "mapped/space.hpp"
#include "order/timeline.hpp"
#include "pool/range.hpp"
#include "pool/range_bytes.hpp"
#include "pool/range_table.hpp"
#include "pool/ripe_segments.hpp"
#include "stats/device.hpp"

namespace cupool::pool {

class Slabs;

class Ranges {
 public:
  struct Figures {
    uint64_t reserved = 0;      // bytes of all segments
    uint64_t free = 0;          // of these in free ranges, pending ones included
    uint64_t largest_free = 0;  // filled by figures() only
    uint64_t segments = 0;
    uint64_t free_segments = 0;
    uint64_t free_segment_bytes = 0;
  };

  using Cut = pool::Cut;
  using Where = pool::Where;

  Ranges(Pool* pool, stats::Device& device) : pool_(pool), table_(pool, device, counts_) {}

  // The best fit of `bytes`, cut to size, that may be handed out now; null when there is none. Its stamp is 0
  // if no work was pending. pre: bytes is a multiple of a granule.
  // kOwn: only ranges that no lane but `sole` has worked on.
  Range* take(uint64_t bytes, const order::Timeline& order, order::Reach reach,
              order::LaneName sole = order::LaneName::kNone, Cut cut = Cut::kUnlessOneIsPending,
              Where where = Where::kAnywhere);
  // Whether only time is missing: some range would fit if its stamp were safe.
  bool fits(uint64_t bytes);
  // The size of the smallest range that is free and has so many bytes; 0: there is none.
  uint64_t best_fit_bytes(uint64_t bytes);
  // Whether this is a free segment many times as large.
  bool fits_in_spared(uint64_t bytes);
  // Whether free ranges, of whatever stamp, lie side by side with so many bytes in all.
  bool has_run(uint64_t bytes);
  // Whether some free range has work that is not done.
  bool has_unfinished(Epoch done);
  // Takes a range back. Merged at once if it may be handed out at once, else kept pending until it may: a
  // fresh stamp must not make a large old range wait.
  void give(Range* range, Epoch stamp, const order::Timeline& order,
            order::LaneName sole = order::LaneName::kNone);
  // Takes back a range that was taken for nothing: as if it had not been.
  void put_back(Range* range, const order::Timeline& order);
  // Adds a new segment, already in the page map, whose first `bytes_taken` bytes are handed out at once (0:
  // none). Null: no host memory; nothing was added. Mapped memory becomes one with its neighbours.
  enum class From { kDriver, kDriverForSmall, kMapped };
  // `stamp` and `sole` tell of the last work there.
  Range* add(Address start, uint64_t bytes, uint64_t bytes_taken, From from, Epoch stamp = 0,
             order::LaneName sole = order::LaneName::kNone);

  // Takes one wholly free segment of the driver's out of all records and the page map; null when there is
  // none. Those with unfinished work, too: the driver's free waits for it.
  Segment* detach();
  // The same for a segment whose work is done.
  Segment* detach_done(const order::Timeline& order);
  // The same for a segment seen free `idle_ms` ago and at every call since; times in milliseconds.
  Segment* detach_idle(uint64_t now_ms, uint64_t idle_ms, const order::Timeline& order);
  // The same for a tainted segment; a mapped one only once its work is done, one of the driver's only if
  // its free may wait.
  Segment* detach_tainted(const order::Timeline& order, bool may_wait);
  // The segment that contains `address`, or the chunks around its block, serve no new block. False: already
  // tainted, or not ours.
  bool taint(Address address, Slabs& slabs, mapped::Space& space);
  // Whether any segment is an allocation of the driver.
  bool has_driver_segments() const { return counts_.of_driver.load(std::memory_order_relaxed) != 0; }
  // Whether any is mapped.
  bool has_mapped_segments() const { return counts_.mapped.load(std::memory_order_relaxed) != 0; }

  // ---- Mapped memory (ranges_mapped.cpp).

  // Takes whole chunks in a free range out of all records and the page map, as a segment of their own: as few
  // as make `enough` bytes, of memory that was seen free `idle_ms` ago. Only where all work is done:
  // unmapping does not wait. Null when there are none.
  struct ToRelease {
    uint64_t enough = ~uint64_t{0};
    uint64_t now_ms = 0;
    uint64_t idle_ms = 0;
  };
  Segment* part(const ToRelease& which, mapped::Space& space, const order::Timeline& order);
  // The same for chunks that are to be mapped elsewhere too, and stay mapped here until their work is done:
  // all that may be handed out now, those first that make no lane wait, then those of lane `sole`. The
  // segment's only range has the stamp and the lane of their last work.
  Segment* part_to_move(uint64_t enough, order::Reach reach, order::LaneName sole, mapped::Space& space,
                        const order::Timeline& order);
  // Takes the free range at the end of a mapped segment that leaves least to be mapped for a block of
  // `bytes`, if it may be handed out now and has room behind it. extend() or give() must follow.
  // `may_share` false: not the rest of a page alone.
  Range* take_tail(uint64_t bytes, bool may_share, mapped::Space& space, const order::Timeline& order);
  // `more` bytes, already in the page map and free since `stamp`, now continue a taken range, which keeps
  // `bytes` of it all.
  void extend(Range* range, uint64_t more, uint64_t bytes, Epoch stamp, order::LaneName sole);
  // Drops the record once the driver has the memory. (A refused release: add() it again.)
  void forget(Segment* segment);
  // Drops every segment, live or not: the context is gone, and nothing goes back to the driver.
  void drop_all(Slabs& slabs);

  const RangeBytes& bytes() const { return bytes_; }
  // What is idle and, of mapped segments, the whole chunks that lie free. False: ranges are pending, which
  // may make up chunks together.
  bool find_idle_bytes(mapped::Space& space, uint64_t* out);
  // How many ranges were ever given back: tells a search that failed whether to look again.
  uint64_t gives() const { return gives_.load(std::memory_order_relaxed); }
  // The same for memory that add() or put_back() brought back.
  void note_give() {
    Guard hold(lock_);
    gives_.store(gives() + 1, std::memory_order_relaxed);
  }
  Figures figures();
  // 0 when the lock is taken (with `wait`: for more than a moment).
  uint64_t largest_free(bool wait);

  // For questions about addresses inside blocks, and for walks.
  Lock& lock() CUPOOL_RETURN_CAPABILITY(lock_) { return lock_; }
  Segment* first_segment() CUPOOL_REQUIRES(lock_) { return table_.first_segment(); }

  void set_split_limit(uint64_t bytes) {
    Guard hold(lock_);
    table_.set_split_limit(bytes);
  }

 private:
  Segment* detach_locked(Segment* segment) CUPOOL_REQUIRES(lock_);
  Segment* detach_free_locked(Segment* segment) CUPOOL_REQUIRES(lock_);
  Segment* detach_first_locked(Epoch limit) CUPOOL_REQUIRES(lock_);
  void give_locked(Range* range, const order::Timeline& order) CUPOOL_REQUIRES(lock_);
  void hand_out_locked(Range* range) CUPOOL_REQUIRES(lock_);
  struct Found {
    Range* range = nullptr;
    mapped::Part chunks;
  };
  template <typename Accept>
  Found find_chunks_locked(uint64_t enough, mapped::Space& space, Accept&& accept) CUPOOL_REQUIRES(lock_);
  Found find_pending_chunks_locked(uint64_t enough, mapped::Space& space, Epoch limit, order::LaneName sole)
      CUPOOL_REQUIRES(lock_);
  Segment* part_locked(const Found& found) CUPOOL_REQUIRES(lock_);

  Pool* const pool_;
  RangeBytes bytes_;
  std::atomic<uint64_t> gives_{0};
  RangeTable::Counts counts_;
  Lock lock_{Rank::kRanges};
  IdleSegments idle_ CUPOOL_GUARDED_BY(lock_){bytes_};
  RipeSegments ripe_ CUPOOL_GUARDED_BY(lock_);
  RangeTable table_ CUPOOL_GUARDED_BY(lock_);
};

}  // namespace cupool::pool
