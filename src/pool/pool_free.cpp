// Slow path of a free: makes room in the thread's cache, or returns the block to its slab or the ranges. Each
// part takes its own lock. The driver is called at the end only, where the program expects a free to wait.
#include <algorithm>
#include <array>

#include "order/graph_launches.hpp"
#include "pool/pool.hpp"
#include "stats/device.hpp"

namespace cupool::pool {

void Pool::give_range(Range* range, Epoch stamp) { ranges_.give(range, stamp, order()); }

// The range's stamp is the turn in which the large block left the ranges; it covers every life since, also
// those served from the thread's cache.
void Pool::give_large(const Entry& entry) {
  ranges_.give(entry.range, entry.stamp, order(), order().sole_at_last(entry.range->stamp));
}

bool Pool::keep(ThreadCache& cache, unsigned size_class, const Entry& entry) {
  if (size_class == kNotKept) return false;
  cache.enter();
  cache.prepare(size_class);
  const bool kept = cache.put_more(size_class, entry);
  cache.exit();
  return kept;
}

void Pool::take_back_large(ThreadCache& cache, const Entry& entry) {
  Entry other = entry;
  cache.large().note_freed(entry.range);
  if (entry.range->bytes <= most_kept_large() && cache.large().expects(entry.range)) {
    cache.enter();
    other = cache.large().swap(entry);
    cache.exit();
  }
  if (other.range != nullptr) give_large(other);
}

void Pool::take_back(ThreadCache& cache, unsigned size_class, const Entry& entry) {
  if (size_class == kNotKept) {
    take_back_large(cache, entry);
  } else if ((!order().is_spread() || !keep(cache, size_class, entry)) &&
             (!make_room(cache, size_class) || !keep(cache, size_class, entry))) {
    if (sizes_.is_small(size_class)) {
      give_blocks(size_class, &entry, 1);
    } else {
      give_range(entry.range, entry.stamp);
    }
    cache.enter();
    const bool is_due = cache.note_misfit();
    cache.exit();
    if (is_due) empty_another_shelf(cache, size_class);
  }
}

// How much a thread may free before a seal is due. Unsealed memory cannot be reused, so this is a small share
// of the pool: on one stream a seal costs less than a microsecond. On several it costs more and holds up all
// submitting threads, and memory has to wait for its work to complete anyway.
uint64_t Pool::most_unsealed(uint64_t bytes) const {
  constexpr uint64_t kFewest = 512 << 10;
  constexpr uint64_t kShare = 512;
  constexpr uint64_t kShareOfSpread = 256;
  constexpr uint64_t kShareOfBudget = 32;
  constexpr uint64_t kFewOfThreads = 4 << 20;
  if (!order().is_spread()) return std::max(kFewest, ranges_.reserved() / kShare);
  const uint64_t share = std::max(kFewest, ranges_.reserved() / kShareOfSpread);
  if (bytes > SizeClasses::kLargestKept) return share;
  if (order().lanes_in_turns() > 2) return std::max(share, settings_.many_budget / kShareOfBudget);
  return order().has_several_threads() ? std::max(share, kFewOfThreads) : share;
}

void Pool::finish_free(ThreadCache& cache, uint64_t bytes) {
  constexpr uint32_t kMostFrees = 32;
  // Rare where a seal is a wait on the host.
  constexpr uint32_t kMostFreesWaiting = 1024;
  const bool is_wait = !order().has_context_events();
  const uint32_t most_frees = is_wait ? kMostFreesWaiting : kMostFrees;
  const uint64_t most_bytes = is_wait ? settings_.many_budget / 4 : most_unsealed(bytes);
  const bool is_due = is_short() || cache.seal_is_due(bytes, most_frees, most_bytes);
  if (order().reuse() == order::Reuse::kCompleted && is_above_budget(bytes)) {
    order().wait_in_free();
    unfinished_.store(0, std::memory_order_relaxed);
  } else if (is_due) {
    order().seal_in_free(is_short() || bytes > order::Timeline::kLittle);
  }
  cache.note_free();
}

// With exact reuse, a free waits now and then for all earlier work, as every driver free does: else all
// device memory could end up freed but not reusable.
bool Pool::is_above_budget(uint64_t bytes) {
  return unfinished_.fetch_add(bytes, std::memory_order_relaxed) + bytes > settings_.many_budget;
}

// Of a record beside a graph's launch into the stream nothing is lost, unlike of a wait, but programs that
// made both at a time have failed: so the two are kept apart where that takes a moment only.
bool Pool::record_on(driver::Stream stream, driver::Event event) {
  const order::GraphLaunches::QuietMoment moment(
      {order::lane_of_handle(reinterpret_cast<uintptr_t>(stream)), context()});
  return upstream_.driver().record_on(stream, event) == driver::kSuccess;
}

// The stream may not have waited for the work of the block's former lives, for it may have been given none on
// the block: so that counts on. Where the stream can have no event, the block waits for all work so far.
void Pool::take_back_on(driver::Stream stream, order::Timeline* elsewhere, unsigned size_class, Entry entry,
                        uint64_t asked) {
  {
    Guard hold(marks_lock_);
    marks_.erase(entry.address);
  }
  entry.stamp = order::kFormer ? order().newest_leant_on() : 0;
  if (elsewhere != nullptr) {
    const upstream::Elsewhere until(*elsewhere);
    ordered_frees_.put_after(until, size_class, entry, asked);
    until.expect(in_flight_);
    return;
  }
  driver::Driver& driver = upstream_.driver();
  driver::Event event = nullptr;
  if (!order().is_idle() && !driver.may_be_capturing()) event = ordered_frees_.take_event(driver, context());
  // Not inside the gate: where the stream's queue is full this waits, and a capture must be able to begin.
  if (event != nullptr && record_on(stream, event)) {
    ordered_frees_.put(stream, event, size_class, entry, asked);
    return;
  }
  if (event != nullptr) ordered_frees_.give_event(event);
  entry.stamp = order().open();
  give_left(size_class, entry);
  if (order().is_idle()) return;
  order().keep_events();
  order().seal_for_completion();
}

void Pool::give_reached(size_t most) {
  if (!ordered_frees_.any() || upstream_.driver().may_be_capturing() || order().is_capturing()) return;
  const auto has_come = [&](const OrderedFrees::Waiting& block) {
    if (block.elsewhere.has_value()) return block.elsewhere->is_done(in_flight_);
    return upstream_.driver().query(block.event) == driver::kSuccess;
  };
  ordered_frees_.take_reached(
      most, has_come, [&](const OrderedFrees::Waiting& block) { give_left(block.size_class, block.entry); });
}

void Pool::give_left(unsigned size_class, const Entry& entry) {
  holder_of(*entry.range).leaving.fetch_sub(1, std::memory_order_relaxed);
  give_blocks(size_class, &entry, 1);
}

// How many bytes of ranges a thread may keep if it asks for nothing larger: a quarter of the pool for all
// threads together, unless the user limits what is cached.
uint64_t Pool::thread_share() const {
  if (max_cached_.load(std::memory_order_relaxed) < device_bytes_) return 0;
  return ranges_.reserved() / 4 / std::max(1u, threads_.load(std::memory_order_relaxed));
}

void Pool::empty_another_shelf(ThreadCache& cache, unsigned size_class) {
  cache.enter();
  cache.keep_more_ranges(thread_share());
  const unsigned other = cache.next_to_empty(size_class);
  cache.exit();
  if (other != kNotKept) spill(cache, other, 0);
}

// A missing shelf will be made, a full one widened if possible; else one more than half full gives up its
// older half.
bool Pool::make_room(ThreadCache& cache, unsigned size_class) {
  cache.enter();
  const Shelf& shelf = cache.shelf(size_class);
  const uint32_t half = shelf.room / 2;
  const bool has_room = shelf.room == 0 || cache.widen(size_class);
  const bool is_fuller = shelf.count > half;
  cache.exit();
  if (!has_room && is_fuller) spill(cache, size_class, half);
  return has_room || is_fuller;
}

// Moves the oldest blocks of one class out of the calling thread's cache until `keep` are left.
void Pool::spill(ThreadCache& cache, unsigned size_class, uint32_t keep) {
  std::array<Entry, ThreadCache::kMostMoved> entries;
  for (size_t count = entries.size(); count == entries.size();) {
    cache.enter();
    count = cache.remove_oldest(size_class, keep, entries.data());
    cache.exit();
    if (count != 0) cache.tally().add(stats::DeviceCounter::returns, count);
    give_blocks(size_class, entries.data(), count);
  }
}

void Pool::spill_ranges(ThreadCache& cache) {
  for (;;) {
    cache.enter();
    const unsigned size_class = cache.next_to_empty(SizeClasses::kMostSmall);
    cache.exit();
    if (size_class == kNotKept) return;
    spill(cache, size_class, 0);
  }
}

void Pool::give_blocks(unsigned size_class, const Entry* entries, size_t count) {
  if (!sizes_.is_small(size_class)) {
    for (size_t i = 0; i < count; ++i) give_range(entries[i].range, entries[i].stamp);
    return;
  }
  for (size_t given = 0; given < count;) {
    Range* emptied = nullptr;
    given += slabs_.give(size_class, entries + given, count - given, &emptied);
    if (emptied != nullptr) give_range(emptied, emptied->stamp);
  }
}

}  // namespace cupool::pool
