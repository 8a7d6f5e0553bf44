// The tables behind Ranges: the records of segments, the ranges that tile them, and the free ones among
// these: done (bins.hpp), or with work that is not (pending_ranges.hpp). Every change keeps them consistent:
// what is cut tiles again, what is merged leaves no record. Ranges' lock protects all of it; it knows no
// account of bytes, and never calls the driver.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>

#include "mapped/space.hpp"
#include "order/timeline.hpp"
#include "pool/bins.hpp"
#include "pool/metadata.hpp"
#include "pool/pending_ranges.hpp"
#include "pool/range.hpp"
#include "stats/device.hpp"

namespace cupool::pool {

using order::kAnyStamp;

// Whether to cut a range for a large block of half its size or less, after which the next larger block would
// find none: not at all, not if it is a free segment many times as large (see growth::spare_bytes()) or a
// pending range fits better, not if a pending range fits better, or in any case. On a crowded device a block
// of any size is cut off only where it does not keep a much larger segment from going back, or besides from
// no segment that is wholly free.
enum class Cut { kNever, kNotHolding, kNotHoldingWhole, kSpareSegments, kUnlessOneIsPending, kAlways };

// In which segments a range is looked for. A slab, of which a single block may be live, would keep a large
// segment from going back, so slabs have segments of their own. (Mapped segments are all large: what is free
// there goes back in chunks.)
enum class Where { kLarge, kSmall, kAnywhere };

class RangeTable {
 public:
  // How many segments there are, for readers without the lock.
  struct Counts {
    std::atomic<uint32_t> of_driver{0};
    std::atomic<uint32_t> mapped{0};
  };

  RangeTable(Pool* pool, stats::Device& device, Counts& counts)
      : pool_(pool), counts_(counts), tally_(device.add_tally()) {}
  void set_split_limit(uint64_t bytes) { split_limit_ = bytes; }

  Segment* first_segment() const { return segments_; }
  // The free ranges, whatever their stamp: the largest, and whether one has so many bytes.
  uint64_t largest() const;
  uint64_t largest_in_bins() const { return std::max(lists_[0].bins.largest(), lists_[1].bins.largest()); }
  bool fits(uint64_t bytes) const;
  // The size of the best fit in large segments; 0: there is none.
  uint64_t best_fit_bytes(uint64_t bytes) const;
  bool has_pending() const { return lists_[0].pending.largest() != 0 || lists_[1].pending.largest() != 0; }
  // Whether this is a free segment many times as large.
  bool fits_in_spared(uint64_t bytes) const;
  // The newest stamp of all free ranges.
  Epoch latest() const;
  // Whether free ranges, of whatever stamp, lie side by side with so many bytes in all.
  bool has_run(uint64_t bytes) const;

  // ---- Free ranges.

  // What was asked of a search for a range.
  struct Wish {
    uint64_t bytes;
    order::Reach reach;
    Epoch limit;           // the newest stamp that will do
    order::LaneName sole;  // kOwn: only ranges that no other lane has worked on
    Cut cut;
    Where where;
  };
  Range* find(const Wish& wish, const order::Timeline& order);
  // The pending range whose chunks are looked for: the first, by age, that `accept` wants.
  template <typename Accept>
  Range* find_pending(Epoch limit, Accept&& accept) {
    Range* found = nullptr;
    lists_[0].pending.visit([&](Range* range) {
      const bool is_too_new = range->stamp > limit;
      if (!is_too_new && accept(*range)) found = range;
      return is_too_new || found != nullptr;
    });
    return found;
  }
  // The same among those that are done, the smallest first.
  template <typename Accept>
  Range* find_free(uint64_t bytes, Accept&& accept) {
    Range* found = nullptr;
    lists_[0].bins.visit(bytes, [&](Range* range) {
      if (accept(*range)) found = range;
      return found != nullptr;
    });
    return found;
  }
  // Out of the lists, or into them; cut_off() is for a range that is in none any more, and lists the rest.
  void unlist(Range* range);
  void list_free(Range* range) { lists_of(*range).bins.insert(range); }
  void list_pending(Range* range);
  void cut_off(Range* range, uint64_t bytes, const order::Timeline& order);
  // Makes a range free and merges it with free neighbours.
  void merge(Range* range);
  // Merges all pending ranges up to a stamp.
  void drain(Epoch limit);
  // Of a segment that serves no more: out of the lists, and merged with the free range before it, if there is
  // one; returns the range it is then part of.
  Range* close_free(Range* range);

  // ---- Records.

  // A segment of one range that is in no list yet; null: no host memory.
  struct Kind {
    bool is_mapped = false;
    bool is_small = false;
  };
  Range* add(Address start, uint64_t bytes, Kind kind);
  // Splits off the upper part as a new range, in no list yet. Null: nothing is left over, or no host memory
  // for its record, and the block keeps all of it.
  Range* cut(Range* range, uint64_t bytes);
  // Cuts a free or pending range at an address inside it; returns the upper part, or null without host
  // memory.
  Range* cut_free(Range* range, Address at);
  // A segment is in no list any more; forget() is to follow.
  void unlist(Segment* segment);
  void forget(Segment* segment);
  void drop_all();

  // A tainted segment stands after all others: a search for room stops there.
  void list_last(Segment* segment);

  // ---- Mapped segments (range_table_mapped.cpp).

  void join_neighbours(Segment* segment);
  // Makes these ranges of one segment a segment of their own; null: no host memory.
  Segment* isolate(Range* low, Range* high);
  // The same for the chunks around a block; its own segment without host memory.
  Segment* isolate_block(Range* range, mapped::Space& space);

 private:
  // Free ranges of one kind of segments.
  struct Lists {
    PendingRanges pending;
    Bins bins;
  };

  uint64_t most_for(uint64_t bytes) const;
  Lists& lists_of(const Range& range) {
    return lists_[range.segment.load(std::memory_order_relaxed)->small ? 1 : 0];
  }
  Range* find_in(const Lists& lists, const Wish& wish, const order::Timeline& order) const;
  Range* best_not_holding(const Lists& lists, const Wish& wish) const;
  Range* best_pending(const Lists& lists, uint64_t bytes, Epoch limit,
                      order::LaneName sole = order::LaneName::kNone) const;
  bool has_better_pending(const Lists& lists, const Range* range, uint64_t bytes,
                          const order::Timeline& order) const;
  void list_again(Range* range);
  void absorb_next(Range* range);
  void list(Segment* segment);
  Segment* join(Segment* left, Segment* right);
  bool split(Segment* segment, Range* at);

  Pool* const pool_;
  Counts& counts_;
  stats::Tally& tally_;
  uint64_t split_limit_ = ~uint64_t{0};
  Segment* segments_ = nullptr;  // tainted ones last
  Segment* last_segment_ = nullptr;
  ObjectStore<Range, &Range::after> range_store_;
  ObjectStore<Segment, &Segment::next> segment_store_;
  std::array<Lists, 2> lists_{};  // of large segments, of small ones; large, so after all else
};

}  // namespace cupool::pool
