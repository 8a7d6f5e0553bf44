// See thread_caches.hpp.
#include "pool/thread_caches.hpp"

#include <algorithm>
#include <array>
#include <new>
#include <utility>

#include "stats/device.hpp"

namespace cupool::pool {

namespace {
// So many are looked at without a thought.
constexpr unsigned kFewThreads = 8;

bool any_keeps_something(const ThreadCache* cache) {
  while (cache != nullptr && cache->is_empty()) cache = cache->next_listed;
  return cache != nullptr;
}
}  // namespace

void ThreadCaches::empty_all() {
  frees_.give_reached();
  std::array<Entry, Shelves::kMostMoved> entries;
  Guard hold(lock_);
  for (ThreadCache* cache = stop_listed(); cache != nullptr;) {
    ThreadCache* const next = cache->next_listed;
    if (!cache->is_empty()) {
      tenancy_.stats().count(stats::DeviceCounter::thread_caches_emptied);
      cache->shelves().keep_fewer_ranges();
    }
    for (unsigned size_class = 0; size_class < SizeClasses::kMostClasses; ++size_class) {
      while (const size_t count = cache->shelves().remove_oldest(size_class, 0, entries.data()))
        blocks_.give(size_class, entries.data(), count);
    }
    const Entry large = cache->large().close();
    if (large.range != nullptr) blocks_.give_large(large);
    cache->close();
    cache->start();
    cache = next;
  }
}

// With many threads it would take longer than what it spares the caller.
bool ThreadCaches::are_empty() {
  constexpr int kMostLookedAt = 64;
  Guard hold(lock_);
  const ThreadCache* cache = listed_;
  for (int i = 0; i < kMostLookedAt && cache != nullptr && cache->is_empty(); ++i) cache = cache->next_listed;
  return cache == nullptr;
}

void ThreadCaches::list(ThreadCache& cache) {
  Guard hold(lock_);
  cache.next_listed = std::exchange(listed_, &cache);
  listed_count_.fetch_add(1, std::memory_order_relaxed);
  cache.is_listed.store(true, std::memory_order_relaxed);
}

// A barrier interrupts every processor that runs a thread of this process, so there is one for all caches.
// The few that keep nothing are left alone: a thread at work may keep something again in a moment.
ThreadCache* ThreadCaches::stop_listed() {
  if (listed_count_.load(std::memory_order_relaxed) <= kFewThreads && !any_keeps_something(listed_))
    return nullptr;
  for (ThreadCache* cache = listed_; cache != nullptr; cache = cache->next_listed) cache->begin_stop();
  const bool is_ordered = AsymmetricFence::order_all_threads();
  for (ThreadCache* cache = listed_; cache != nullptr; cache = cache->next_listed) {
    cache->end_stop(is_ordered);
    cache->is_listed.store(false, std::memory_order_relaxed);
  }
  AsymmetricFence::order_exits();
  listed_count_.store(0, std::memory_order_relaxed);
  return std::exchange(listed_, nullptr);
}

// Each emptying stops every thread that may keep something. With many it comes so rarely that it costs little
// beside the memory that was asked for since the last one; what they keep meanwhile is bounded for each.
bool ThreadCaches::is_time_to_empty(uint64_t bytes) {
  constexpr uint64_t kBytesAThread = 64 << 10;
  const unsigned threads = listed_count_.load(std::memory_order_relaxed);
  if (threads <= kFewThreads) return true;
  const uint64_t wanted = wanted_.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  if (wanted < threads * kBytesAThread) return false;
  wanted_.store(0, std::memory_order_relaxed);
  return true;
}

bool ThreadCaches::is_time_to_collect() {
  if (threads_.load(std::memory_order_relaxed) <= 1) return false;
  const uint32_t left = collects_to_skip_.load(std::memory_order_relaxed);
  if (left != 0) collects_to_skip_.store(left - 1, std::memory_order_relaxed);
  return left == 0;
}

// Stopping a thread costs some microseconds, and what streams would have to wait for is better left where it
// is. So one is stopped at most, and the next requests do not look: a few, so that threads at work keep
// their blocks, and more each time that it was in vain.
void ThreadCaches::collect_large(uint64_t bytes, order::LaneName lane) {
  constexpr uint32_t kFewSkipped = 16;
  constexpr uint32_t kMostSkipped = 63;
  const order::Timeline& order = tenancy_.order();
  const auto is_worth_it = [&](const Entry& large) {
    if (large.range == nullptr || large.stamp > order.reachable()) return false;
    if (lane == order::LaneName::kNone) return large.stamp <= order.cheap();
    return large.stamp <= order.done() || order.sole_since(large.range->stamp) == lane;
  };
  Guard hold(lock_);
  ThreadCache* cache = listed_;
  const auto fits = [&](uint64_t kept) { return kept >= bytes && kept < 2 * bytes; };
  while (cache != nullptr && !fits(cache->large().bytes())) cache = cache->next_listed;
  bool in_vain = true;
  if (cache != nullptr) {
    cache->stop();
    in_vain = !is_worth_it(cache->large().kept());
    if (!in_vain) blocks_.give_large(cache->large().remove());
    cache->start();
  }
  collects_skipped_ = in_vain ? std::min(kMostSkipped, 2 * collects_skipped_ + 1) : kFewSkipped;
  collects_to_skip_.store(collects_skipped_, std::memory_order_relaxed);
}

ThreadCache* ThreadCaches::adopt() {
  Guard hold(lock_);
  if (abandoned_ != nullptr) {
    threads_.fetch_add(1, std::memory_order_relaxed);
    return std::exchange(abandoned_, abandoned_->next_abandoned);
  }
  auto* cache = new (std::nothrow)
      ThreadCache(pool_, blocks_.sizes(), tenancy_.settings(), tenancy_.stats(), tenancy_.order());
  if (cache == nullptr) return nullptr;
  cache->next_of_pool = caches_;
  caches_ = cache;
  threads_.fetch_add(1, std::memory_order_relaxed);
  return cache;
}

void ThreadCaches::abandon(ThreadCache* cache) {
  if (const Tenancy::Use use(tenancy_, *cache); use.is_open()) {
    for (unsigned size_class = 0; size_class < SizeClasses::kMostClasses; ++size_class)
      evict(*cache, size_class, 0);
    merge_large(*cache);
  }
  Guard hold(lock_);
  cache->next_abandoned = std::exchange(abandoned_, cache);
  threads_.fetch_sub(1, std::memory_order_relaxed);
}

// Polls rather than waits under the lock: a thread in the pool may need it.
bool ThreadCaches::is_in_use() {
  Guard hold(lock_);
  for (const ThreadCache* cache = caches_; cache != nullptr; cache = cache->next_of_pool) {
    if (cache->is_in_use()) return true;
  }
  return false;
}

void ThreadCaches::drop_kept() {
  std::array<Entry, Shelves::kMostMoved> entries;
  Guard hold(lock_);
  for (ThreadCache* cache = stop_listed(); cache != nullptr;) {
    ThreadCache* const next = cache->next_listed;
    for (unsigned c = 0; c < SizeClasses::kMostClasses; ++c) {
      while (cache->shelves().remove_oldest(c, 0, entries.data()) != 0) {
      }
    }
    cache->large().close();
    cache->close();
    cache->start();
    cache = next;
  }
  for (ThreadCache* cache = caches_; cache != nullptr; cache = cache->next_of_pool) cache->tally().drop();
}

void ThreadCaches::set_order(order::Timeline& order) {
  Guard hold(lock_);
  for (ThreadCache* cache = caches_; cache != nullptr; cache = cache->next_of_pool) cache->set_order(order);
}

uint64_t ThreadCaches::live_bytes() {
  int64_t live = 0;
  Guard hold(lock_);
  for (const ThreadCache* cache = caches_; cache != nullptr; cache = cache->next_of_pool)
    live += cache->tally().live();
  return live > 0 ? static_cast<uint64_t>(live) : 0;
}

// ---- For the owner of a cache.

bool ThreadCaches::keep(ThreadCache& cache, unsigned size_class, const Entry& entry) {
  if (size_class == kNotKept) return false;
  enter_to_put(cache);
  cache.shelves().prepare(size_class);
  const bool kept = cache.shelves().put_more(size_class, entry, cache.order().is_spread());
  cache.exit();
  return kept;
}

bool ThreadCaches::keeps(ThreadCache& cache, unsigned size_class) {
  if (size_class == kNotKept) return false;
  cache.enter();
  const bool any = cache.shelves().of(size_class).count != 0;
  cache.exit();
  return any;
}

bool ThreadCaches::keeps_many(ThreadCache& cache, unsigned size_class) const {
  cache.enter();
  const Shelf& shelf = cache.shelves().of(size_class);
  const bool many = shelf.count != 0 && shelf.count >= shelf.room / 2;
  cache.exit();
  return many && tenancy_.order().reuse() != order::Reuse::kCompleted &&
         !growth_.may_spread(blocks_.sizes().bytes(size_class));
}

void ThreadCaches::take_back(ThreadCache& cache, unsigned size_class, const Entry& entry) {
  if (size_class == kNotKept) {
    take_back_large(cache, entry);
  } else if ((!tenancy_.order().is_spread() || !keep(cache, size_class, entry)) &&
             (!widen_or_evict(cache, size_class) || !keep(cache, size_class, entry))) {
    if (blocks_.sizes().is_small(size_class)) {
      blocks_.give(size_class, &entry, 1);
    } else {
      blocks_.give_block(entry);
    }
    cache.enter();
    const bool is_due = cache.shelves().note_misfit();
    cache.exit();
    if (is_due) empty_another_shelf(cache, size_class);
  }
}

void ThreadCaches::take_back_large(ThreadCache& cache, const Entry& entry) {
  Entry other = entry;
  cache.large().note_freed(entry.range);
  if (entry.range->bytes <= tenancy_.most_kept_large() && cache.large().expects(entry.range)) {
    enter_to_put(cache);
    other = cache.large().replace(entry);
    cache.exit();
  }
  if (other.range != nullptr) blocks_.give_large(other);
}

void ThreadCaches::merge_large(ThreadCache& cache) {
  cache.enter();
  const Entry large = cache.large().remove();
  cache.exit();
  if (large.range != nullptr) blocks_.give_large(large);
}

// A missing shelf will be made, a full one widened if possible; else one more than half full gives up its
// older half.
bool ThreadCaches::widen_or_evict(ThreadCache& cache, unsigned size_class) {
  cache.enter();
  const Shelf& shelf = cache.shelves().of(size_class);
  const uint32_t half = shelf.room / 2;
  const bool has_room = shelf.room == 0 || (cache.order().is_spread() && cache.shelves().widen(size_class));
  const bool is_fuller = shelf.count > half;
  cache.exit();
  if (!has_room && is_fuller) evict(cache, size_class, half);
  return has_room || is_fuller;
}

void ThreadCaches::empty_another_shelf(ThreadCache& cache, unsigned size_class) {
  const uint64_t share = growth::thread_share(growth_.figures(), threads_.load(std::memory_order_relaxed));
  cache.enter();
  cache.shelves().keep_more_ranges(share);
  const unsigned other = cache.shelves().next_to_empty(size_class);
  cache.exit();
  if (other != kNotKept) evict(cache, other, 0);
}

// Moves the oldest blocks of one class out of the calling thread's cache until `keep` are left.
void ThreadCaches::evict(ThreadCache& cache, unsigned size_class, uint32_t keep) {
  std::array<Entry, Shelves::kMostMoved> entries;
  for (size_t count = entries.size(); count == entries.size();) {
    cache.enter();
    count = cache.shelves().remove_oldest(size_class, keep, entries.data());
    cache.exit();
    if (count != 0) cache.tally().add(stats::DeviceCounter::returns, count);
    blocks_.give(size_class, entries.data(), count);
  }
}

void ThreadCaches::evict_ranges(ThreadCache& cache) {
  for (;;) {
    cache.enter();
    const unsigned size_class = cache.shelves().next_to_empty(SizeClasses::kMostSmall);
    cache.exit();
    if (size_class == kNotKept) return;
    evict(cache, size_class, 0);
  }
}

}  // namespace cupool::pool
