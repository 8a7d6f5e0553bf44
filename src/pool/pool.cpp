// Slow path of an allocation that the thread's cache could not serve: slabs, ranges, waiting, the driver,
// cheapest first; and how large the next segment is (segment_bytes). Each part takes its own lock; no pool
// lock is held across a call of the driver.
#include "pool/pool.hpp"

#include <sched.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <new>

#include "base/all_threads.hpp"
#include "base/reentry.hpp"
#include "order/idle_moment.hpp"
#include "pool/page_map.hpp"
#include "report/shortage.hpp"
#include "stats/device.hpp"
#include "upstream/retry.hpp"

namespace cupool::pool {

using driver::kOutOfMemory;
using driver::kSuccess;

namespace {

// Small blocks share small segments.
bool is_small(uint64_t bytes) { return bytes <= SizeClasses::kLargestKept; }

constexpr uint64_t kLarge = 10 << 20;

}  // namespace

Pool::Pool(driver::Context context, int device, uint64_t device_bytes, driver::Driver& driver,
           driver::Mapping* mapping, order::Timeline& order, InFlight& in_flight)
    : context_(context),
      device_(device),
      stats_(stats::device(device)),
      device_bytes_(device_bytes),
      order_(&order),
      settings_(Settings::from(config::options(), device_bytes)),
      upstream_(driver, device, settings_.limit),
      in_flight_(in_flight),
      sizes_(settings_.min_block, settings_.small_limit, settings_.large_round),
      slabs_(sizes_),
      ranges_(this, stats_),
      space_(mapping, upstream_, device_bytes) {
  ranges_.set_split_limit(settings_.split_max);
  set_max_cached(settings_.max_cached);
}

void Pool::set_max_cached(uint64_t bytes) {
  max_cached_.store(bytes, std::memory_order_relaxed);
  const bool keeps = settings_.thread_cache != 0 && bytes > ThreadCache::kLargestKept;
  most_kept_large_.store(keeps ? ThreadCache::kLargestKept : 0, std::memory_order_relaxed);
}

Status Pool::find_block(ThreadCache& cache, unsigned size_class, uint64_t bytes, Short when_short,
                        Entry* out) {
  constexpr size_t kFewAsked = 4;
  if (ordered_frees_.any()) give_reached(kFewAsked);
  Search search{.when_short = when_short};
  const bool found = sizes_.is_small(size_class) ? find_small(cache, size_class, out, &search)
                                                 : find_large(cache, size_class, bytes, out, &search);
  if (!found) {
    return search.status;
  }
  using enum stats::DeviceCounter;
  if (search.how == How::kSlab) cache.tally().add(slab_hits);
  if (search.how == How::kRange) cache.tally().add(range_hits);
  if (search.how == How::kAfterWait) cache.tally().add(hits_after_wait);
  if (search.how == How::kMiss) cache.tally().add(misses);
  return kSuccess;
}

void Pool::note_failure(uint64_t bytes) {
  stats_.count(stats::DeviceCounter::out_of_memory);
  // A request larger than the device is not reported as a shortage.
  if (bytes <= device_bytes_ && report::shortage_is_due()) report_shortage(bytes);
}

bool Pool::keeps(ThreadCache& cache, unsigned size_class) {
  if (size_class == kNotKept) return false;
  cache.enter();
  const bool any = cache.shelf(size_class).count != 0;
  cache.exit();
  return any;
}

// Whether the thread keeps so many blocks of a class that waiting for the oldest beats taking more memory.
bool Pool::keeps_many(ThreadCache& cache, unsigned size_class) {
  cache.enter();
  const Shelf& shelf = cache.shelf(size_class);
  const bool many = shelf.count != 0 && shelf.count >= shelf.room / 2;
  cache.exit();
  return many && order().reuse() != order::Reuse::kCompleted && !may_spread(sizes_.bytes(size_class));
}

// The thread keeps blocks of this class, but none may be handed out yet: polls whether the work of one is
// done by now.
bool Pool::take_after_wait(ThreadCache& cache, unsigned size_class, Entry* out) {
  if (order().is_idle() || order().is_capturing() || !keeps(cache, size_class)) return false;
  order().advance_for_reuse();
  cache.enter();
  bool hit = cache.take(size_class, order::Reach::kCheap, out);
  cache.exit();
  if (hit || !keeps_many(cache, size_class) || !order().reach()) return hit;
  cache.enter();
  hit = cache.take(size_class, order::Reach::kAll, out);
  cache.exit();
  return hit;
}

void Pool::merge_large(ThreadCache& cache) {
  cache.enter();
  const Entry large = cache.large().swap({});
  cache.exit();
  if (large.range != nullptr) give_large(large);
}

inline Range* Pool::take_range(uint64_t bytes, How how, Search* search, Ranges::Cut cut) {
  search->how = how;
  return ranges_.take(bytes, order(), search->reach, search->lane, cut);
}

// A range of `bytes` that may be handed out, now or after making room.
inline Range* Pool::find_range(ThreadCache& cache, unsigned size_class, uint64_t bytes, Search* search) {
  merge_large(cache);
  // What another thread keeps may fit better than what would be cut.
  if (bytes >= kLarge && threads_.load(std::memory_order_relaxed) > 1) {
    const uint32_t left = collects_to_skip_.load(std::memory_order_relaxed);
    if (left != 0) {
      collects_to_skip_.store(left - 1, std::memory_order_relaxed);
    } else {
      if (Range* range = take_range(bytes, How::kRange, search, Ranges::Cut::kNever)) return range;
      collect_large(bytes, search->lane);
    }
  }
  if (Range* range = take_range(bytes, How::kRange, search)) return range;
  return make_range(cache, size_class, bytes, search);
}

// On contention this thread just goes without a guess.
order::LaneName Pool::guess_lane(uint64_t bytes) {
  const order::Turns::Present present = order().turns().present();
  if (!guess_lock_.try_lock()) return present.name;
  const order::LaneName guess = guess_.guess(bytes, present, Reentry::work_mark());
  guess_lock_.unlock();
  if (guess != present.name) order().leave_turn_open();
  return guess;
}

bool Pool::find_large(ThreadCache& cache, unsigned size_class, uint64_t bytes, Entry* out, Search* search) {
  if (bytes > stats::kMostBytes) {
    search->status = kOutOfMemory;
    return false;
  }
  if (size_class == kNotKept && order().turns().now() != 0) search->lane = guess_lane(sizes_.rounded(bytes));
  if (take_after_wait(cache, size_class, out)) {
    search->how = How::kAfterWait;
    return true;
  }
  Range* range = find_range(cache, size_class, sizes_.rounded(bytes), search);
  if (range == nullptr) return false;
  // If there was no host memory for the remainder's record, the block is larger than its class.
  const bool fits = size_class == kNotKept || range->bytes == sizes_.bytes(size_class);
  range->size_class.store(static_cast<uint8_t>(fits ? size_class : kNotKept), std::memory_order_relaxed);
  range->block_bytes.store(static_cast<uint32_t>(range->bytes), std::memory_order_relaxed);
  if (size_class == kNotKept) {
    cache.large().note_taken(range);
    cache.enter();
    cache.keep_few_ranges();
    cache.exit();
  }
  *out = {range->start, range, range->stamp, range->tags};
  // If a single lane did the block's old work, all other lanes wait for it.
  if (size_class == kNotKept && order().is_spread() && range->sole != order::LaneName::kNone) {
    order().lean_on(range->stamp, range->start, range->sole);
    out->stamp = 0;
  }
  // Also for a block larger than its class: the free goes by the range's own class.
  range->stamp = order().turns().now();
  return true;
}

// Small blocks, cheapest first: the thread's own, a slab with room, blocks whose work is done by now, blocks
// that streams must wait for (if the thread keeps many), a new slab.
bool Pool::find_small(ThreadCache& cache, unsigned size_class, Entry* out, Search* search) {
  if (fetch_small(cache, size_class, out, search)) return true;
  if (!order().is_idle() && !order().is_capturing()) {
    order().advance_for_reuse();
    const bool hit = fetch_small(cache, size_class, out, search) ||
                     (keeps_many(cache, size_class) && fetch_small_reached(cache, size_class, out, search));
    if (hit) {
      search->how = How::kAfterWait;
      return true;
    }
  }
  search->small_class = size_class;
  search->cache = &cache;
  search->small = out;
  Range* range = find_range(cache, kNotKept, slabs_.slab_bytes(size_class), search);
  // No room for a slab, but another thread may have freed a block meanwhile.
  if (range == nullptr) return search->has_small || fetch_wanted(search);
  std::array<Entry, ThreadCache::kMostMoved> entries;
  cache.enter();
  const size_t wanted = std::min<size_t>(cache.batch(size_class), entries.size());
  cache.exit();
  const size_t taken = slabs_.add(size_class, range, wanted, entries.data());
  if (taken == 0) {
    give_range(range, range->stamp);
    search->status = kOutOfMemory;
    return false;
  }
  *out = entries[0];
  cache.enter();
  cache.put_oldest(size_class, entries.data() + 1, taken - 1);
  cache.exit();
  return true;
}

bool Pool::fetch_small_reached(ThreadCache& cache, unsigned size_class, Entry* out, Search* search) {
  if (!order().reach()) return false;
  search->reach = order::Reach::kAll;
  return fetch_small(cache, size_class, out, search);
}

// Where no slab can be had: a block that lies free by now, or that streams must wait for.
bool Pool::fetch_wanted(Search* search) {
  if (search->small_class == kNotKept) return false;
  search->has_small = fetch_small(*search->cache, search->small_class, search->small, search) ||
                      fetch_small_reached(*search->cache, search->small_class, search->small, search);
  return search->has_small;
}

bool Pool::fetch_small(ThreadCache& cache, unsigned size_class, Entry* out, Search* search) {
  search->how = How::kThread;
  cache.enter();
  const bool hit = cache.take(size_class, search->reach, out);
  cache.exit();
  if (hit) return true;
  std::array<Entry, ThreadCache::kMostMoved> entries;
  cache.enter();
  const size_t wanted = std::min<size_t>(cache.batch(size_class), entries.size());
  cache.exit();
  const size_t taken = slabs_.take(size_class, wanted, order(), search->reach, entries.data());
  if (taken == 0) return false;
  *out = entries[0];
  cache.enter();
  cache.put_oldest(size_class, entries.data() + 1, taken - 1);
  cache.exit();
  search->how = How::kSlab;
  return true;
}

// A range from the thread's cache, or from the shared ranges.
Range* Pool::take_kept_range(ThreadCache& cache, unsigned size_class, uint64_t bytes, Search* search) {
  if (size_class != kNotKept) {
    Entry entry;
    cache.enter();
    const bool hit = cache.take(size_class, search->reach, &entry);
    cache.exit();
    search->how = How::kAfterWait;
    if (hit) {
      entry.range->stamp = entry.stamp;
      return entry.range;
    }
  }
  return take_range(bytes, How::kAfterWait, search);
}

// No range may be handed out now: tries time first (pending ranges), then room.
Range* Pool::make_range(ThreadCache& cache, unsigned size_class, uint64_t bytes, Search* search) {
  if (!order().is_idle() && !order().is_capturing()) {
    order().advance_for_reuse();
    if (Range* range = take_kept_range(cache, size_class, bytes, search)) return range;
    if (order().is_spread()) {
      if (Range* range = make_range_for_lane(cache, size_class, bytes, search)) return range;
    }
  }
  cache.enter();
  cache.keep_fewer_ranges();
  cache.exit();
  spill_ranges(cache);
  if (Range* range = take_range(bytes, How::kRange, search)) return range;
  empty_thread_caches();
  if (Range* range = take_range(bytes, How::kRange, search)) return range;
  const uint64_t freed = release_for_growth(cache);
  const bool thrashes = freed > 0 && released_segments_.load(std::memory_order_relaxed) * 5 >
                                         allocated_segments_.load(std::memory_order_relaxed) * 2 + 20;
  if (thrashes) {
    // Segments that come and go all the time are better replaced by one large segment.
    const uint64_t most = std::min(freed, largest_split(bytes));
    if (Range* range = add_segment(std::max(segment_bytes(bytes), most), bytes, search)) return range;
  }
  return grow(bytes, search);
}

// Several lanes are at work and nothing is done that fits well: first a range of the expected lane's own,
// then more memory within the budget, then a range that a lane must wait for.
Range* Pool::make_range_for_lane(ThreadCache& cache, unsigned size_class, uint64_t bytes, Search* search) {
  if (Range* range = take_own_range(bytes, search)) return range;
  const bool is_mapped = space_.serves() && !is_small(bytes);
  // To wait for the last work on a very large block takes long. Mapped memory may as well be cut for it: it
  // can move when a larger block finds no place.
  if (is_mapped && bytes >= kVeryLarge) {
    if (Range* range = take_range(bytes, How::kAfterWait, search, Ranges::Cut::kAlways)) {
      order().note_avoided_wait();
      return range;
    }
  }
  // Would waiting help? For small ranges assume so: other threads' caches may have one. Where it would not,
  // mapped memory would have to move, again and again if the program repeats itself.
  const bool fits = is_small(bytes) || is_mapped || ranges_.fits(bytes);
  const bool is_close = is_mapped && may_exceed(bytes);
  if (fits && (is_close || may_spread(bytes))) {
    if (!is_small(bytes)) {
      empty_thread_caches();
      if (Range* range = take_range(bytes, How::kAfterWait, search)) return range;
      if (Range* range = take_own_range(bytes, search)) return range;
    }
    const uint64_t segment = is_small(bytes) ? segment_bytes(bytes) : round_up(bytes, kPageBytes);
    search->wants_new = !is_close;
    Range* const range = add_segment(segment, bytes, search);
    search->wants_new = false;
    note_answer(search->status);
    // What is refused counts, too: a full device is not asked again for every block.
    if (!is_close) spread_.fetch_add(segment, std::memory_order_relaxed);
    if (range != nullptr) return range;
  }
  if (!order().reach()) return nullptr;
  search->reach = order::Reach::kAll;
  return take_kept_range(cache, size_class, bytes, search);
}

Range* Pool::take_own_range(uint64_t bytes, Search* search) {
  if (search->lane == order::LaneName::kNone || !order().reach()) return nullptr;
  search->reach = order::Reach::kOwn;
  Range* const range = take_range(bytes, How::kAfterWait, search);
  if (range == nullptr) search->reach = order::Reach::kCheap;
  return range;
}

// Releases free but unsuitable segments before growing, to keep the footprint low: those whose work is done.
// If nothing is pending beyond what this thread's last free would have waited for, that is waited for first.
// But not for long, and if once in vain then never again: since that free the thread may have taken a lock
// that the work needs.
uint64_t Pool::release_for_growth(ThreadCache& cache) {
  constexpr uint64_t kMostNs = 250'000'000;
  if (!ranges_.has_driver_segments() || ranges_.free_bytes() == 0 || order().is_capturing()) return 0;
  // Not behind a closed gate: see keep_events().
  order().keep_events();
  if (!order().is_idle() && waits_to_grow_.load(std::memory_order_relaxed) && is_all_before_last_free(cache))
    waits_to_grow_.store(order().wait_for_seals(kMostNs), std::memory_order_relaxed);
  if (order().is_idle()) {
    const order::IdleMoment moment(order(), false);
    if (moment.has_come()) return release_free_segments(0);
  }
  return release_done();
}

// A free that needed no seal has not made its thread known. If it was the only thread's, and nothing was
// submitted since, a seal now covers the same work; another thread may be in its first submission, so the
// gate is closed, if the system can do that. Where submissions may go unseen, it is never known.
bool Pool::is_all_before_last_free(ThreadCache& cache) {
  if (order().reuse() != order::Reuse::kLean || order().has_gates() || !order().has_context_events())
    return false;
  if (!order().is_only_thread()) return order().is_all_before_last_free();
  const bool needs_gate = AllThreads::can_be_ordered();
  const order::SubmissionGate::Closing gate(needs_gate);
  if ((needs_gate && !gate.is_closed()) || !order().is_only_thread() || !cache.has_just_freed()) return false;
  order().seal_for_completion();
  return true;
}

// Where streams overlap, more memory may be taken while blocks with unfinished work lie idle, so that streams
// need not wait for each other. Streams that take turns get about what a cache per stream would take: for
// small blocks a segment of 2 MiB each, for larger ones a block each and, unless they are very large, one in
// transit. With more streams, which run side by side far ahead of the device, small blocks get all that the
// user allows.
bool Pool::may_spread(uint64_t bytes) {
  constexpr uint64_t kSmallShare = 2 << 20;
  constexpr uint64_t kShare = 20 << 20;
  constexpr uint64_t kPart = 3;
  constexpr size_t kTurns = 2;  // up to this many lanes take turns; more run side by side
  const size_t lanes = order().lanes_in_turns();
  const uint64_t spread = spread_.load(std::memory_order_relaxed);
  uint64_t most = settings_.many_budget;
  if (is_small(bytes)) {
    if (lanes <= kTurns) most = std::min(most, kSmallShare * lanes);
  } else {
    const uint64_t in_transit = bytes < kVeryLarge ? 1 : 0;
    const uint64_t blocks = lanes == 0 ? 0 : std::max(bytes, kShare) * (lanes + in_transit);
    most = std::min({most, blocks, std::max(needed() / kPart, kShare * lanes)});
  }
  return spread + bytes <= most;
}

// The largest segment that blocks of this size may be cut from: above the split limit the rest of it would
// serve none of them.
uint64_t Pool::largest_split(uint64_t need) const {
  return need > settings_.split_max ? ~uint64_t{0} : settings_.split_max & ~(kPageBytes - 1);
}

// The size of the next segment: exact for a large block, else growing slowly with what is reserved. A program
// that exports block after block loses a segment with each: what is lost does not make the next one larger,
// and the segment after a loss is as small as can be.
uint64_t Pool::segment_bytes(uint64_t need) const {
  if (space_.serves()) return run_bytes(need);
  constexpr uint64_t kFewBlocks = 3;
  constexpr uint64_t kRow = 2;
  const uint64_t exact = round_up(need, kPageBytes);
  if (need >= settings_.segment_exact || is_newly_tainted()) return exact;
  const uint64_t reserved = ranges_.usable();
  const double root = std::sqrt(static_cast<double>(reserved) * (4.5 * (1 << 20)));
  uint64_t wanted = std::max(settings_.segment_min, static_cast<uint64_t>(root));
  if (is_small(need)) wanted = std::min(wanted, std::max<uint64_t>(4 << 20, reserved / 16));
  wanted = std::min({wanted, settings_.segment_max, largest_split(need)}) & ~(kPageBytes - 1);
  // A segment for several large blocks holds a whole number of them, and so does every segment when blocks of
  // one size come in a row: the rest would serve none. Where streams take turns, existing blocks may soon be
  // free again, so make room for a few only.
  if (need >= kLarge && wanted >= kFewBlocks * exact) {
    wanted = order().turns().now() != 0 ? kFewBlocks * exact : wanted - wanted % exact;
  } else if (need >= kLarge && equal_segments_.load(std::memory_order_relaxed) >= kRow &&
             last_need_.load(std::memory_order_relaxed) == exact) {
    wanted -= wanted % exact;
  }
  return std::max(exact, wanted);
}

// Remembers how many segments in a row were taken for blocks of one size.
void Pool::note_need(uint64_t need) {
  const uint64_t exact = round_up(need, kPageBytes);
  const bool is_equal = last_need_.exchange(exact, std::memory_order_relaxed) == exact;
  equal_segments_.store(is_equal ? equal_segments_.load(std::memory_order_relaxed) + 1 : 1,
                        std::memory_order_relaxed);
}

// What frees would have waited for is waited for first. Where that is enough, nothing newer is: a kernel that
// was launched since then may wait for this thread.
Range* Pool::take_after_frees(uint64_t bytes, Search* search) {
  if (order().is_capturing() || search->status != kOutOfMemory) return nullptr;
  empty_thread_caches();
  const bool may_help = may_make_room(bytes, *search);
  if (may_help) order().wait_for_frees();
  Range* const range = take_range(bytes, How::kAfterWait, search);
  if (range != nullptr || fetch_wanted(search)) return range;
  // (Mapped memory moves instead.)
  const bool has_room = space_.serves() || (may_help && release_done() != 0);
  return has_room ? add_segment(round_up(bytes, kPageBytes), bytes, search) : nullptr;
}

// Whether so many bytes may be had by waiting for all work and giving all free memory back. The driver
// refuses at once what it does not have, and so does the pool.
bool Pool::may_make_room(uint64_t bytes, const Search& search) {
  if (search.small_class != kNotKept && slabs_.have_room(search.small_class)) return true;
  const bool is_time_missing = space_.has_left() || ranges_.has_unfinished(order().done());
  if (is_time_missing && ranges_.has_run(bytes)) return true;
  // Mapped memory that is done has been tried.
  if (!is_time_missing && !ranges_.has_driver_segments()) return false;
  const uint64_t exact = round_up(bytes, kPageBytes);
  const uint64_t most = most_releasable();
  if (most == 0 || !may_take(bytes)) return false;
  // Asked first: what is refused meanwhile is booked no more.
  if (!upstream::Limit::is_asking(device_) && upstream_.excess(bytes) > most) return false;
  return most >= exact || upstream_.driver().might_give(device_, exact - most);
}

// Asked when a segment is refused, which alone says little: the request may have been huge.
bool Pool::is_nearly_full() {
  const uint64_t share = std::min(device_bytes_, settings_.limit) / 16;
  size_t free = 0;
  size_t total = 0;
  return upstream_.excess(share) != 0 ||
         (upstream_.driver().memory(&free, &total) == kSuccess && free < share);
}

void Pool::note_answer(Status status) {
  const bool is_refused = status == kOutOfMemory;
  // What was needed once is not to be had again.
  if (is_refused) needed_once_.store(0, std::memory_order_relaxed);
  if (is_refused || is_short_.load(std::memory_order_relaxed))
    is_short_.store(is_refused && is_nearly_full(), std::memory_order_relaxed);
}

Range* Pool::grow(uint64_t bytes, Search* search) {
  const uint64_t needed = found_needed();
  Range* range = add_segment(segment_bytes(bytes), bytes, search);
  note_answer(search->status);
  if (range != nullptr && needed != 0) note_needed(needed);
  if (search->status != kOutOfMemory) return range;
  stats_.count(stats::DeviceCounter::out_of_memory_retries);
  const uint64_t exact = round_up(bytes, kPageBytes);
  range = add_segment(exact, bytes, search);
  if (range != nullptr || search->when_short == Short::kLeave || fetch_wanted(search)) return range;
  range = take_after_frees(bytes, search);
  if (range != nullptr || search->has_small) return range;
  uint64_t gives = ~uint64_t{0};
  uint64_t segments = 0;
  bool may_help = false;
  const auto make_room = [&] {
    if (order().is_capturing() || search->status != kOutOfMemory) return false;
    empty_thread_caches();
    // Give up only if no other thread gave or took memory meanwhile: a block in transit may have been out of
    // reach.
    if (gives == ranges_.gives() - search->returned &&
        segments == allocated_segments_.load(std::memory_order_relaxed))
      return false;
    may_help = may_make_room(bytes, *search);
    if (may_help) order().wait_for_all();
    empty_thread_caches();
    gives = ranges_.gives() - search->returned;
    segments = allocated_segments_.load(std::memory_order_relaxed);
    return true;
  };
  upstream::ask_again(make_room, [&] {
    range = take_range(bytes, How::kAfterWait, search);
    if (range != nullptr || fetch_wanted(search)) return kSuccess;
    if (may_help) {
      release_done();
      release_tainted();
      release_free_segments(0);
    }
    in_flight_.wait_for_releases(device_, context());
    range = add_segment(exact, bytes, search);
    return search->status;
  });
  return range;
}

// If another pool still has these pages, its context has ended and they will leave the map in a moment.
bool Pool::enter_pages(Address start, uint64_t bytes) {
  while (!page_map.enter(start, bytes)) {
    // Read before the last try, so that pages that leave in between are not missed.
    const bool may_leave = upstream::ContextEnding::is_under_way();
    if (page_map.enter(start, bytes)) break;
    if (!may_leave) return false;
    sched_yield();
  }
  return true;
}

// What stream-ordered frees will need, while the driver still makes it.
void Pool::keep_events() {
  order().keep_events();
  ordered_frees_.keep_events(upstream_.driver(), context());
}

Range* Pool::add_segment(uint64_t bytes, uint64_t taken, Search* search) {
  search->how = How::kMiss;
  keep_events();
  if (space_.serves()) {
    Range* const range = add_run(bytes, taken, search);
    if (range != nullptr || space_.serves()) return range;
  }
  Address start = 0;
  search->status = upstream_.allocate(bytes, &start);
  if (search->status != kSuccess) return nullptr;
  allocated_segments_.fetch_add(1, std::memory_order_relaxed);
  newly_tainted_.store(false, std::memory_order_relaxed);
  note_need(taken);
  if ((start & (kPageBytes - 1)) == 0 && enter_pages(start, bytes)) {
    if (Range* range = ranges_.add(start, bytes, taken, Ranges::From::kDriver)) return range;
    page_map.remove(start, bytes);
  }
  // Memory that the page map cannot hold cannot be pooled.
  upstream_.give_up(start, bytes);
  search->status = kOutOfMemory;
  return nullptr;
}

}  // namespace cupool::pool
