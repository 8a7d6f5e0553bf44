// The calling thread's caches, and how a block passes to the application. The thread's own; no lock.
#pragma once

#include "pool/thread_cache.hpp"

namespace cupool::pool {

// Whether a thread had a block to hand out.
enum class Kept { kTaken, kNone, kUnknown };
// What is left to do after a free: nothing, the thread keeps the block; perhaps a seal, for work is under
// way; everything, because nobody held it, the thread has no room, or there is something special about the
// block or its pool.
enum class Unkept { kNot, kUnsealed, kNobodys, kNoRoom, kSpecial };
// In the size that was asked for: the block that was freed is a marked one (allocator/marks.hpp).
inline constexpr uint64_t kMarkedAsked = uint64_t{1} << 63;

// The caches of this thread: the one used last, and all of them. Unannounced: nobody will tell when this
// thread ends (its destructors already ran, or there is no key for one), so it keeps no cache beyond a call.
struct ThisThread {
  ThreadCache* last = nullptr;
  ThreadCache* all = nullptr;
  bool unannounced = false;
};
[[gnu::visibility("hidden")]] extern constinit thread_local ThisThread this_thread;

// From now on the application holds this block.
template <typename Word>
[[gnu::always_inline]] inline void hand_out(ThreadCache& cache, const Entry& entry, unsigned size_class,
                                            uint64_t block_bytes, uint64_t asked, Word* out) {
  *out = entry.address;
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
