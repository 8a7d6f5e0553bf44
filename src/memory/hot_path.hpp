// The hot path of an allocation and of a free: a block that the calling thread keeps, or will keep. It takes
// no lock and makes no call, so that no register has to be saved; the slow path is in memory.cpp. In a loop
// of one size the cost of a pair is its instruction count; with mixed sizes every unpredictable branch costs
// more than a few instructions.
#pragma once

#include "memory/memory.hpp"
#include "pool/page_map.hpp"

namespace cupool::memory {

using pool::Entry;
using pool::kNotKept;
using pool::page_map;
using pool::this_thread;
using pool::ThreadCache;

template <typename Word>
[[gnu::always_inline]] inline Kept Memory::allocate_kept(driver::Context context, uint64_t bytes, Word* out) {
  ThreadCache* const cache = this_thread.last;
  if (cache == nullptr || cache->pool()->context() != context) [[unlikely]]
    return Kept::kUnknown;
  const auto none = [bytes] { return bytes == 0 ? Kept::kUnknown : Kept::kNone; };
  if (!cache->order().is_idle() || !cache->try_enter()) [[unlikely]]
    return none();
  Entry entry;
  const unsigned size_class = cache->sizes().of(bytes);
  const bool hit = size_class != kNotKept ? cache->shelves().take_newest(size_class, &entry)
                                          : cache->large().take(cache->sizes().rounded(bytes), &entry);
  cache->exit();
  if (!hit) [[unlikely]]
    return none();
  pool::hand_out(*cache, entry, size_class, cache->kept_bytes(size_class, entry), bytes, out);
  return Kept::kTaken;
}

// Clearing the tag claims the free; a double free reads 0. The tag of a marked block is negative.
[[gnu::always_inline]] inline Unkept Memory::free_kept(Address address, uint64_t* asked) {
  const pool::BlockRecord* const record = page_map.find(address);
  if (record == nullptr) [[unlikely]]
    return Unkept::kNotLive;
  const uint32_t index = record->index_containing(address);
  if (!record->starts(index, address)) [[unlikely]]
    return Unkept::kNotLive;
  pool::Tag* const tag = record->tags + index;
  const uint16_t held = tag->exchange(0, std::memory_order_relaxed);
  *asked = record->asked(held);
  if (static_cast<int16_t>(held) <= 0) [[unlikely]] {
    *asked |= pool::kMarkedAsked;
    return held == 0 ? Unkept::kNotLive : Unkept::kSpecial;
  }
  pool::Pool* const owner = record->pool;
  const unsigned size_class = record->class_of_blocks();
  Entry entry{address, record->range, 0, tag};
  ThreadCache* const cache = this_thread.last;
  if (cache == nullptr || cache->pool() != owner || owner->frees_specially() || !cache->try_enter())
      [[unlikely]]
    return Unkept::kSpecial;
  const order::Timeline& order = cache->order();
  entry.stamp = order.open();
  // Read before the put: after it another thread may empty the cache and merge the block.
  const uint64_t block_bytes = cache->kept_bytes(size_class, entry);
  const bool kept = size_class != kNotKept ? cache->shelves().put(size_class, entry)
                                           : cache->large().put(owner->most_kept_large(), entry);
  cache->exit();
  if (!kept) [[unlikely]]
    return Unkept::kNoRoom;
  cache->tally().take_back(*asked, block_bytes);
  return order.is_idle() ? Unkept::kNot : Unkept::kUnsealed;
}

}  // namespace cupool::memory
