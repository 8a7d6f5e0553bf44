// See ranges.hpp. What only mapped segments do is in ranges_mapped.cpp.
#include "pool/ranges.hpp"

#include <algorithm>

#include "pool/page_map.hpp"
#include "pool/slabs.hpp"

namespace cupool::pool {

Range* Ranges::take(uint64_t bytes, const order::Timeline& order, order::Reach reach, order::LaneName sole,
                    Cut cut, Where where) {
  Guard hold(lock_);
  // Read under the lock, not before: a thread that gave a range back has noted its work first.
  const Epoch limit = order.limit(reach);
  Range* const range = table_.find({bytes, reach, limit, sole, cut, where}, order);
  if (range == nullptr) return nullptr;
  table_.unlist(range);
  if (limit == kAnyStamp) range->stamp = 0;
  table_.cut_off(range, bytes, order);
  hand_out_locked(range);
  return range;
}

bool Ranges::fits(uint64_t bytes) {
  Guard hold(lock_);
  return table_.fits(bytes);
}

uint64_t Ranges::best_fit_bytes(uint64_t bytes) {
  Guard hold(lock_);
  return table_.best_fit_bytes(bytes);
}

bool Ranges::fits_in_spared(uint64_t bytes) {
  Guard hold(lock_);
  return table_.fits_in_spared(bytes);
}

bool Ranges::has_run(uint64_t bytes) {
  if (bytes_.free() < bytes) return false;
  Guard hold(lock_);
  return table_.has_run(bytes);
}

bool Ranges::has_unfinished(Epoch done) {
  Guard hold(lock_);
  if (table_.latest() > done) return true;
  if (bytes_.tainted() == 0) return false;
  // What is tainted is in no list.
  for (const Segment* segment = first_segment(); segment != nullptr; segment = segment->next) {
    if (!segment->tainted.load(std::memory_order_relaxed)) continue;
    for (const Range* range = segment->lowest(); range != nullptr; range = range->after) {
      if (range->use != Use::kTaken && range->stamp > done) return true;
    }
  }
  return false;
}

void Ranges::hand_out_locked(Range* range) {
  range->use = Use::kTaken;
  bytes_.add_taken(range->bytes);
  Segment* const segment = range->segment.load(std::memory_order_relaxed);
  segment->idle_since = 0;
  if (!segment->mapped && segment->taken++ == 0) idle_.remove(segment);
  bytes_.remove_free(range->bytes);
  bytes_.note_peak();
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
  range->set_idle_since(0);
  bytes_.remove_taken(range->bytes);
  // Of a tainted segment only the driver gets it, and its free waits.
  Segment* const segment = range->segment.load(std::memory_order_relaxed);
  const bool is_tainted = segment->tainted.load(std::memory_order_relaxed);
  if (!is_tainted) bytes_.add_free(range->bytes);
  if (!segment->mapped && --segment->taken == 0 && !is_tainted) idle_.add(segment);
  if (is_tainted || range->stamp <= order.cheap()) {
    table_.merge(range);
    if (is_tainted && segment->is_free()) ripe_.add(segment);
  } else {
    table_.list_pending(range);
  }
}

Range* Ranges::add(Address start, uint64_t bytes, uint64_t bytes_taken, From from, Epoch stamp,
                   order::LaneName sole) {
  Guard hold(lock_);
  const bool is_small = from == From::kDriverForSmall;
  Range* const range = table_.add(start, bytes, {from == From::kMapped, is_small});
  if (range == nullptr) return nullptr;
  range->stamp = stamp;
  range->sole = sole;
  bytes_.add_reserved(bytes, is_small);
  bytes_.add_free(bytes);
  if (from != From::kMapped) idle_.add(range->segment);
  if (bytes_taken == 0) {
    table_.list_free(range);
  } else {
    if (Range* rest = table_.cut(range, bytes_taken)) table_.list_free(rest);
    hand_out_locked(range);
  }
  if (from == From::kMapped) table_.join_neighbours(range->segment);
  return range;
}

Segment* Ranges::detach() {
  Guard hold(lock_);
  return detach_first_locked(kAnyStamp);
}

// The limit is read under the lock, as in take().
Segment* Ranges::detach_done(const order::Timeline& order) {
  Guard hold(lock_);
  return detach_first_locked(order::kDoneGoes ? order.done() : kAnyStamp);
}

Segment* Ranges::detach_first_locked(Epoch limit) {
  if (!has_driver_segments()) return nullptr;
  table_.drain(limit);
  Segment* const segment =
      idle_.first([limit](const Segment& one) { return one.is_free() && one.lowest()->stamp <= limit; });
  return segment == nullptr ? nullptr : detach_free_locked(segment);
}

Segment* Ranges::detach_idle(uint64_t now_ms, uint64_t idle_ms, const order::Timeline& order) {
  Guard hold(lock_);
  if (!has_driver_segments()) return nullptr;
  table_.drain(order.cheap());
  Segment* const segment = idle_.first([=](Segment& one) {
    if (!one.is_free()) return false;
    if (one.idle_since == 0) one.idle_since = now_ms;
    return now_ms - one.idle_since >= idle_ms;
  });
  return segment == nullptr ? nullptr : detach_free_locked(segment);
}

// What is mapped goes once its work is done.
Segment* Ranges::detach_tainted(const order::Timeline& order, bool may_wait) {
  Guard hold(lock_);
  Segment* segment = may_wait ? ripe_.oldest(false) : nullptr;
  if (segment == nullptr) {
    segment = ripe_.oldest(true);
    if (segment == nullptr || segment->lowest()->stamp > order.done()) return nullptr;
  }
  ripe_.remove(segment);
  return detach_locked(segment);
}

// A segment whose only range is in a list of free ones.
Segment* Ranges::detach_free_locked(Segment* segment) {
  table_.unlist(segment->lowest());
  bytes_.remove_free(segment->bytes);
  return detach_locked(segment);
}

Segment* Ranges::detach_locked(Segment* segment) {
  table_.unlist(segment);
  if (segment->tainted) bytes_.remove_tainted(segment->bytes);
  if (!segment->tainted && !segment->mapped) idle_.remove(segment);
  bytes_.remove_reserved(segment->bytes, segment->small);
  page_map.remove(segment->start, segment->bytes);
  return segment;
}

void Ranges::forget(Segment* segment) {
  Guard hold(lock_);
  table_.forget(segment);
}

void Ranges::drop_all(Slabs& slabs) {
  Guard hold(lock_);
  for (const Segment* segment = first_segment(); segment != nullptr; segment = segment->next) {
    for (Range* range = segment->lowest(); range != nullptr; range = range->after) slabs.drop(range);
  }
  table_.drop_all();
  idle_.clear();
  ripe_.clear();
  bytes_.clear();
}

uint64_t Ranges::largest_free(bool wait) CUPOOL_NO_THREAD_SAFETY_ANALYSIS {
  if (!(wait ? lock_.try_lock_for_a_moment() : lock_.try_lock())) return 0;
  const uint64_t largest = table_.largest();
  lock_.unlock();
  return largest;
}

Ranges::Figures Ranges::figures() {
  Guard hold(lock_);
  Figures figures;
  figures.reserved = bytes_.reserved();
  figures.free = bytes_.free();
  figures.largest_free = table_.largest_in_bins();
  for (const Segment* segment = first_segment(); segment != nullptr; segment = segment->next) {
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
  if (segment->mapped && !segment->tainted) segment = table_.isolate_block(block, space);
  if (segment->tainted.exchange(true, std::memory_order_seq_cst)) return false;
  bytes_.add_tainted(segment->bytes);
  if (!segment->mapped && segment->taken == 0) idle_.remove(segment);
  for (Range* range = segment->lowest(); range != nullptr; range = range->after) {
    if (range->use == Use::kTaken) {
      set_mark_bit(range->tag);
      slabs.close(range);
      continue;
    }
    bytes_.remove_free(range->bytes);
    range = table_.close_free(range);
  }
  table_.list_last(segment);
  // The block may have been freed since the caller looked.
  if (segment->is_free()) ripe_.add(segment);
  return true;
}

}  // namespace cupool::pool
