// The calling thread's caches: found, adopted from a pool, given up when the thread ends; and how a block is
// handed to the application. Thread-local; no lock.
#pragma once

#include "pool/thread_cache.hpp"

namespace cupool::pool {

// Whether the thread's cache had a block to hand out: none while work is pending, for the slow path to look.
// Unknown: it has no cache of this context, or another one was used last.
enum class Kept { kTaken, kNone, kUnknown };
// What the fast path of a free leaves to do: nothing (the thread keeps the block); perhaps a seal (kept, but
// work is pending); or everything, because no live block starts there, the cache is full, or the block or its
// pool needs the slow path.
enum class Unkept { kNot, kUnsealed, kNotLive, kNoRoom, kSpecial };
// A bit in the requested size: the freed block was marked (allocator/marks.hpp).
inline constexpr uint64_t kMarkedAsked = uint64_t{1} << 63;

// The caches of this thread: the one used last, and all of them. Unannounced: we will not learn of this
// thread's end (its destructors already ran, or no key was left), so it keeps no cache beyond a call.
struct ThisThread {
  ThreadCache* last = nullptr;
  ThreadCache* all = nullptr;
  bool unannounced = false;
};
[[gnu::visibility("hidden")]] extern constinit thread_local ThisThread this_thread;

// This thread's cache of a pool, which is then the one used last; null: no host memory.
ThreadCache* cache_of_this_thread(Pool& pool);
// With the first pool: from now on we learn of the end of threads.
void prepare_thread_ends();
// The calling thread ends: gives up its caches.
void end_this_thread();

// From now on the application holds this block.
template <typename Word>
[[gnu::always_inline]] inline void hand_out(ThreadCache& cache, const Entry& entry, unsigned size_class,
                                            uint64_t block_bytes, uint64_t asked, Word* out) {
  Address start = entry.address;
  if ((start & Entry::kFirstUse) != 0) [[unlikely]] {
    start -= Entry::kFirstUse;
    cache.tally().add(stats::DeviceCounter::first_uses);
  }
  *out = start;
  const uint64_t told = block_bytes - asked + 1;
  if (size_class != kNotKept && told < kAskedApart) [[likely]] {
    entry.tag->store(static_cast<uint16_t>(told), std::memory_order_relaxed);
  } else {
    entry.range->large_asked.store(asked, std::memory_order_relaxed);
    entry.tag->store(kAskedApart, std::memory_order_relaxed);
  }
  cache.tally().give(asked, block_bytes);
}

}  // namespace cupool::pool
