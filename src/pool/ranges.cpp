// Segments and the ranges that tile them: cut, handed out, given back, merged, all under `lock_`. Never calls
// the driver. What only mapped segments do is in ranges_mapped.cpp.
#include "pool/ranges.hpp"

#include <algorithm>

#include "allocator/marks.hpp"
#include "pool/page_map.hpp"
#include "pool/size_classes.hpp"
#include "pool/slabs.hpp"

namespace cupool::pool {

namespace {

// Cutting such a range would leave none for the next large block.
bool is_much_larger(const Range* range, uint64_t bytes) { return range->bytes >= 2 * bytes; }

// Ranges that differ by less fit as well. Not more: the larger one may be just what another block needs.
uint64_t least_difference(uint64_t bytes) { return bytes / 1024; }

}  // namespace

// A range above the split limit serves only blocks that are themselves above it, or that leave nothing over.
uint64_t Ranges::most_for(uint64_t bytes) const {
  return bytes > split_limit_ ? ~uint64_t{0} : std::max(split_limit_, bytes);
}

Range* Ranges::take(uint64_t bytes, const order::Timeline& order, order::Reach reach, order::LaneName sole,
                    Cut cut) {
  Guard hold(lock_);
  // Read under the lock, not before: a thread that gave a range back has noted its work first.
  const Epoch limit = order.limit(reach);
  Range* const range = find_locked(bytes, order, reach, limit, sole, cut);
  if (range == nullptr) return nullptr;
  if (limit == kAnyStamp) range->stamp = 0;
  RangeLink* const place = range->prev;
  if (range->use == Use::kPending) {
    range->unlink();
  } else {
    bins_.remove(range);
  }
  Range* const rest = is_worth_cutting(range, bytes, order) ? cut_locked(range, bytes) : nullptr;
  if (rest != nullptr) {
    rest->use = range->use;
    if (rest->use == Use::kPending) {
      rest->insert_after(place);
    } else {
      bins_.insert(rest);
    }
  }
  hand_out_locked(range);
  return range;
}

// Where streams overlap, a remainder stays unmerged for long. A small one is better left with a large block:
// batches of slightly different sizes then fit into each other's place.
bool Ranges::is_worth_cutting(const Range* range, uint64_t bytes, const order::Timeline& order) {
  constexpr uint64_t kLarge = 10 << 20;
  constexpr uint64_t kPart = 12;
  return bytes < kLarge || !order.is_spread() || range->bytes - bytes > bytes / kPart;
}

// Among pending ranges, the best fit; of those that fit as well, the one freed first, whose work is done
// first. Pending ranges are not merged as long as one fits: the neighbour may have a newer stamp.
Range* Ranges::find_locked(uint64_t bytes, const order::Timeline& order, order::Reach reach, Epoch limit,
                           order::LaneName sole, Cut cut) {
  const uint64_t most = most_for(bytes);
  if (reach == order::Reach::kOwn) {
    Range* const own = best_pending_locked(bytes, limit, sole);
    return own == nullptr || is_much_larger(own, bytes) ? nullptr : own;
  }
  if (reach == order::Reach::kAll && bytes > SizeClasses::kLargestKept) {
    Range* const apart = best_pending_locked(bytes, limit);
    Range* const free = bins_.best_fit(bytes, most, limit);
    if (free != nullptr && (apart == nullptr || free->bytes < apart->bytes)) return free;
    if (apart != nullptr) return apart;
  }
  drain_locked(limit);
  Range* const best = bins_.best_fit(bytes, most, limit);
  if (best == nullptr || reach != order::Reach::kCheap || cut == Cut::kAlways) return best;
  if (bytes <= SizeClasses::kLargestKept || !is_much_larger(best, bytes)) return best;
  return cut == Cut::kNever || has_better_pending_locked(best, bytes, order) ? nullptr : best;
}

// `sole`: only ranges that no other lane has worked on.
Range* Ranges::best_pending_locked(uint64_t bytes, Epoch limit, order::LaneName sole) {
  Range* best = nullptr;
  const uint64_t most = most_for(bytes);
  const uint64_t same = least_difference(bytes);
  for (RangeLink* link = pending_.next; link != &pending_; link = link->next) {
    Range* const range = static_cast<Range*>(link);
    if (range->stamp > limit) break;
    if (range->bytes < bytes || range->bytes > most) continue;
    if (sole != order::LaneName::kNone && range->sole != sole) continue;
    if (best == nullptr || range->bytes + same < best->bytes) best = range;
  }
  return best;
}

// Whether a pending range, which streams may have to wait for, fits better.
bool Ranges::has_better_pending_locked(const Range* range, uint64_t bytes, const order::Timeline& order) {
  if (!order.is_spread()) return false;
  const Range* const other = best_pending_locked(bytes, order.reachable());
  return other != nullptr && other->bytes < range->bytes;
}

bool Ranges::fits(uint64_t bytes) {
  Guard hold(lock_);
  if (bins_.best_fit(bytes, most_for(bytes), kAnyStamp) != nullptr) return true;
  for (const RangeLink* link = pending_.next; link != &pending_; link = link->next) {
    if (static_cast<const Range*>(link)->bytes >= bytes) return true;
  }
  return false;
}

bool Ranges::has_run(uint64_t bytes) {
  Guard hold(lock_);
  for (const Segment* segment = segments_; segment != nullptr; segment = segment->next) {
    if (segment->tainted.load(std::memory_order_relaxed)) continue;
    uint64_t run = 0;
    for (const Range* range = segment->lowest(); range != nullptr && run < bytes; range = range->after)
      run = range->use == Use::kTaken ? 0 : run + range->bytes;
    if (run >= bytes) return true;
  }
  return false;
}

bool Ranges::has_unfinished(Epoch done) {
  Guard hold(lock_);
  for (const Segment* segment = segments_; segment != nullptr; segment = segment->next) {
    for (const Range* range = segment->lowest(); range != nullptr; range = range->after) {
      if (range->use != Use::kTaken && range->stamp > done) return true;
    }
  }
  return false;
}

void Ranges::hand_out_locked(Range* range) {
  range->use = Use::kTaken;
  range->segment.load(std::memory_order_relaxed)->idle_since = 0;
  free_.store(free_bytes() - range->bytes, std::memory_order_relaxed);
  if (reserved() - free_bytes() > peak_taken())
    peak_taken_.store(reserved() - free_bytes(), std::memory_order_relaxed);
}

// Splits off the upper part as a new range, in no list yet. Null: nothing is left over, or no host memory for
// its record, and the block keeps all of it.
Range* Ranges::cut_locked(Range* range, uint64_t bytes) {
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

void Ranges::give(Range* range, Epoch stamp, const order::Timeline& order, order::LaneName sole) {
  Guard hold(lock_);
  gives_.store(gives() + 1, std::memory_order_relaxed);
  range->stamp = stamp;
  range->sole = sole;
  give_locked(range, order);
}

void Ranges::put_back(Range* range, const order::Timeline& order) {
  Guard hold(lock_);
  give_locked(range, order);
}

void Ranges::give_locked(Range* range, const order::Timeline& order) {
  const Epoch stamp = range->stamp;
  range->set_idle_since(0);
  if (range->segment.load(std::memory_order_relaxed)->tainted.load(std::memory_order_relaxed)) {
    // Only the driver gets it, and its free waits.
    merge_locked(range);
    return;
  }
  free_.store(free_bytes() + range->bytes, std::memory_order_relaxed);
  if (stamp <= order.cheap()) {
    merge_locked(range);
    return;
  }
  range->use = Use::kPending;
  // Nearly always at the end; ranges that come late from a thread cache are sorted in.
  RangeLink* before = pending_.prev;
  while (before != &pending_ && static_cast<Range*>(before)->stamp > stamp) before = before->prev;
  range->insert_after(before);
}

void Ranges::drain_locked(Epoch limit) {
  while (pending_.next != &pending_) {
    Range* range = static_cast<Range*>(pending_.next);
    if (range->stamp > limit) break;
    range->unlink();
    merge_locked(range);
  }
}

void Ranges::absorb_next_locked(Range* range) {
  Range* gone = range->after;
  // A little that was freed just now does not make a large range young.
  if (gone->bytes > range->bytes) range->set_idle_since(gone->idle_since());
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

void Ranges::merge_locked(Range* range) {
  const bool listed =
      !range->segment.load(std::memory_order_relaxed)->tainted.load(std::memory_order_relaxed);
  range->use = Use::kFree;
  if (range->after != nullptr && range->after->use == Use::kFree) {
    if (listed) bins_.remove(range->after);
    absorb_next_locked(range);
  }
  if (range->before != nullptr && range->before->use == Use::kFree) {
    range = range->before;
    if (listed) bins_.remove(range);
    absorb_next_locked(range);
  }
  if (listed) bins_.insert(range);
}

void Ranges::list_locked(Segment* segment) {
  segment->next = segments_;
  if (segments_ != nullptr) segments_->prev = segment;
  segments_ = segment;
  (segment->mapped ? mapped_segments_ : driver_segments_).fetch_add(1, std::memory_order_relaxed);
}

void Ranges::unlist_locked(Segment* segment) {
  (segment->prev != nullptr ? segment->prev->next : segments_) = segment->next;
  if (segment->next != nullptr) segment->next->prev = segment->prev;
  (segment->mapped ? mapped_segments_ : driver_segments_).fetch_sub(1, std::memory_order_relaxed);
}

Range* Ranges::add(Address start, uint64_t bytes, uint64_t bytes_taken, From from, Epoch stamp,
                   order::LaneName sole) {
  Guard hold(lock_);
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
  segment->mapped = from == From::kMapped;
  list_locked(segment);
  range->set_start(start);
  range->bytes = bytes;
  range->pool = pool_;
  range->segment.store(segment, std::memory_order_relaxed);
  range->stamp = stamp;
  range->sole = sole;
  page_map.set_segment(segment, start, bytes);
  page_map.set(start, range);
  reserved_.store(reserved() + bytes, std::memory_order_relaxed);
  free_.store(free_bytes() + bytes, std::memory_order_relaxed);
  if (bytes_taken == 0) {
    bins_.insert(range);
  } else {
    if (Range* rest = cut_locked(range, bytes_taken)) bins_.insert(rest);
    hand_out_locked(range);
  }
  if (segment->mapped) join_neighbours_locked(segment);
  return range;
}

Segment* Ranges::detach() {
  Guard hold(lock_);
  return detach_free_locked(kAnyStamp);
}

// The limit is read under the lock, as in take().
Segment* Ranges::detach_done(const order::Timeline& order) {
  Guard hold(lock_);
  return detach_free_locked(order::kDoneGoes ? order.done() : kAnyStamp);
}

Segment* Ranges::detach_free_locked(Epoch limit) {
  if (!has_driver_segments()) return nullptr;
  drain_locked(limit);
  const auto may_go = [limit](const Segment& segment) {
    return !segment.mapped && !segment.tainted && segment.is_free() && segment.lowest()->stamp <= limit;
  };
  Segment* segment = segments_;
  while (segment != nullptr && !may_go(*segment)) segment = segment->next;
  if (segment == nullptr) return nullptr;
  bins_.remove(segment->lowest());
  free_.store(free_bytes() - segment->bytes, std::memory_order_relaxed);
  return detach_locked(segment);
}

Segment* Ranges::detach_idle(uint64_t now_ms, uint64_t idle_ms, const order::Timeline& order) {
  Guard hold(lock_);
  if (!has_driver_segments()) return nullptr;
  drain_locked(order.cheap());
  for (Segment* segment = segments_; segment != nullptr; segment = segment->next) {
    if (segment->mapped || segment->tainted || !segment->is_free()) continue;
    if (segment->idle_since == 0) segment->idle_since = now_ms;
    if (now_ms - segment->idle_since < idle_ms) continue;
    bins_.remove(segment->lowest());
    free_.store(free_bytes() - segment->bytes, std::memory_order_relaxed);
    return detach_locked(segment);
  }
  return nullptr;
}

Segment* Ranges::detach_tainted(const order::Timeline& order, bool may_wait) {
  Guard hold(lock_);
  const Epoch limit = order.done();
  const auto may_go = [=](const Segment& segment) {
    const bool is_ready = segment.mapped ? segment.lowest()->stamp <= limit : may_wait;
    return segment.tainted && segment.is_free() && is_ready;
  };
  Segment* segment = segments_;
  while (segment != nullptr && !may_go(*segment)) segment = segment->next;
  return segment == nullptr ? nullptr : detach_locked(segment);
}

Segment* Ranges::detach_locked(Segment* segment) {
  unlist_locked(segment);
  if (segment->tainted) tainted_.fetch_sub(segment->bytes, std::memory_order_relaxed);
  reserved_.store(reserved() - segment->bytes, std::memory_order_relaxed);
  page_map.remove(segment->start, segment->bytes);
  return segment;
}

void Ranges::forget(Segment* segment) {
  Guard hold(lock_);
  range_store_.give(segment->lowest());
  segment_store_.give(segment);
}

void Ranges::drop_all() {
  Guard hold(lock_);
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
  segments_ = nullptr;
  driver_segments_.store(0, std::memory_order_relaxed);
  mapped_segments_.store(0, std::memory_order_relaxed);
  pending_.prev = pending_.next = &pending_;
  bins_ = Bins{};
  tainted_.store(0, std::memory_order_relaxed);
  reserved_.store(0, std::memory_order_relaxed);
  free_.store(0, std::memory_order_relaxed);
  peak_taken_.store(0, std::memory_order_relaxed);
}

uint64_t Ranges::largest_free(bool wait) CUPOOL_NO_THREAD_SAFETY_ANALYSIS {
  if (!(wait ? lock_.try_lock_for_a_moment() : lock_.try_lock())) return 0;
  uint64_t largest = bins_.largest();
  for (const RangeLink* link = pending_.next; link != &pending_; link = link->next) {
    largest = std::max(largest, static_cast<const Range*>(link)->bytes);
  }
  lock_.unlock();
  return largest;
}

Ranges::Figures Ranges::figures() {
  Guard hold(lock_);
  Figures figures;
  figures.reserved = reserved();
  figures.free = free_bytes();
  figures.largest_free = bins_.largest();
  for (const Segment* segment = segments_; segment != nullptr; segment = segment->next) {
    ++figures.segments;
    if (!segment->is_free()) continue;
    ++figures.free_segments;
    figures.free_segment_bytes += segment->bytes;
  }
  return figures;
}

// Under the range lock, so that no range comes or goes. A block on its way from a thread cache to the
// application is missed, and handed out once more.
bool Ranges::taint(Address address, Slabs& slabs, mapped::Space& space) {
  Guard hold(lock_);
  if (page_map.pool_of(address) != pool_) return false;
  Range* const block = page_map.find_containing(address);
  Segment* segment = block->segment;
  if (segment->mapped && !segment->tainted) segment = isolate_block_locked(block, space);
  if (segment->tainted.exchange(true, std::memory_order_seq_cst)) return false;
  tainted_.fetch_add(segment->bytes, std::memory_order_relaxed);
  for (Range* range = segment->lowest(); range != nullptr; range = range->after) {
    if (range->use == Use::kTaken) {
      set_mark_bit(range->tag);
      slabs.close(range);
      continue;
    }
    if (range->use == Use::kPending) range->unlink();
    if (range->use == Use::kFree) bins_.remove(range);
    range->use = Use::kFree;
    free_.store(free_bytes() - range->bytes, std::memory_order_relaxed);
    if (range->before != nullptr && range->before->use == Use::kFree) {
      range = range->before;
      absorb_next_locked(range);
    }
  }
  return true;
}

}  // namespace cupool::pool
