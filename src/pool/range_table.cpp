// See range_table.hpp. What only mapped segments do is in range_table_mapped.cpp.
#include "pool/range_table.hpp"

#include "allocator/marks.hpp"
#include "base/bytes.hpp"
#include "pool/page_map.hpp"
#include "pool/size_classes.hpp"

namespace cupool::pool {

namespace {

// Cutting such a range would leave none for the next large block.
bool is_much_larger(const Range* range, uint64_t bytes) { return range->bytes >= 2 * bytes; }

// The block alone would keep a large segment from going back, and from the next large block.
bool is_to_spare(const Range* range, uint64_t bytes) {
  constexpr uint64_t kTimes = 12;
  return range->before == nullptr && range->after == nullptr && range->bytes >= kTimes * bytes;
}

// Cut off there, the block would keep a much larger segment from going back. One that fits exactly is not
// cut.
bool would_hold(const Range* range, uint64_t bytes, Cut cut) {
  constexpr uint64_t kTimes = 8;
  const uint64_t exact = round_up(bytes, kPageBytes);
  const bool is_whole = range->before == nullptr && range->after == nullptr;
  if (is_whole && cut == Cut::kNotHoldingWhole) return range->bytes > exact;
  return range->segment.load(std::memory_order_relaxed)->bytes > kTimes * exact;
}

// Where streams overlap, a remainder stays unmerged for long. A small one is better left with a large block:
// batches of slightly different sizes then fit into each other's place.
bool is_worth_cutting(const Range* range, uint64_t bytes, const order::Timeline& order) {
  constexpr uint64_t kLarge = 10 << 20;
  constexpr uint64_t kPart = 12;
  return bytes < kLarge || !order.is_spread() || range->bytes - bytes > bytes / kPart;
}

bool is_tainted(const Range* range) {
  return range->segment.load(std::memory_order_relaxed)->tainted.load(std::memory_order_relaxed);
}

}  // namespace

// ---- Free ranges.

// A range above the split limit serves only blocks that are themselves above it, or that leave nothing over.
uint64_t RangeTable::most_for(uint64_t bytes) const {
  return bytes > split_limit_ ? ~uint64_t{0} : std::max(split_limit_, bytes);
}

Range* RangeTable::find(const Wish& wish, const order::Timeline& order) {
  const bool drains = wish.reach != order::Reach::kOwn &&
                      (wish.reach != order::Reach::kAll || wish.bytes <= SizeClasses::kLargestKept);
  if (drains) drain(wish.limit);
  const size_t first = wish.where == Where::kSmall ? 1 : 0;
  Range* range = find_in(lists_[first], wish, order);
  if (range == nullptr && wish.where == Where::kAnywhere) range = find_in(lists_[1 - first], wish, order);
  if (range != nullptr || drains || wish.reach == order::Reach::kOwn) return range;
  // What lies apart does not fit; side by side it may.
  drain(wish.limit);
  range = lists_[first].bins.best_fit(wish.bytes, most_for(wish.bytes), wish.limit);
  if (range == nullptr && wish.where == Where::kAnywhere)
    range = lists_[1 - first].bins.best_fit(wish.bytes, most_for(wish.bytes), wish.limit);
  return range;
}

// Among pending ranges, the best fit; of those that fit as well, the one freed first, whose work is done
// first. Pending ranges are not merged as long as one fits: the neighbour may have a newer stamp.
Range* RangeTable::find_in(const Lists& lists, const Wish& wish, const order::Timeline& order) const {
  const uint64_t bytes = wish.bytes;
  if (wish.reach == order::Reach::kOwn) {
    Range* const own = best_pending(lists, bytes, wish.limit, wish.sole);
    return own == nullptr || is_much_larger(own, bytes) ? nullptr : own;
  }
  if (wish.cut == Cut::kNotHolding || wish.cut == Cut::kNotHoldingWhole) return best_not_holding(lists, wish);
  Range* const best = lists.bins.best_fit(bytes, most_for(bytes), wish.limit);
  if (wish.reach == order::Reach::kAll && bytes > SizeClasses::kLargestKept) {
    Range* const apart = best_pending(lists, bytes, wish.limit);
    return best != nullptr && (apart == nullptr || best->bytes < apart->bytes) ? best : apart;
  }
  if (best == nullptr || wish.reach != order::Reach::kCheap || wish.cut == Cut::kAlways) return best;
  if (bytes <= SizeClasses::kLargestKept || !is_much_larger(best, bytes)) return best;
  if (wish.cut == Cut::kSpareSegments && is_to_spare(best, bytes)) return nullptr;
  return wish.cut == Cut::kNever || has_better_pending(lists, best, bytes, order) ? nullptr : best;
}

// (Of many that would hold a segment only the smallest are looked at: then there is one more segment.)
Range* RangeTable::best_not_holding(const Lists& lists, const Wish& wish) const {
  constexpr size_t kMostCompared = 64;
  Range* found = nullptr;
  size_t compared = 0;
  lists.bins.visit(wish.bytes, [&](Range* range) {
    if (range->bytes > most_for(wish.bytes)) return true;
    if (range->stamp <= wish.limit && !would_hold(range, wish.bytes, wish.cut)) found = range;
    return found != nullptr || ++compared == kMostCompared;
  });
  return found;
}

// `sole`: only ranges that no other lane has worked on.
Range* RangeTable::best_pending(const Lists& lists, uint64_t bytes, Epoch limit, order::LaneName sole) const {
  return lists.pending.best_fit(bytes, most_for(bytes), limit, sole);
}

// Whether a pending range, which streams may have to wait for, fits better.
bool RangeTable::has_better_pending(const Lists& lists, const Range* range, uint64_t bytes,
                                    const order::Timeline& order) const {
  if (!order.is_spread()) return false;
  const Range* const other = best_pending(lists, bytes, order.reachable());
  return other != nullptr && other->bytes < range->bytes;
}

bool RangeTable::fits(uint64_t bytes) const {
  return std::any_of(lists_.begin(), lists_.end(), [&](const Lists& lists) {
    return lists.pending.largest() >= bytes ||
           lists.bins.best_fit(bytes, most_for(bytes), kAnyStamp) != nullptr;
  });
}

uint64_t RangeTable::best_fit_bytes(uint64_t bytes) const {
  const Range* const best = lists_[0].bins.best_fit(bytes, ~uint64_t{0}, kAnyStamp);
  return best == nullptr ? 0 : best->bytes;
}

bool RangeTable::fits_in_spared(uint64_t bytes) const {
  const Range* const best = lists_[0].bins.best_fit(bytes, most_for(bytes), kAnyStamp);
  return best != nullptr && is_to_spare(best, bytes);
}

uint64_t RangeTable::largest() const {
  uint64_t largest = largest_in_bins();
  for (const Lists& lists : lists_) largest = std::max(largest, lists.pending.largest());
  return largest;
}

Epoch RangeTable::latest() const {
  Epoch latest = 0;
  for (const Lists& lists : lists_) {
    const Range* const newest = lists.pending.newest();
    latest = std::max({latest, lists.bins.latest(), newest == nullptr ? 0 : newest->stamp});
  }
  return latest;
}

// Only pending ranges lie beside each other or beside a free one, so a run is looked for around each of them,
// from its lowest one.
bool RangeTable::has_run(uint64_t bytes) const {
  bool has = largest_in_bins() >= bytes;
  const auto is_long = [&](const Range* range) {
    const Range* first = range;
    if (first->before != nullptr && first->before->use == Use::kFree) first = first->before;
    if (first->before != nullptr && first->before->use == Use::kPending) return false;
    uint64_t run = 0;
    for (; first != nullptr && first->use != Use::kTaken && run < bytes; first = first->after)
      run += first->bytes;
    return has = run >= bytes;
  };
  for (const Lists& lists : lists_) {
    if (!has) lists.pending.visit(is_long);
  }
  return has;
}

void RangeTable::unlist(Range* range) {
  if (range->use == Use::kPending) {
    lists_of(*range).pending.remove(range);
  } else {
    lists_of(*range).bins.remove(range);
  }
}

void RangeTable::list_again(Range* range) {
  if (range->use == Use::kPending) {
    lists_of(*range).pending.insert(range);
  } else {
    lists_of(*range).bins.insert(range);
  }
}

void RangeTable::cut_off(Range* range, uint64_t bytes, const order::Timeline& order) {
  Range* const rest = is_worth_cutting(range, bytes, order) ? cut(range, bytes) : nullptr;
  if (rest == nullptr) return;
  rest->use = range->use;
  list_again(rest);
}

void RangeTable::list_pending(Range* range) {
  range->use = Use::kPending;
  lists_of(*range).pending.insert(range);
}

void RangeTable::drain(Epoch limit) {
  for (Lists& lists : lists_) {
    for (;;) {
      Range* const range = lists.pending.oldest();
      if (range == nullptr || range->stamp > limit) break;
      lists.pending.remove(range);
      merge(range);
    }
  }
}

void RangeTable::merge(Range* range) {
  const bool listed = !is_tainted(range);
  Bins& bins = lists_of(*range).bins;
  range->use = Use::kFree;
  if (range->after != nullptr && range->after->use == Use::kFree) {
    if (listed) bins.remove(range->after);
    absorb_next(range);
  }
  if (range->before != nullptr && range->before->use == Use::kFree) {
    range = range->before;
    if (listed) bins.remove(range);
    absorb_next(range);
  }
  if (listed) bins.insert(range);
}

Range* RangeTable::close_free(Range* range) {
  unlist(range);
  range->use = Use::kFree;
  if (range->before == nullptr || range->before->use != Use::kFree) return range;
  range = range->before;
  absorb_next(range);
  return range;
}

// ---- Records.

void RangeTable::absorb_next(Range* range) {
  Range* gone = range->after;
  // A little that was freed just now does not make a large range young.
  if (gone->bytes > range->bytes) range->set_idle_since(gone->idle_since());
  // (What was handed out above memory that was not counts as new, too: one figure is kept.)
  range->set_new_bytes(range->new_bytes() != 0 ? range->new_bytes() + gone->bytes : gone->new_bytes());
  range->bytes += gone->bytes;
  range->chunkless = false;
  range->stamp = std::max(range->stamp, gone->stamp);
  if (range->sole != gone->sole) range->sole = order::LaneName::kNone;
  range->after = gone->after;
  (gone->after != nullptr ? gone->after->before : range->segment.load(std::memory_order_relaxed)->last) =
      range;
  page_map.set(gone->start, nullptr);
  range_store_.give(gone);
  tally_.add(stats::DeviceCounter::merges);
}

Range* RangeTable::cut(Range* range, uint64_t bytes) {
  if (range->bytes == bytes) return nullptr;
  Range* rest = range_store_.take_as_it_is();
  if (rest == nullptr) return nullptr;
  rest->slab.store(nullptr, std::memory_order_relaxed);
  rest->tag.store(0, std::memory_order_relaxed);
  rest->use = Use::kFree;
  rest->pool = pool_;
  Segment* const segment = range->segment.load(std::memory_order_relaxed);
  rest->segment.store(segment, std::memory_order_relaxed);
  rest->set_idle_since(range->idle_since());
  rest->set_start(range->start + bytes);
  rest->bytes = range->bytes - bytes;
  rest->set_new_bytes(std::min(range->new_bytes(), rest->bytes));
  range->set_new_bytes(range->new_bytes() - rest->new_bytes());
  rest->stamp = range->stamp;
  rest->sole = range->sole;
  rest->chunkless = range->chunkless;
  rest->before = range;
  rest->after = range->after;
  (rest->after != nullptr ? rest->after->before : segment->last) = rest;
  range->after = rest;
  range->bytes = bytes;
  page_map.set(rest->start, rest);
  tally_.add(stats::DeviceCounter::splits);
  return rest;
}

void RangeTable::list(Segment* segment) {
  segment->next = segments_;
  (segments_ != nullptr ? segments_->prev : last_segment_) = segment;
  segments_ = segment;
  (segment->mapped ? counts_.mapped : counts_.of_driver).fetch_add(1, std::memory_order_relaxed);
}

void RangeTable::unlist(Segment* segment) {
  (segment->prev != nullptr ? segment->prev->next : segments_) = segment->next;
  (segment->next != nullptr ? segment->next->prev : last_segment_) = segment->prev;
  (segment->mapped ? counts_.mapped : counts_.of_driver).fetch_sub(1, std::memory_order_relaxed);
}

void RangeTable::list_last(Segment* segment) {
  unlist(segment);
  segment->prev = last_segment_;
  segment->next = nullptr;
  (last_segment_ != nullptr ? last_segment_->next : segments_) = segment;
  last_segment_ = segment;
  (segment->mapped ? counts_.mapped : counts_.of_driver).fetch_add(1, std::memory_order_relaxed);
}

Range* RangeTable::add(Address start, uint64_t bytes, Kind kind) {
  Segment* segment = segment_store_.take();
  Range* range = segment == nullptr ? nullptr : range_store_.take();
  if (range == nullptr) {
    if (segment != nullptr) segment_store_.give(segment);
    return nullptr;
  }
  segment->start = start;
  segment->bytes = bytes;
  if (segment->pool == nullptr) segment->pool = pool_;
  segment->number = allocator::next_life();
  segment->first.store(range, std::memory_order_relaxed);
  segment->last = range;
  segment->mapped = kind.is_mapped;
  segment->small = kind.is_small;
  list(segment);
  range->set_start(start);
  range->bytes = bytes;
  range->set_new_bytes(bytes);
  range->pool = pool_;
  range->segment.store(segment, std::memory_order_relaxed);
  page_map.set_segment(segment, start, bytes);
  page_map.set(start, range);
  return range;
}

void RangeTable::forget(Segment* segment) {
  range_store_.give(segment->lowest());
  segment_store_.give(segment);
}

void RangeTable::drop_all() {
  for (Segment* segment = segments_; segment != nullptr;) {
    page_map.remove(segment->start, segment->bytes);
    for (Range* range = segment->lowest(); range != nullptr;) {
      Range* after = range->after;
      range->tag.store(0, std::memory_order_relaxed);
      range_store_.give(range);
      range = after;
    }
    Segment* next = segment->next;
    segment_store_.give(segment);
    segment = next;
  }
  segments_ = last_segment_ = nullptr;
  counts_.of_driver.store(0, std::memory_order_relaxed);
  counts_.mapped.store(0, std::memory_order_relaxed);
  lists_ = {};
}

}  // namespace cupool::pool
