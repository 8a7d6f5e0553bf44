// See search.hpp. What lies free, now or after a look at the work that is done; search_grow.cpp goes on where
// nothing does.
#include "pool/search.hpp"

#include <algorithm>
#include <array>

#include "base/reentry.hpp"
#include "pool/pool.hpp"
#include "stats/device.hpp"

namespace cupool::pool {

using driver::kOutOfMemory;
using growth::is_small;

Search::Search(Pool& pool, ThreadCache& cache, unsigned size_class, uint64_t bytes,
               allocator::Short when_short)
    : pool_(pool),
      cache_(cache),
      order_(pool.order()),
      size_class_(size_class),
      asked_(bytes),
      wants_slab_(pool.sizes().is_small(size_class)),
      range_class_(wants_slab_ ? kNotKept : size_class),
      when_short_(when_short) {}

Ranges& Search::ranges() const { return pool_.ranges(); }

bool Search::run() {
  constexpr size_t kFewAsked = 4;
  pool_.give_reached(kFewAsked);
  cache_.shelves().use_fine(pool_.blocks().fine().in_use());
  if (!(wants_slab_ ? find_small() : find_large())) return false;
  stats::last_service = {static_cast<stats::Service::How>(how_), stats::Service::By::kPool};
  using enum stats::DeviceCounter;
  if (how_ == How::kSlab) cache_.tally().add(slab_hits);
  if (how_ == How::kRange) cache_.tally().add(range_hits);
  if (how_ == How::kAfterWait) cache_.tally().add(hits_after_wait);
  if (how_ == How::kMiss) cache_.tally().add(misses);
  return true;
}

// ---- Small blocks.

// Cheapest first: the thread's own, a slab with room, blocks whose work is done by now, blocks that streams
// must wait for (if the thread keeps many), a new slab.
bool Search::find_small() {
  if (fetch_small()) return true;
  if (!order().is_idle() && !order().is_capturing()) {
    order().advance_for_reuse();
    const bool hit =
        fetch_small() || (pool_.caches().keeps_many(cache_, size_class_) && fetch_small_reached());
    if (hit) {
      how_ = How::kAfterWait;
      return true;
    }
  }
  pool_.blocks().note_missed(size_class_, asked_);
  Slabs& slabs = pool_.blocks().slabs();
  bytes_ = slabs.slab_bytes(size_class_);
  Range* range = find_range();
  // No room for a slab, but another thread may have freed a block meanwhile.
  if (range == nullptr) return has_small_ || fetch_wanted();
  std::array<Entry, Shelves::kMostMoved> entries;
  pool_.caches().enter_to_put(cache_);
  const size_t wanted = std::min<size_t>(cache_.shelves().batch(size_class_), entries.size());
  cache_.exit();
  const size_t taken = slabs.add(size_class_, range, wanted, entries.data());
  if (taken == 0) {
    pool_.blocks().give_range(range, range->stamp);
    request_.status = kOutOfMemory;
    return false;
  }
  found_ = entries[0];
  pool_.caches().enter_to_put(cache_);
  cache_.shelves().put_oldest(size_class_, entries.data() + 1, taken - 1);
  cache_.exit();
  return true;
}

bool Search::fetch_small() {
  how_ = How::kThread;
  cache_.enter();
  const bool hit = cache_.shelves().take(size_class_, cache_.order().limit(request_.reach), &found_);
  cache_.exit();
  if (hit) return true;
  std::array<Entry, Shelves::kMostMoved> entries;
  pool_.caches().enter_to_put(cache_);
  const size_t wanted = std::min<size_t>(cache_.shelves().batch(size_class_), entries.size());
  cache_.exit();
  const size_t taken =
      pool_.blocks().slabs().take(size_class_, wanted, order(), request_.reach, entries.data());
  if (taken == 0) return false;
  found_ = entries[0];
  pool_.caches().enter_to_put(cache_);
  cache_.shelves().put_oldest(size_class_, entries.data() + 1, taken - 1);
  cache_.exit();
  how_ = How::kSlab;
  return true;
}

bool Search::fetch_small_reached() {
  if (!order().reach()) return false;
  request_.reach = order::Reach::kAll;
  return fetch_small();
}

// When there is no memory for a slab: a block that has been freed by now, or that streams must wait for.
bool Search::fetch_wanted() {
  if (!wants_slab_) return false;
  has_small_ = fetch_small() || fetch_small_reached();
  return has_small_;
}

// ---- Ranges.

bool Search::find_large() {
  const SizeClasses& sizes = pool_.sizes();
  if (asked_ > stats::kMostBytes) {
    request_.status = kOutOfMemory;
    return false;
  }
  bytes_ = sizes.rounded(asked_);
  const bool is_kept = size_class_ != kNotKept;
  if (!is_kept && order().turns().now() != 0)
    request_.lane = pool_.search_memory().guess_lane(bytes_, order());
  if (take_after_wait()) {
    how_ = How::kAfterWait;
    return true;
  }
  pool_.blocks().note_missed(size_class_, asked_);
  Range* range = find_range();
  if (range == nullptr) return false;
  // If there was no host memory for the remainder's record, the block is larger than its class.
  const bool fits = !is_kept || range->bytes == sizes.bytes(size_class_);
  range->size_class.store(static_cast<uint8_t>(fits ? size_class_ : kNotKept), std::memory_order_relaxed);
  const Address first_use = range->new_bytes() != 0 ? Entry::kFirstUse : 0;
  range->block_bytes.store(static_cast<uint32_t>(range->bytes), std::memory_order_relaxed);
  if (!is_kept) {
    cache_.large().note_taken(range);
    cache_.enter();
    cache_.shelves().keep_few_ranges();
    cache_.exit();
  }
  found_ = {range->start | first_use, range, range->stamp, range->tags};
  // If a single lane did the block's old work, all other lanes wait for it.
  if (!is_kept && order().is_spread() && range->sole != order::LaneName::kNone) {
    order().lean_on(range->stamp, range->start, range->sole);
    found_.stamp = 0;
  }
  // Also for a block larger than its class: the free goes by the range's own class.
  range->stamp = order().turns().now();
  return true;
}

// The thread keeps blocks of this class, but none may be handed out yet: polls whether the work of one is
// done by now.
bool Search::take_after_wait() {
  if (order().is_idle() || order().is_capturing() || !ThreadCaches::keeps(cache_, size_class_)) return false;
  order().advance_for_reuse();
  cache_.enter();
  bool hit = cache_.shelves().take(size_class_, cache_.order().limit(order::Reach::kCheap), &found_);
  cache_.exit();
  if (hit || !pool_.caches().keeps_many(cache_, size_class_) || !order().reach()) return hit;
  cache_.enter();
  hit = cache_.shelves().take(size_class_, cache_.order().limit(order::Reach::kAll), &found_);
  cache_.exit();
  return hit;
}

// During a capture the pool cannot grow, so any segment will do.
Ranges::Where Search::where() const {
  if (is_anywhere_ || order().is_capturing()) return Ranges::Where::kAnywhere;
  return wants_slab_ && !pool_.segments().can_move() ? Ranges::Where::kSmall : Ranges::Where::kLarge;
}

Range* Search::take_range(How how, Ranges::Cut cut) {
  how_ = how;
  return ranges().take(bytes_, order(), request_.reach, request_.lane, cut, where());
}

// A range that may be handed out, now or after making room.
Range* Search::find_range() {
  ThreadCaches& caches = pool_.caches();
  caches.merge_large(cache_);
  // What another thread keeps may fit better than what would be cut.
  if (bytes_ >= growth::kLarge && caches.is_time_to_collect()) {
    if (Range* range = take_range(How::kRange, Ranges::Cut::kNever)) return range;
    caches.collect_large(bytes_, request_.lane);
  }
  if (Range* range = find_in_crowd()) return range;
  if (Range* range = replace_segment()) return range;
  if (may_spare_segments()) {
    if (Range* range = take_range(How::kRange, Ranges::Cut::kSpareSegments)) return range;
    if (Range* range = spare_segment()) return range;
  }
  if (Range* range = take_range(How::kRange)) return range;
  return make_range();
}

// Where streams take turns, more memory serves them first.
bool Search::may_spare_segments() const {
  return !is_for_small() && order().turns().now() == 0 && !pool_.segments().can_move() &&
         !order().is_capturing();
}

// See growth::spare_bytes(). The block gets a segment beside the free one that it would be cut from.
Range* Search::spare_segment() {
  const uint64_t bytes = growth::spare_bytes(pool_.settings(), pool_.growth().figures(), bytes_);
  if (bytes == 0 || !ranges().fits_in_spared(bytes_)) return nullptr;
  Range* const range = add_segment(bytes);
  pool_.segments().note_answer(request_.status);
  return range;
}

// See growth::is_crowded(). A block that finds no place gets a segment of its own size; if need be, what is
// free goes back before.
Range* Search::find_in_crowd() {
  if (wants_slab_ || pool_.segments().can_move() || order().is_capturing()) return nullptr;
  const growth::Figures figures = pool_.growth().figures();
  if (!growth::is_crowded(figures, bytes_)) return nullptr;
  const bool has_many_holes = growth::has_many_holes(figures);
  if (is_for_small() && !has_many_holes) return nullptr;
  const auto cut = has_many_holes ? Ranges::Cut::kNotHoldingWhole : Ranges::Cut::kNotHolding;
  if (Range* range = take_range(How::kRange, cut)) return range;
  // What fits once its work is done needs no new memory, unless streams take turns: more serves them first.
  const bool is_pending = !order().is_idle() && order().turns().now() == 0;
  if (is_pending && !has_many_holes && ranges().fits(bytes_)) return nullptr;
  const uint64_t wanted = pool_.segments().bytes_for(bytes_, is_for_small());
  // What the device has not, or has refused, is not asked for.
  const uint64_t most = figures.full_at != 0 ? figures.full_at : figures.most;
  const bool asks_first = (figures.full_at == 0 || is_for_small()) && figures.reserved + wanted <= most;
  if (asks_first) {
    Range* const range = add_segment(wanted);
    pool_.segments().note_answer(request_.status);
    if (range != nullptr) return range;
  }
  if (is_for_small()) return nullptr;
  if (pool_.caches().is_time_to_empty(bytes_)) pool_.caches().empty_all();
  if (release_for_growth() == 0 && asks_first) return nullptr;
  return ranges().bytes().reserved() + wanted <= most ? add_segment(wanted) : nullptr;
}

// See growth::should_replace(). Free segments go back, and the block gets what it needs.
Range* Search::replace_segment() {
  if (is_for_small() || pool_.segments().can_move() || order().is_capturing()) return nullptr;
  const growth::Figures figures = pool_.growth().figures();
  if (!growth::is_nearly_full(figures, bytes_)) return nullptr;
  if (!growth::should_replace(figures, bytes_, ranges().best_fit_bytes(bytes_))) return nullptr;
  pool_.caches().empty_all();
  if (release_for_growth() == 0) return nullptr;
  return add_segment(round_up(bytes_, kPageBytes));
}

// A range from the thread's cache, or from the shared ranges.
Range* Search::take_kept_range() {
  if (range_class_ != kNotKept) {
    Entry entry;
    cache_.enter();
    const bool hit = cache_.shelves().take(range_class_, cache_.order().limit(request_.reach), &entry);
    cache_.exit();
    how_ = How::kAfterWait;
    if (hit) {
      entry.range->stamp = entry.stamp;
      return entry.range;
    }
  }
  return take_range(How::kAfterWait);
}

// No range may be handed out now: tries time first (pending ranges), then room.
Range* Search::make_range() {
  if (!order().is_idle() && !order().is_capturing()) {
    order().advance_for_reuse();
    if (Range* range = take_kept_range()) return range;
    if (order().is_spread()) {
      if (Range* range = make_range_for_lane()) return range;
    }
  }
  cache_.enter();
  cache_.shelves().keep_fewer_ranges();
  cache_.exit();
  pool_.caches().evict_ranges(cache_);
  if (Range* range = take_range(How::kRange)) return range;
  if (pool_.caches().is_time_to_empty(bytes_)) {
    pool_.caches().empty_all();
    if (Range* range = take_range(How::kRange)) return range;
  }
  note_want_of_seal();
  // A slab needs little, and what lies free in large segments will be needed again.
  const uint64_t freed = where() == Ranges::Where::kSmall ? 0 : release_for_growth();
  const bool shares = is_for_small() || !growth::is_nearly_full(pool_.growth().figures(), freed);
  if (freed > 0 && shares && pool_.growth().thrashes()) {
    // Segments that come and go all the time are better replaced by one large segment. Beyond half of the
    // device a rest of it would be missed.
    const uint64_t half = pool_.growth().figures().most / 2;
    uint64_t most = std::min({freed, half, growth::largest_split(pool_.settings(), bytes_)});
    if (freed > half) most -= most % round_up(bytes_, kPageBytes);
    const uint64_t wanted = pool_.segments().bytes_for(bytes_, is_for_small());
    if (Range* range = add_segment(std::max(wanted, most))) return range;
  }
  if (Range* range = take_after_growth()) return range;
  return grow();
}

// There is a place, but its work has no seal, and a new segment would have less room than may lie without
// one. (Frees are told what was asked for. Where a seal is a wait on the host, none is made for this.)
void Search::note_want_of_seal() {
  if (order().is_idle() || wants_slab_ || !order().has_context_events() || !ranges().fits(bytes_)) return;
  if (pool_.segments().bytes_for(bytes_, is_for_small()) <= pool_.most_unsealed(bytes_))
    pool_.segments().eager_seals().note_want(bytes_ / 2);
}

// A segment that another thread is just asking for has room for more than one small block. Threads that come
// by the hundred would else take a segment each as soon as the driver is slow.
Range* Search::take_after_growth() {
  constexpr int kMostTimes = 64;
  constexpr int kMostInVain = 10;
  if ((!is_for_small() && bytes_ > kPageBytes / 2) || order().is_capturing()) return nullptr;
  const SearchMemory& memory = pool_.search_memory();
  for (int i = 0, in_vain = 0; i < kMostTimes; ++i) {
    if (!memory.wait_for_growth() && (!memory.are_many_growing() || ++in_vain > kMostInVain)) return nullptr;
    if (Range* range = take_range(How::kRange)) return range;
  }
  return nullptr;
}

// Several lanes are at work and nothing is done that fits well: first a range of the expected lane's own,
// then more memory within the budget, then a range that a lane must wait for.
Range* Search::make_range_for_lane() {
  if (Range* range = take_own_range()) return range;
  const bool can_move = pool_.segments().can_move() && !is_small(bytes_);
  // To wait for the last work on a very large block takes long. Memory that can move when a larger block
  // finds no place may as well be cut for it.
  if (can_move && bytes_ >= growth::kVeryLarge) {
    if (Range* range = take_range(How::kAfterWait, Ranges::Cut::kAlways)) {
      order().note_avoided_wait();
      return range;
    }
  }
  // Would waiting help? For small ranges assume so: other threads' caches may have one. Where it would not,
  // memory that can would have to move, again and again if the program repeats itself.
  const bool fits = is_small(bytes_) || can_move || ranges().fits(bytes_);
  const bool is_close = can_move && growth::may_exceed(pool_.growth().figures(), bytes_);
  if (fits && (is_close || pool_.growth().may_spread(bytes_))) {
    if (!is_small(bytes_) && pool_.caches().is_time_to_empty(bytes_)) {
      pool_.caches().empty_all();
      if (Range* range = take_range(How::kAfterWait)) return range;
      if (Range* range = take_own_range()) return range;
    }
    if (Range* range = take_after_growth()) return range;
    const uint64_t segment =
        is_small(bytes_) ? pool_.segments().bytes_for(bytes_, true) : round_up(bytes_, kPageBytes);
    request_.wants_new = !is_close;
    Range* const range = add_segment(segment);
    request_.wants_new = false;
    pool_.segments().note_answer(request_.status);
    // What is refused counts, too: a full device is not asked again for every block.
    if (!is_close) pool_.growth().add_spread(segment);
    if (range != nullptr) return range;
  }
  if (!order().reach()) return nullptr;
  request_.reach = order::Reach::kAll;
  return take_kept_range();
}

Range* Search::take_own_range() {
  if (request_.lane == order::LaneName::kNone || !order().reach()) return nullptr;
  request_.reach = order::Reach::kOwn;
  Range* const range = take_range(How::kAfterWait);
  if (range == nullptr) request_.reach = order::Reach::kCheap;
  return range;
}

}  // namespace cupool::pool
