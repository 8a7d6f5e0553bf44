// See pools.hpp: the slow path of allocation and free, and what is asked of all pools. Which contexts may
// access which memory is in pools_access.cpp.
#include "pool/pools.hpp"

#include <algorithm>
#include <optional>

#include "pool/page_map.hpp"
#include "pool/search.hpp"

namespace cupool::pool {

using driver::kSuccess;

namespace {

// Scope of a call that may give this thread a cache: an unannounced thread gives it up at the end.
class Parting {
 public:
  Parting() = default;
  ~Parting() {
    if (this_thread.unannounced) [[unlikely]]
      end_this_thread();
  }
  Parting(const Parting&) = delete;
  Parting& operator=(const Parting&) = delete;
};

// Hands out a block from this thread's cache; false: none may be handed out.
bool hand_out_kept(ThreadCache& cache, unsigned size_class, uint64_t asked, Address* out) {
  Entry entry;
  cache.enter();
  const Epoch limit = cache.order().cheap();
  const bool hit = size_class != kNotKept ? cache.shelves().take(size_class, limit, &entry)
                                          : cache.large().stamp() <= limit &&
                                                cache.large().take(cache.sizes().rounded(asked), &entry);
  cache.exit();
  if (!hit) return false;
  if (size_class == kNotKept && limit == order::kAnyStamp) entry.stamp = 0;
  cache.order().lean_on(entry.stamp, entry.start());
  hand_out(cache, entry, size_class, cache.kept_bytes(size_class, entry), asked, out);
  return true;
}

// A freed block and what the records say of it. No pool: its context has ended meanwhile.
struct Returned {
  Entry entry;
  Pool* pool;
  uint64_t block_bytes;
  unsigned size_class;
};
inline Returned describe(Address address) {
  const BlockRecord* const record = page_map.find(address);
  if (record == nullptr) return {};
  const unsigned size_class = record->class_of_blocks();
  return {{address, record->range, 0, record->tags + record->index_of(address)},
          record->pool,
          size_class != kNotKept ? record->bytes_of_blocks() : record->range->bytes,
          size_class};
}

}  // namespace

// The thread's last cache may be another context's, or there is none.
Status Pools::allocate(driver::Context context, uint64_t bytes, Address* out, Short when_short) {
  const Parting parting;
  const ThreadCache* const cache = this_thread.last;
  if (cache == nullptr || cache->pool()->context() != context) {
    Pool* pool = table_.find(context);
    if (pool == nullptr) pool = table_.open(context);
    if (pool == nullptr || cache_of_this_thread(*pool) == nullptr) return allocator::kDeclined;
  }
  return allocate_missed(bytes, out, when_short);
}

Status Pools::allocate_missed(uint64_t bytes, Address* out, Short when_short) {
  ThreadCache& cache = *this_thread.last;
  const unsigned size_class = cache.sizes().of(bytes);
  // For small blocks the search looks in the cache itself.
  if (!cache.sizes().is_small(size_class) && hand_out_kept(cache, size_class, bytes, out)) return kSuccess;
  Pool& pool = *cache.pool();
  // Keeps the context alive until the program has the block.
  const Tenancy::Use use(pool.tenancy(), cache);
  if (!use.is_open()) return allocator::kDeclined;
  Search search(pool, cache, size_class, bytes, when_short);
  if (!search.run()) return search.status();
  const Entry& entry = search.found();
  cache.order().lean_on(entry.stamp, entry.start());
  if (cache.sizes().is_small(size_class)) {
    hand_out(cache, entry, size_class, cache.sizes().bytes(size_class), bytes, out);
  } else {
    hand_out(cache, entry, entry.range->class_of_blocks(), entry.range->bytes, bytes, out);
  }
  return kSuccess;
}

bool Pools::may_take(driver::Context context, uint64_t bytes) {
  Pool* const pool = pool_of(context);
  if (pool == nullptr) return false;
  pool->give_reached();
  return pool->may_take(bytes);
}

void Pools::note_failure(driver::Context context, uint64_t bytes) {
  Pool* const pool = pool_of(context);
  if (pool == nullptr || !pool->inventory().note_failure(bytes)) return;
  report::Shortage shortage = pool->inventory().shortage_of(bytes);
  Needs needs;
  pool->inventory().add_to(&shortage, &needs);
  const report::Shortage own = shortage;
  table_.for_each([&](Pool& other) {
    if (&other != pool && other.device() == pool->device()) other.inventory().add_to(&shortage, &needs);
  });
  const auto pieces = [](const report::Shortage& of) { return of.free_in_shared - of.rests; };
  shortage.pieces_elsewhere = pieces(shortage) - pieces(own);
  shortage.free_segments_elsewhere = shortage.free_segments - own.free_segments;
  shortage.free_segment_bytes_elsewhere = shortage.free_segment_bytes - own.free_segment_bytes;
  pool->inventory().tell_needs(needs, &shortage);
  report::write_shortage(shortage);
}

// pre: the block is not live: the hot path has cleared its tag, or found none.
Freed Pools::free(Address address, Waits) {
  return page_map.is_ours(address) ? Freed::kNotLive : Freed::kNotOurs;
}

// The context may end until `use` has begun, so the block is looked up after that.
Freed Pools::free_unkept(Address address, uint64_t asked) {
  ThreadCache& cache = *this_thread.last;
  const Tenancy::Use use(cache.pool()->tenancy(), cache);
  Returned block = describe(address);
  if (!use.is_open() || block.pool != cache.pool()) return Freed::kNotOurs;
  block.entry.stamp = cache.order().open();
  cache.tally().take_back(asked, block.block_bytes);
  block.pool->caches().take_back(cache, block.size_class, block.entry);
  end_free(*block.pool, cache, block.block_bytes);
  return Freed::kDone;
}

// All waiting for work happens here, where the program expects it.
void Pools::end_free(Pool& pool, ThreadCache& cache, uint64_t bytes) {
  const bool has_not_waited = !cache.order().is_idle() && !pool.finish_free(cache, bytes);
  // (Another thread may have submitted work since a free that waits has waited.)
  const bool avoids_wait = has_not_waited && !pool.settings().free_waits;
  if (!pool.trim_to_limit() && avoids_wait) cache.order().note_unwaited_free(cache.tally().device());
}

Freed Pools::finish_free(Address address, Unkept why, uint64_t asked) {
  if (why == Unkept::kUnsealed) {
    ThreadCache& cache = *this_thread.last;
    if (const Tenancy::Use use(cache.pool()->tenancy(), cache); use.is_open())
      end_free(*cache.pool(), cache, asked);
    return Freed::kDone;
  }
  if (why == Unkept::kNoRoom) return free_unkept(address, asked);
  if (why == Unkept::kNotLive) return free(address, Waits::kIfAsked);
  const Parting parting;
  Pool* const pool = page_map.pool_of(address);
  if (pool == nullptr || pool->context() == nullptr) return Freed::kNotOurs;
  ThreadCache* cache = this_thread.last;
  if (cache == nullptr || cache->pool() != pool) cache = cache_of_this_thread(*pool);
  std::optional<Tenancy::Use> use;
  if (cache != nullptr) use.emplace(pool->tenancy(), *cache);
  Returned block = describe(address);
  if ((use && !use->is_open()) || block.pool != pool) return Freed::kNotOurs;
  block.entry.stamp = pool->order().open();
  if (pool->settings().free_waits) pool->order().wait_for_all();
  if (cache != nullptr) cache->tally().take_back(asked & ~kMarkedAsked, block.block_bytes);
  if (cache == nullptr || (asked & kMarkedAsked) != 0) {
    pool->take_back_marked(block.size_class, block.entry);
  } else if (!pool->caches().keep(*cache, block.size_class, block.entry)) {
    pool->caches().take_back(*cache, block.size_class, block.entry);
  }
  // First, because it may wait: then nothing is pending any more.
  pool->segments().release_tainted(true);
  if (cache != nullptr) end_free(*pool, *cache, block.block_bytes);
  return Freed::kDone;
}

Freed Pools::free_on(Address address, driver::Stream stream, order::Timeline* elsewhere) {
  const Parting parting;
  const BlockRecord* const record = page_map.find(address);
  const uint32_t index = record == nullptr ? 0 : record->index_of(address);
  if (record == nullptr || index >= record->blocks) return free(address, Waits::kNever);
  // First, so that nobody takes the block for free meanwhile.
  record->pending_frees.fetch_add(1, std::memory_order_relaxed);
  const uint16_t held = record->tags[index].exchange(0, std::memory_order_release);
  Pool* const pool = record->pool;
  if (held == 0 || pool->context() == nullptr) {
    record->pending_frees.fetch_sub(1, std::memory_order_relaxed);
    return held == 0 ? free(address, Waits::kNever) : Freed::kNotOurs;
  }
  const uint64_t asked = record->asked(held);
  ThreadCache* const cache = cache_of_this_thread(*pool);
  std::optional<Tenancy::Use> use;
  if (cache != nullptr) use.emplace(pool->tenancy(), *cache);
  const Returned block = describe(address);
  if ((use && !use->is_open()) || block.pool != pool) {
    record->pending_frees.fetch_sub(1, std::memory_order_relaxed);
    return Freed::kNotOurs;
  }
  if (cache != nullptr) cache->tally().take_back(asked, block.block_bytes);
  pool->take_back_on(stream, elsewhere, block.size_class, block.entry, asked);
  return Freed::kDone;
}

void Pools::refuse_free(Address address, Unkept why, uint64_t asked) {
  const BlockRecord* const record = why == Unkept::kNotLive ? nullptr : page_map.find(address);
  if (record == nullptr) return;
  // The tag that hand_out() stored.
  const uint64_t told = record->bytes_of_blocks() + uint64_t{1} - (asked & ~kMarkedAsked);
  const bool apart = record->class_of_blocks() == kNotKept || told >= kAskedApart;
  const unsigned mark = (asked & kMarkedAsked) != 0 ? kMarkedTag : 0u;
  record->tags[record->index_of(address)].store(
      static_cast<uint16_t>((apart ? kAskedApart : static_cast<unsigned>(told)) | mark),
      std::memory_order_relaxed);
}

// ---- For all pools, or the one that has an address.

bool Pools::owns(Address address) { return page_map.is_ours(address); }

bool Pools::find(Address address, BlockInfo* out) {
  Pool* const pool = page_map.pool_of(address);
  if (pool == nullptr || !pool->inventory().find(address, out)) return false;
  if (!out->free_pending) return true;
  pool->give_reached();
  return pool->inventory().find(address, out);
}

bool Pools::visit_mark(Address address, void (*visit)(Mark&, void*), void* data) {
  Pool* const pool = page_map.pool_of(address);
  return pool != nullptr && pool->marks().visit(address, visit, data);
}

bool Pools::taint(Address address, uint64_t, Taint reason) {
  Pool* const pool = page_map.pool_of(address);
  return pool != nullptr && pool->marks().taint(address, reason);
}

bool Pools::device_of(driver::Context context, int* device) {
  const Pool* const pool = pool_of(context);
  if (pool != nullptr) *device = pool->device();
  return pool != nullptr;
}

namespace {

order::Epoch freed_in_by_this_thread(const Pool& pool) {
  for (const ThreadCache* cache = this_thread.all; cache != nullptr; cache = cache->next_of_thread) {
    if (cache->pool() == &pool) return cache->frees().sealed();
  }
  return 0;
}

}  // namespace

uint64_t Pools::release_everything(int device, allocator::Effort effort, driver::Context asking) {
  uint64_t released = 0;
  table_.for_each([&](Pool& pool) {
    const bool is_meant = device == allocator::kEveryDevice || device == pool.device();
    if (!is_meant) return;
    const bool is_own = asking == nullptr || asking == pool.context();
    released += is_own ? pool.release_everything(effort)
                       : pool.release_for_other_context(effort, freed_in_by_this_thread(pool));
  });
  return released;
}

uint64_t Pools::most_releasable(int device, uint64_t) {
  uint64_t bytes = 0;
  table_.for_each([&](Pool& pool) {
    if (device != allocator::kEveryDevice && device != pool.device()) return;
    pool.give_reached();
    bytes += pool.segments().most_releasable();
  });
  return bytes;
}

uint64_t Pools::releasable_bytes(int device) {
  uint64_t bytes = 0;
  table_.for_each([&](Pool& pool) {
    if (device != pool.device()) return;
    pool.give_reached();
    bytes += pool.segments().releasable_bytes();
  });
  return bytes;
}

uint64_t Pools::trim(uint64_t keep) {
  uint64_t released = 0;
  table_.for_each([&](Pool& pool) { released += pool.trim(keep); });
  return released;
}

uint64_t Pools::release_idle(const allocator::Idle& which) {
  uint64_t released = 0;
  table_.for_each([&](Pool& pool) { released += pool.release_idle(which); });
  return released;
}

uint64_t Pools::largest_free(int device, bool wait) {
  uint64_t largest = 0;
  table_.for_each([&](Pool& pool) {
    if (pool.device() == device) largest = std::max(largest, pool.ranges().largest_free(wait));
  });
  return largest;
}

void Pools::visit_live(allocator::VisitLive visit, void* data) {
  table_.for_each([&](Pool& pool) { pool.inventory().visit_live(visit, data); });
}

void Pools::forget_after_fork() {
  this_thread = {};
  table_.forget_after_fork();
  page_map.forget_after_fork();
}

}  // namespace cupool::pool
