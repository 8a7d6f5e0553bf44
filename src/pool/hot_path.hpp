// The hot path of an allocation and of a free: a block that the calling thread keeps, or will keep. It takes
// no lock and makes no call; whatever is not the common case is left to pools.cpp, so that nothing need be
// saved for later here. In a loop of one size a pair takes about as long as it has instructions; where sizes
// are mixed, every branch that cannot be foretold costs more than a few of them.
#pragma once

#include "pool/page_map.hpp"
#include "pool/pools.hpp"

namespace cupool::pool {

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
  cache.holdings().give(asked, block_bytes);
}

template <typename Word>
[[gnu::always_inline]] inline Kept Pools::allocate_kept(driver::Context context, uint64_t bytes, Word* out) {
  ThreadCache* const cache = this_thread.last;
  if (cache == nullptr || cache->pool()->context() != context || !cache->order().is_idle() ||
      !cache->try_enter()) [[unlikely]]
    return Kept::kUnknown;
  Entry entry;
  const unsigned size_class = cache->sizes().of(bytes);
  const bool hit = size_class != kNotKept ? cache->take_newest(size_class, &entry)
                                          : cache->large().take(cache->sizes().rounded(bytes), &entry);
  cache->exit();
  if (!hit) [[unlikely]]
    return bytes == 0 ? Kept::kUnknown : Kept::kNone;
  hand_out(*cache, entry, size_class, cache->kept_bytes(size_class, entry), bytes, out);
  return Kept::kTaken;
}

// Whoever takes the tag of a block has freed it: a second free finds nothing there. It is negative if the
// block is marked.
[[gnu::always_inline]] inline Unkept Pools::free_kept(Address address, uint64_t* asked) {
  const Holder* const holder = page_map.find(address);
  if (holder == nullptr) [[unlikely]]
    return Unkept::kNobodys;
  const uint32_t index = holder->index_containing(address);
  if (!holder->starts(index, address)) [[unlikely]]
    return Unkept::kNobodys;
  Tag* const tag = holder->tags + index;
  const uint16_t held = tag->exchange(0, std::memory_order_relaxed);
  *asked = holder->asked(held);
  if (static_cast<int16_t>(held) <= 0) [[unlikely]] {
    *asked |= kMarkedAsked;
    return held == 0 ? Unkept::kNobodys : Unkept::kSpecial;
  }
  Pool* const pool = holder->pool;
  const unsigned size_class = holder->class_of_blocks();
  Entry entry{address, holder->range, 0, tag};
  ThreadCache* const cache = this_thread.last;
  if (cache == nullptr || cache->pool() != pool || pool->frees_specially() || !cache->try_enter())
      [[unlikely]]
    return Unkept::kSpecial;
  const order::Timeline& order = cache->order();
  entry.stamp = order.open();
  // Before it is kept: from then on another thread may empty the cache, and merge what was in it.
  const uint64_t block_bytes = cache->kept_bytes(size_class, entry);
  const bool kept = size_class != kNotKept ? cache->put(size_class, entry)
                                           : cache->large().put(pool->most_kept_large(), entry);
  cache->exit();
  if (!kept) [[unlikely]]
    return Unkept::kNoRoom;
  cache->holdings().take_back(*asked, block_bytes);
  return order.is_idle() ? Unkept::kNot : Unkept::kUnsealed;
}

}  // namespace cupool::pool
