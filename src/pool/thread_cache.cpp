// The rare half of a thread's cache: shelves that are made, filled and emptied, and how another thread stops
// the owner. Holds no lock; whoever stops a cache holds the lock of its pool's list.
#include "pool/thread_cache.hpp"

#include <linux/membarrier.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <bit>

#include "pool/metadata.hpp"

namespace cupool::pool {

bool ThreadCache::heavy_ = true;

void prepare_thread_caches() {
#if !defined(__SANITIZE_THREAD__)
  ThreadCache::heavy_ = syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) != 0;
#endif
}

uint32_t ThreadCache::prepare(unsigned size_class) {
  Shelf& shelf = shelves_[size_class];
  if (shelf.room != 0) return shelf.room;
  const uint64_t block = sizes_.bytes(size_class);
  if (block > (is_range(size_class) ? most_bytes_ / 4 : most_bytes_)) return 0;
  const uint64_t fewest = is_range(size_class) ? kFewestRanges : 2;
  const uint32_t room =
      static_cast<uint32_t>(std::clamp<uint64_t>(kMostShelfBytes / block, fewest, kMostBlocks));
  // Rings are never given back: threads end, but their caches are taken over by new ones.
  Entry* ring = static_cast<Entry*>(calloc(std::bit_ceil(room), sizeof(Entry)));
  if (ring == nullptr) return 0;
  shelf.ring = ring;
  shelf.block_bytes = static_cast<uint32_t>(block);
  shelf.room = std::bit_ceil(room);
  return shelf.room;
}

void ThreadCache::put_oldest(unsigned size_class, const Entry* entries, size_t count) {
  Shelf& shelf = shelves_[size_class];
  for (size_t i = count; i-- > 0;) shelf.push_oldest(entries[i]);
  bytes_of(size_class) += count * sizes_.bytes(size_class);
}

size_t ThreadCache::remove_oldest(unsigned size_class, uint32_t keep, Entry* out) {
  Shelf& shelf = shelves_[size_class];
  size_t count = 0;
  while (shelf.count > keep) out[count++] = shelf.pop_oldest();
  if (count != 0) bytes_of(size_class) -= count * sizes_.bytes(size_class);
  return count;
}

unsigned ThreadCache::next_to_empty(unsigned size_class) {
  constexpr unsigned kMisfitsATurn = 8;
  if (++misfits_ % kMisfitsATurn != 0) return SizeClasses::kNotKept;
  for (unsigned i = 0; i < SizeClasses::kMostClasses; ++i) {
    cursor_ = (cursor_ + 1) % SizeClasses::kMostClasses;
    if (shelves_[cursor_].count != 0 && is_range(cursor_) == is_range(size_class)) return cursor_;
  }
  return SizeClasses::kNotKept;
}

void ThreadCache::stop() {
  stop_.store(true, std::memory_order_seq_cst);
  if (heavy_) {
    // The owner's fence alone does not keep our own load behind our store.
    std::atomic_thread_fence(std::memory_order_seq_cst);
  } else {
    syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0);
  }
  while (busy_.load(std::memory_order_acquire)) sched_yield();
}

void ThreadCache::start() { stop_.store(false, std::memory_order_release); }

void ThreadCache::wait_until_started() {
  do {
    busy_.store(false, std::memory_order_release);
    while (stop_.load(std::memory_order_acquire)) sched_yield();
    busy_.store(true, std::memory_order_seq_cst);
    std::atomic_thread_fence(std::memory_order_seq_cst);
  } while (stop_.load(std::memory_order_acquire));
}

}  // namespace cupool::pool
