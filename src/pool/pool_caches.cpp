// The thread caches of one pool: made with a thread's first allocation, adopted by a new thread when the
// owner ends, emptied when memory is short. The list is under `caches_lock_`; another thread's cache is
// stopped before it is touched.
#include <algorithm>
#include <array>
#include <new>

#include "pool/pool.hpp"
#include "stats/device.hpp"

namespace cupool::pool {

void Pool::empty_thread_caches() {
  give_reached();
  std::array<Entry, ThreadCache::kMostMoved> entries;
  Guard hold(caches_lock_);
  for (ThreadCache* cache = caches_; cache != nullptr; cache = cache->next_of_pool) {
    stats_.count(stats::DeviceCounter::thread_caches_emptied);
    cache->stop();
    for (unsigned size_class = 0; size_class < SizeClasses::kMostClasses; ++size_class) {
      while (const size_t count = cache->remove_oldest(size_class, 0, entries.data()))
        give_blocks(size_class, entries.data(), count);
    }
    const Entry large = cache->large().swap({});
    if (large.range != nullptr) give_large(large);
    cache->keep_fewer_ranges();
    cache->start();
  }
}

// Stopping a thread costs some microseconds, and what streams would have to wait for is better left where it
// is. So one is stopped at most, and the next requests do not look: a few, so that threads at work keep
// their blocks, and more each time that it was in vain.
void Pool::collect_large(uint64_t bytes, order::LaneName lane) {
  constexpr uint32_t kFewSkipped = 16;
  constexpr uint32_t kMostSkipped = 63;
  const auto is_worth_it = [&](const Entry& large) {
    if (large.range == nullptr || large.stamp > order().reachable()) return false;
    if (lane == order::LaneName::kNone) return large.stamp <= order().cheap();
    return large.stamp <= order().done() || order().sole_since(large.range->stamp) == lane;
  };
  Guard hold(caches_lock_);
  for (ThreadCache* cache = caches_; cache != nullptr; cache = cache->next_of_pool) {
    const uint64_t kept = cache->large().bytes();
    if (kept < bytes || kept >= 2 * bytes) continue;
    cache->stop();
    const bool in_vain = !is_worth_it(cache->large().kept());
    if (!in_vain) give_large(cache->large().swap({}));
    cache->start();
    collects_skipped_ = in_vain ? std::min(kMostSkipped, 2 * collects_skipped_ + 1) : kFewSkipped;
    collects_to_skip_.store(collects_skipped_, std::memory_order_relaxed);
    return;
  }
}

ThreadCache* Pool::adopt_cache() {
  Guard hold(caches_lock_);
  for (ThreadCache* cache = caches_; cache != nullptr; cache = cache->next_of_pool) {
    if (!cache->abandoned) continue;
    cache->abandoned = false;
    threads_.fetch_add(1, std::memory_order_relaxed);
    return cache;
  }
  auto* cache = new (std::nothrow) ThreadCache(this, sizes_, settings_, stats_, order());
  if (cache == nullptr) return nullptr;
  cache->next_of_pool = caches_;
  caches_ = cache;
  threads_.fetch_add(1, std::memory_order_relaxed);
  return cache;
}

void Pool::abandon_cache(ThreadCache* cache) {
  if (const Use use(*this, *cache); use.is_open()) {
    for (unsigned size_class = 0; size_class < SizeClasses::kMostClasses; ++size_class)
      spill(*cache, size_class, 0);
    merge_large(*cache);
  }
  Guard hold(caches_lock_);
  cache->abandoned = true;
  threads_.fetch_sub(1, std::memory_order_relaxed);
}

// Polls rather than waits under the lock: a thread in the pool may need it.
bool Pool::is_in_use() {
  Guard hold(caches_lock_);
  for (const ThreadCache* cache = caches_; cache != nullptr; cache = cache->next_of_pool) {
    if (cache->is_in_use()) return true;
  }
  return false;
}

void Pool::drop_kept() {
  std::array<Entry, ThreadCache::kMostMoved> entries;
  Guard hold(caches_lock_);
  for (ThreadCache* cache = caches_; cache != nullptr; cache = cache->next_of_pool) {
    cache->stop();
    for (unsigned c = 0; c < SizeClasses::kMostClasses; ++c) {
      while (cache->remove_oldest(c, 0, entries.data()) != 0) {
      }
    }
    cache->large().swap({});
    cache->tally().drop();
    cache->start();
  }
}

}  // namespace cupool::pool
