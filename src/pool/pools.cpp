// The hot path of allocation and free, the caches of the calling thread, and the table of pools. The table
// grows under `lock_` and is read without it; the hot path takes no lock and makes no call.
#include "pool/pools.hpp"

#include <pthread.h>

#include <algorithm>

#include "pool/page_map.hpp"
#include "stats/counters.hpp"

namespace cupool::pool {

using driver::kSuccess;

namespace {

// The caches of this thread: the one used last, and all of them.
struct ThisThread {
  ThreadCache* last = nullptr;
  ThreadCache* all = nullptr;
};
constinit thread_local ThisThread this_thread;

pthread_key_t thread_key;
void on_thread_end(void*) { Pools::end_thread(); }

// From now on the application holds this block.
inline void hand_out(ThreadCache& cache, unsigned size_class, const Entry& entry, uint64_t asked,
                     Address* out) {
  uint64_t block_bytes;
  if (entry.tag != nullptr) {
    block_bytes = cache.sizes().bytes(size_class);
    entry.tag->store(Slab::tag_of(block_bytes, asked), std::memory_order_relaxed);
  } else {
    block_bytes = entry.range->bytes;
    entry.range->asked.store(asked, std::memory_order_relaxed);
  }
  cache.holdings().give(asked, block_bytes);
  *out = entry.address;
}

// Hands out a block that this thread keeps, if one of them may be; false: none.
[[gnu::always_inline]] inline bool hand_out_kept(ThreadCache& cache, const order::Timeline& order,
                                                 uint64_t asked, Address* out) {
  const unsigned size_class = cache.sizes().of(asked);
  Entry entry;
  cache.enter();
  const bool hit = size_class != SizeClasses::kNotKept
                       ? cache.take(size_class, order, &entry)
                       : cache.take_large(cache.sizes().rounded(asked), order, &entry);
  cache.exit();
  if (hit) hand_out(cache, size_class, entry, asked, out);
  return hit;
}

// Takes the block that starts at this address from the application. Whoever takes the tag, or the size, has
// freed the block; a second free finds nothing. False: nobody holds such a block.
inline bool take_from_application(Owner owner, Address address, Pools::Returned* out) {
  if (owner.is_slab()) {
    Slab* const slab = owner.slab();
    const uint32_t index = slab->index_of(address);
    if (index == slab->blocks) return false;
    const uint16_t tag = slab->tags()[index].exchange(0, std::memory_order_relaxed);
    *out = {{address, slab->range, 0, slab->tags() + index},
            slab->pool,
            slab->asked(tag),
            slab->block_bytes,
            slab->size_class,
            (tag & kMarkedTag) != 0};
    return tag != 0;
  }
  Range* range = owner.plain_range();
  if (range->start != address) return false;
  const uint64_t asked = range->asked.exchange(0, std::memory_order_relaxed);
  *out = {{address, range, 0, nullptr},
          range->pool,
          asked & ~kMarkedAsked,
          range->bytes,
          range->size_class.load(std::memory_order_relaxed),
          (asked & kMarkedAsked) != 0};
  return asked != 0;
}

}  // namespace

Status Pools::allocate(driver::Context context, uint64_t bytes, Address* out) {
  ThreadCache* cache = this_thread.last;
  if (cache == nullptr || cache->pool()->context() != context || !order_.is_granted()) [[unlikely]]
    return allocate_carefully(context, bytes, out);
  if (hand_out_kept(*cache, order_, bytes, out)) [[likely]]
    return kSuccess;
  return allocate_from_pool(*cache, context, bytes, out);
}

// Not this thread's last pool, or only memory that is safe may be handed out.
Status Pools::allocate_carefully(driver::Context context, uint64_t bytes, Address* out) {
  ThreadCache* cache = this_thread.last;
  if (cache == nullptr || cache->pool()->context() != context) {
    cache = cache_of(context);
    if (cache == nullptr) return allocate_past_the_pool(context, bytes, out);
  }
  order_.prefer_grant();
  if (hand_out_kept(*cache, order_, bytes, out)) return kSuccess;
  return allocate_from_pool(*cache, context, bytes, out);
}

Status Pools::allocate_from_pool(ThreadCache& cache, driver::Context context, uint64_t bytes, Address* out) {
  Pool& pool = *cache.pool();
  // The context does not end while a block of it is on its way to the program.
  const Pool::Use use(pool);
  if (!use.is_open()) return driver_->allocate(bytes, out);
  const unsigned size_class = cache.sizes().of(bytes);
  Entry entry;
  Status status = pool.find_block(cache, size_class, bytes, &entry);
  // The pool gave back what it could; others may keep memory on the same device.
  if (status == driver::kOutOfMemory && pool.may_take(bytes) && release_everything(pool.device()) != 0)
    status = pool.find_block(cache, size_class, bytes, &entry);
  if (status != kSuccess) return allocate_at_last(pool, context, bytes, status, out);
  hand_out(cache, size_class, entry, bytes, out);
  return kSuccess;
}

Freed Pools::free(Address address) {
  const Owner owner = page_map.find(address);
  if (!owner) return page_map.is_ours(address) ? Freed::kNobodys : free_whole(address);
  Returned block;
  if (!take_from_application(owner, address, &block)) return Freed::kNobodys;

  ThreadCache* cache = this_thread.last;
  if (cache == nullptr || cache->pool() != block.pool || block.marked || block.pool->frees_specially())
      [[unlikely]]
    return free_slowly(block);
  block.entry.stamp = order_.open();
  cache->holdings().take_back(block.asked, block.block_bytes);
  bool kept = false;
  if (block.size_class != SizeClasses::kNotKept) {
    cache->enter();
    kept = cache->put(block.size_class, block.entry, order_);
    cache->exit();
  }
  return kept ? Freed::kDone : take_back(*cache, block);
}

// Not this thread's last pool, or a block or a pool with something special about it.
Freed Pools::free_slowly(Returned block) {
  Pool& pool = *block.pool;
  if (pool.context() == nullptr) return Freed::kNotOurs;
  ThreadCache* cache = find_cache(&pool);
  block.entry.stamp = order_.open();
  if (pool.settings().free_waits) order_.wait_for_all();
  if (cache != nullptr) cache->holdings().take_back(block.asked, block.block_bytes);
  if (cache != nullptr && !block.marked) return take_back(*cache, block);
  pool.take_back_marked(block.size_class, block.entry);
  return Freed::kDone;
}

Freed Pools::take_back(ThreadCache& cache, Returned block) {
  block.pool->take_back(cache, block.size_class, block.entry);
  return Freed::kDone;
}

Status Pools::allocate_native(driver::Context context, uint64_t bytes, Address* out) {
  const Arrival arrival(*this, context);
  if (!arrival.is_welcome()) return driver_->allocate(bytes, out);
  const Status status = native()->allocate(context, bytes, out);
  if (status != driver::kOutOfMemory) return status;
  const Status again = release_everything() != 0 ? native()->allocate(context, bytes, out) : status;
  if (again == driver::kOutOfMemory) native()->note_failure(context, bytes);
  return again;
}

Status Pools::allocate_past_the_pool(driver::Context context, uint64_t bytes, Address* out) {
  if (native_first_.load(std::memory_order_relaxed)) {
    const Status status = allocate_native(context, bytes, out);
    if (status != driver::kNotSupported) return status;
    native_first_.store(false, std::memory_order_relaxed);
    return allocate(context, bytes, out);
  }
  if (whole_only_.load(std::memory_order_relaxed)) return allocate_whole(context, *driver_, bytes, out);
  const Status status = driver_->allocate(bytes, out);
  if (status == kSuccess) stats::count(stats::Counter::forwarded_allocations);
  return status;
}

// The pool found nothing: the last resort, if there is one, and else a word about why.
Status Pools::allocate_at_last(Pool& pool, driver::Context context, uint64_t bytes, Status status,
                               Address* out) {
  if (status != driver::kOutOfMemory) return status;
  Native* const last = native();
  if (last != nullptr && pool.may_take(bytes, last->live())) {
    const Status served = last->allocate(context, bytes, out);
    if (served == driver::kOutOfMemory) last->note_failure(context, bytes);
    if (served == kSuccess) stats::device(pool.device()).count(stats::DeviceCounter::fallback_allocations);
    if (served != driver::kNotSupported) return served;
  }
  pool.note_failure(bytes);
  return status;
}

void Pools::use_native(Native* native, NativeUse use) {
  native_.store(native, std::memory_order_release);
  native_first_.store(native != nullptr && use == NativeUse::kFirst, std::memory_order_relaxed);
}

ThreadCache* Pools::cache_of(driver::Context context) {
  if (whole_only_.load(std::memory_order_relaxed) || native_first_.load(std::memory_order_relaxed))
    return nullptr;
  Pool* pool = pool_of(context);
  if (pool == nullptr) pool = open(context);
  return pool == nullptr ? nullptr : find_cache(pool);
}

ThreadCache* Pools::find_cache(Pool* pool) {
  for (ThreadCache* cache = this_thread.all; cache != nullptr; cache = cache->next_of_thread) {
    if (cache->pool() == pool) return this_thread.last = cache;
  }
  ThreadCache* cache = pool->adopt_cache();
  if (cache == nullptr) return nullptr;
  cache->next_of_thread = this_thread.all;
  this_thread.all = this_thread.last = cache;
  pthread_setspecific(thread_key, &this_thread);
  return cache;
}

void Pools::end_thread() {
  ThreadCache* cache = this_thread.all;
  this_thread = {};
  while (cache != nullptr) {
    ThreadCache* next = cache->next_of_thread;
    cache->pool()->abandon_cache(cache);
    cache = next;
  }
}

Pool* Pools::pool_of(driver::Context context) {
  for (auto& slot : pools_) {
    Pool* pool = slot.load(std::memory_order_acquire);
    if (pool == nullptr) return nullptr;
    if (pool->context() == context) return pool;
  }
  return nullptr;
}

Pool* Pools::open(driver::Context context) {
  size_t free = 0;
  size_t total = 0;
  int device = 0;
  if (driver_->memory(&free, &total) != kSuccess || driver_->device(&device) != kSuccess) return nullptr;
  Guard hold(lock_);
  if (Pool* pool = pool_of(context)) return pool;
  if (is_off_locked(context)) return nullptr;
  Pool* const rested = rested_pool_locked(device);
  if (rested != nullptr && rested->reopen(context, device)) {
    order_.join(context);
    return rested;
  }
  for (auto& slot : pools_) {
    if (slot.load(std::memory_order_relaxed) != nullptr) continue;
    if (&slot == pools_.data()) {
      prepare_thread_caches();
      pthread_key_create(&thread_key, on_thread_end);
    }
    auto* pool = new (std::nothrow) Pool(context, device, total, *driver_, order_);
    if (pool == nullptr) return nullptr;
    const uint64_t max_cached = max_cached_.load(std::memory_order_relaxed);
    if (max_cached != kFromOptions) pool->set_max_cached(max_cached);
    order_.join(context);
    slot.store(pool, std::memory_order_release);
    return pool;
  }
  return nullptr;
}

void Pools::fail(driver::Context context) {
  order_.leave(context);
  Guard hold(lock_);
  if (std::find(failed_.begin(), failed_.end(), context) == failed_.end()) failed_.push_back(context);
  if (Pool* pool = pool_of(context)) pool->fail();
}

Pool* Pools::pool_at(Address address) { return page_map.pool_of(address); }

uint64_t Pools::release_everything(int device) {
  uint64_t released = release_whole();
  if (Native* const one = native(); one != nullptr && !order_.is_capturing()) released += one->trim(0);
  for_each([&](Pool& pool) {
    if (device == kEveryDevice || device == pool.device()) released += pool.release_everything();
  });
  return released;
}

uint64_t Pools::releasable_bytes(driver::Context context) {
  Pool* pool = pool_of(context);
  Wholes* wholes = wholes_.load(std::memory_order_acquire);
  return (pool == nullptr ? 0 : pool->releasable_bytes()) +
         (wholes == nullptr ? 0 : wholes->releasable_bytes(context));
}

uint64_t Pools::trim(uint64_t keep) {
  uint64_t released = 0;
  for_each([&](Pool& pool) { released += pool.trim(keep); });
  if (Native* const one = native(); one != nullptr && !order_.is_capturing()) released += one->trim(keep);
  return released;
}

void Pools::set_max_cached(uint64_t bytes) {
  max_cached_.store(bytes, std::memory_order_relaxed);
  for_each([&](Pool& pool) { pool.set_max_cached(bytes); });
}

void Pools::decay() {
  for_each([](Pool& pool) { pool.decay(); });
}

uint64_t Pools::largest_free(int device, bool wait) {
  uint64_t largest = 0;
  for_each([&](Pool& pool) {
    if (pool.device() == device) largest = std::max(largest, pool.ranges().largest_free(wait));
  });
  return largest;
}

void Pools::forget_after_fork() CUPOOL_NO_THREAD_SAFETY_ANALYSIS {
  lock_.reset_after_fork();
  failed_.clear();
  ending_.clear();
  arriving_.clear();
  wholes_.store(nullptr, std::memory_order_relaxed);
  this_thread = {};
  for (auto& slot : pools_) slot.store(nullptr, std::memory_order_relaxed);
  use_native(nullptr, NativeUse::kLast);
  page_map.forget_after_fork();
  order_.forget_after_fork();
}

}  // namespace cupool::pool
