// The hot path of an allocation and of a free: a block that the calling thread keeps, or will keep. It takes
// no lock and makes no call; whatever is not the common case is left to pools.cpp, so that nothing need be
// saved for later here. Every instruction counts: a pair takes about as long as it has instructions.
#pragma once

#include "pool/page_map.hpp"
#include "pool/pools.hpp"

namespace cupool::pool {

// The caches of this thread: the one used last, and all of them.
struct ThisThread {
  ThreadCache* last = nullptr;
  ThreadCache* all = nullptr;
};
[[gnu::visibility("hidden")]] extern constinit thread_local ThisThread this_thread;

// From now on the application holds this block.
template <typename Word>
[[gnu::always_inline]] inline void hand_out(ThreadCache& cache, const Entry& entry, uint64_t asked,
                                            uint64_t block_bytes, Word* out) {
  *out = entry.address;
  if (entry.tag != nullptr) {
    entry.tag->store(Slab::tag_of(block_bytes, asked), std::memory_order_relaxed);
  } else {
    entry.range->asked.store(asked, std::memory_order_relaxed);
  }
  cache.holdings().give(asked, block_bytes);
}

template <typename Word>
[[gnu::always_inline]] inline Kept Pools::allocate_kept(driver::Context context, uint64_t bytes, Word* out) {
  ThreadCache* const cache = this_thread.last;
  if (cache == nullptr || cache->pool()->context() != context || !order_.is_granted() || !cache->try_enter())
      [[unlikely]]
    return Kept::kUnknown;
  Entry entry;
  const unsigned size_class = cache->sizes().of(bytes);
  const bool hit = size_class != SizeClasses::kNotKept
                       ? cache->take_newest(size_class, &entry)
                       : cache->large().take(cache->sizes().rounded(bytes), &entry);
  cache->exit();
  if (!hit) [[unlikely]]
    return bytes == 0 ? Kept::kUnknown : Kept::kNone;
  hand_out(*cache, entry, bytes, cache->kept_bytes(size_class, entry), out);
  return Kept::kTaken;
}

// Whoever takes the tag of a block, or its size, has freed it: a second free finds nothing there. Both are
// negative if the block is marked.
[[gnu::always_inline]] inline Unkept Pools::free_kept(Address address, uint64_t* asked) {
  const Owner owner = page_map.find(address);
  if (!owner) [[unlikely]]
    return Unkept::kNobodys;
  Entry entry{address, nullptr, 0, nullptr};
  Pool* pool;
  unsigned size_class;
  if (owner.is_slab()) {
    Slab* const slab = owner.slab();
    const uint32_t index = slab->index_of(address);
    if (index == slab->blocks) [[unlikely]]
      return Unkept::kNobodys;
    entry.tag = slab->tags() + index;
    const uint16_t tag = entry.tag->exchange(0, std::memory_order_relaxed);
    *asked = slab->asked(tag);
    if (static_cast<int16_t>(tag) <= 0) [[unlikely]] {
      *asked |= kMarkedAsked;
      return tag == 0 ? Unkept::kNobodys : Unkept::kSpecial;
    }
    entry.range = slab->range;
    pool = slab->pool;
    size_class = slab->size_class;
  } else {
    Range* const range = owner.plain_range();
    if (range->start != address) [[unlikely]]
      return Unkept::kNobodys;
    *asked = range->asked.exchange(0, std::memory_order_relaxed);
    if (static_cast<int64_t>(*asked) <= 0) [[unlikely]]
      return *asked == 0 ? Unkept::kNobodys : Unkept::kSpecial;
    entry.range = range;
    pool = range->pool;
    size_class = range->size_class.load(std::memory_order_relaxed);
  }
  ThreadCache* const cache = this_thread.last;
  if (cache == nullptr || cache->pool() != pool || pool->frees_specially() || !cache->try_enter())
      [[unlikely]]
    return Unkept::kSpecial;
  entry.stamp = order_.open();
  const bool kept = size_class != SizeClasses::kNotKept ? cache->put(size_class, entry)
                                                        : cache->large().put(pool->most_kept_large(), entry);
  cache->exit();
  if (!kept) [[unlikely]]
    return Unkept::kNoRoom;
  cache->holdings().take_back(*asked, cache->kept_bytes(size_class, entry));
  return Unkept::kNot;
}

}  // namespace cupool::pool
