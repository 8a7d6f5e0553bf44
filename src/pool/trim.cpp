// Giving memory back: thread caches to their slabs and ranges, whole free segments to the driver. Every
// release is a real cuMemFree, which waits for all work of the context: it happens where the program expects
// that (in a free, after its own wait) or where the driver has refused memory.
#include <sched.h>

#include <array>
#include <new>

#include "pool/budget.hpp"
#include "pool/page_map.hpp"
#include "pool/pool.hpp"
#include "stats/device.hpp"

namespace cupool::pool {

void Pool::empty_thread_caches() {
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

bool Pool::begin_release() {
  // A capture that begins now would be broken by the driver's free: it waits until that is over.
  if (driver_.may_be_capturing() || !order().gate().enter()) return false;
  // This store and load against those of close(): one of the two sees the other.
  releasing_.fetch_add(1, std::memory_order_seq_cst);
  if (context_.load(std::memory_order_seq_cst) != nullptr) return true;
  end_release();
  return false;
}

void Pool::end_release() {
  releasing_.fetch_sub(1, std::memory_order_release);
  order().gate().leave();
}

void Pool::wait_for_releases() const {
  while (releasing_.load(std::memory_order_acquire) != 0) sched_yield();
}

bool Pool::give_back(Segment* segment) {
  // The driver's free waits for all work, which proves as much as the program's own wait would.
  const Epoch epoch = order().begin_wait(order::Lane::kMany);
  const uint64_t before = stats::now_ns();
  const Status status = driver_.release_in(context(), segment->start);
  order().end_wait(epoch, status == driver::kSuccess);
  if (status != driver::kSuccess) return false;
  Budget::give_back(device_, segment->bytes);
  stats_.count(stats::DeviceCounter::segments_released);
  const uint64_t took = stats::now_ns() - before;
  stats_.count(stats::DeviceCounter::driver_release_ns, took);
  stats_.released_in(segment->bytes, took);
  released_segments_.fetch_add(1, std::memory_order_relaxed);
  return true;
}

// Of a segment that was detached: how many bytes went back, 0 if the driver refused.
uint64_t Pool::hand_back(Segment* segment) {
  const uint64_t bytes = give_back(segment) ? segment->bytes : 0;
  // What is still the driver's to us is kept rather than lost, with the stamp it had.
  if (bytes == 0 && page_map.enter(segment->start, segment->bytes)) {
    ranges_.add(segment->start, segment->bytes, 0, segment->first->stamp);
  }
  ranges_.forget(segment);
  return bytes;
}

uint64_t Pool::release_free_segments(uint64_t keep) {
  uint64_t released = 0;
  if (!begin_release()) return 0;
  while (ranges_.free_bytes() > keep) {
    Segment* segment = ranges_.detach();
    if (segment == nullptr) break;
    const uint64_t bytes = hand_back(segment);
    if (bytes == 0) break;
    if (released == 0) stats_.count(stats::DeviceCounter::trims);
    released += bytes;
  }
  end_release();
  if (released != 0) spread_.store(0, std::memory_order_relaxed);
  return released;
}

uint64_t Pool::release_everything() {
  if (context() == nullptr || order().is_capturing()) return 0;
  empty_thread_caches();
  release_tainted();
  return release_free_segments(0);
}

uint64_t Pool::trim(uint64_t keep) {
  if (context() == nullptr || order().is_capturing()) return 0;
  empty_thread_caches();
  return release_free_segments(keep);
}

void Pool::decay(bool in_free) {
  // While work is under way, in a stream that the program did not wait for, a release would wait for it. So
  // it would for what another thread submits meanwhile, as only a free may.
  if (settings_.decay_ms == 0 || context() == nullptr || !order().is_idle()) return;
  if (in_free != order().has_several_threads()) return;
  const uint64_t now = stats::now_ns() / 1'000'000;
  // Often enough to be on time within a quarter, seldom enough to cost nothing; one thread does it.
  uint64_t last = decayed_at_.load(std::memory_order_relaxed);
  if (now - last < settings_.decay_ms / 4 || !decayed_at_.compare_exchange_strong(last, now)) return;
  empty_thread_caches();
  if (!begin_release()) return;
  while (Segment* segment = ranges_.detach_idle(now, settings_.decay_ms, order())) {
    if (hand_back(segment) == 0) break;
    stats_.count(stats::DeviceCounter::decays);
  }
  end_release();
}

void Pool::trim_to_limit() {
  const uint64_t most = max_cached_.load(std::memory_order_relaxed);
  if (ranges_.free_bytes() > most && !order().is_capturing()) release_free_segments(most);
}

uint64_t Pool::releasable_bytes() {
  uint64_t bytes = 0;
  Guard hold(ranges_.lock());
  for (const Segment* segment = ranges_.first_segment(); segment != nullptr; segment = segment->next) {
    bool held = false;
    for (const Range* range = segment->first; range != nullptr && !held; range = range->after)
      held = is_held(*range);
    if (!held) bytes += segment->bytes;
  }
  return bytes;
}

bool Pool::is_held(const Range& range) {
  const Holder& holder = holder_of(range);
  for (uint32_t i = 0; i < holder.blocks; ++i) {
    if (holder.tags[i].load(std::memory_order_relaxed) != 0) return true;
  }
  return false;
}

bool Pool::find_held(Address address, Held* out) {
  Guard hold(ranges_.lock());
  // It may have gone since the caller looked.
  if (page_map.pool_of(address) != this) return false;
  const Range* range = page_map.find_containing(address);
  if (range == nullptr) return false;
  const Holder& holder = holder_of(*range);
  const uint32_t index = holder.index_containing(address);
  const uint16_t tag = index < holder.blocks ? holder.tags[index].load(std::memory_order_relaxed) : 0;
  if (tag == 0) return false;
  const bool is_whole = &holder == range && range->bytes == range->segment->bytes;
  *out = {holder.start + uint64_t{index} * holder.bytes_of_blocks(),
          holder.asked(tag),
          is_whole,
          range->segment->start,
          range->segment->number,
          context()};
  // The end of a block is not the block: the driver, too, answers for the bytes that were asked for.
  return address - out->start < out->bytes;
}

uint64_t Pool::live_bytes() {
  int64_t live = 0;
  Guard hold(caches_lock_);
  for (const ThreadCache* cache = caches_; cache != nullptr; cache = cache->next_of_pool)
    live += cache->holdings().live();
  return live > 0 ? static_cast<uint64_t>(live) : 0;
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

// Not under the lock for longer: whoever uses the pool may need it.
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
    cache->holdings().drop();
    cache->start();
  }
}

void Pool::close(uint64_t number) {
  context_.store(nullptr, std::memory_order_seq_cst);
  // A segment that another thread is giving back: once the context is gone its address may be somebody
  // else's, and a segment that the driver refuses would be kept for the next context. So would one that
  // another thread is just taking from the driver.
  order_for_owners();
  while (releasing_.load(std::memory_order_seq_cst) != 0 || is_in_use()) sched_yield();
  failed_.store(nullptr, std::memory_order_relaxed);
  drop_kept();
  slabs_.drop_all();
  Budget::give_back(device_, ranges_.reserved());
  ranges_.drop_all();
  tainted_segments_.store(0, std::memory_order_relaxed);
  Guard hold_marks(marks_lock_);
  marks_.clear();
  closed_at_ = number;
}

bool Pool::reopen(driver::Context context, int device, order::Timeline& order) {
  if (closed_at_ == 0 || device != device_) return false;
  closed_at_ = 0;
  // A free that had looked at the old context before it ended may have kept its block since.
  drop_kept();
  allocated_segments_.store(0, std::memory_order_relaxed);
  released_segments_.store(0, std::memory_order_relaxed);
  spread_.store(0, std::memory_order_relaxed);
  order_.store(&order, std::memory_order_relaxed);
  {
    Guard hold(caches_lock_);
    for (ThreadCache* cache = caches_; cache != nullptr; cache = cache->next_of_pool) cache->set_order(order);
  }
  context_.store(context, std::memory_order_relaxed);
  return true;
}

}  // namespace cupool::pool
