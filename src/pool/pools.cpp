#include "pool/pools.hpp"

#include <pthread.h>

#include <algorithm>

#include "pool/page_map.hpp"
#include "stats/counters.hpp"

namespace cupool::pool {

using driver::kInvalidContext;
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
void hand_out(const Entry& entry, uint64_t asked) {
  if (Slab* slab = entry.range->slab.load(std::memory_order_relaxed)) {
    const uint32_t index = slab->index_of(entry.address - entry.range->start);
    slab->tags[index].store(static_cast<uint16_t>(slab->block_bytes - asked + 1), std::memory_order_relaxed);
  } else {
    entry.range->asked.store(asked, std::memory_order_relaxed);
  }
}

}  // namespace

Status Pools::allocate(driver::Context context, uint64_t bytes, Address* out) {
  ThreadCache* cache = this_thread.last;
  if (cache == nullptr || cache->pool()->context() != context) {
    cache = cache_of(context);
    if (cache == nullptr) return driver_->allocate(bytes, out);
  }
  Pool& pool = *cache->pool();
  const unsigned size_class = pool.sizes().of(bytes);
  Entry entry;
  bool hit = false;
  if (size_class != SizeClasses::kNotKept) {
    cache->enter();
    hit = cache->take(size_class, order_, &entry);
    cache->exit();
  }
  if (hit) {
    stats::count(stats::Counter::thread_hits);
  } else if (const Status status = pool.find_block(*cache, size_class, bytes, &entry); status != kSuccess) {
    return status;
  }
  hand_out(entry, bytes);
  cache->held(static_cast<int64_t>(bytes));
  *out = entry.address;
  return kSuccess;
}

Freed Pools::free(Address address) {
  Range* range = page_map.find(address);
  if (range == nullptr) return page_map.is_ours(address) ? Freed::kNobodys : Freed::kNotOurs;

  unsigned size_class;
  uint64_t asked;
  if (Slab* slab = range->slab.load(std::memory_order_acquire)) {
    const uint32_t index = slab->index_of(address - range->start);
    if (index == slab->blocks) return Freed::kNobodys;
    // Whoever takes the tag frees the block; a second free finds nothing.
    const uint16_t tag = slab->tags[index].exchange(0, std::memory_order_acq_rel);
    if (tag == 0) return Freed::kNobodys;
    size_class = slab->size_class;
    asked = slab->block_bytes + 1u - tag;
  } else {
    if (range->start != address) return Freed::kNobodys;
    asked = range->asked.exchange(0, std::memory_order_acq_rel);
    if (asked == 0) return Freed::kNobodys;
    size_class = range->size_class.load(std::memory_order_relaxed);
  }

  Pool* pool = range->pool;
  ThreadCache* cache = this_thread.last;
  if (cache == nullptr || cache->pool() != pool) cache = find_cache(pool);
  if (pool->settings().free_waits) order_.wait_for_all();
  const Entry entry{address, range, order_.open()};
  if (cache == nullptr) {
    pool->give_blocks(size_class, &entry, 1);
    return Freed::kDone;
  }
  bool kept = false;
  cache->held(-static_cast<int64_t>(asked));
  cache->freed(asked);
  if (size_class != SizeClasses::kNotKept) {
    cache->enter();
    kept = cache->put(size_class, entry, pool->sizes().bytes(size_class));
    cache->exit();
  }
  if (!kept) pool->take_back(*cache, size_class, entry);
  return Freed::kDone;
}

ThreadCache* Pools::cache_of(driver::Context context) {
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
  if (driver_->memory(&free, &total) != kSuccess) return nullptr;
  Guard hold(lock_);
  if (Pool* pool = pool_of(context)) return pool;
  if (std::find(failed_.begin(), failed_.end(), context) != failed_.end()) return nullptr;
  for (auto& slot : pools_) {
    if (Pool* pool = slot.load(std::memory_order_relaxed)) {
      if (!pool->reopen(context, total)) continue;
      order_.join(context);
      return pool;
    }
    if (&slot == pools_.data()) {
      prepare_thread_caches();
      pthread_key_create(&thread_key, on_thread_end);
    }
    auto* pool = new (std::nothrow) Pool(context, total, *driver_, order_);
    if (pool == nullptr) return nullptr;
    order_.join(context);
    slot.store(pool, std::memory_order_release);
    return pool;
  }
  return nullptr;
}

void Pools::close(driver::Context context) {
  if (Pool* pool = pool_of(context)) pool->close();
  order_.leave(context);
  Guard hold(lock_);
  std::erase(failed_, context);
}

void Pools::fail(driver::Context context) {
  close(context);
  Guard hold(lock_);
  failed_.push_back(context);
}

bool Pools::find(Address address, Pool::Held* out) const {
  for (const auto& slot : pools_) {
    Pool* pool = slot.load(std::memory_order_acquire);
    if (pool == nullptr) return false;
    if (pool->context() != nullptr && pool->find_held(address, out)) return true;
  }
  return false;
}

bool Pools::owns(Address address) { return page_map.is_ours(address); }

uint64_t Pools::release_everything() {
  uint64_t released = 0;
  for_each([&](Pool& pool) { released += pool.release_everything(); });
  return released;
}

uint64_t Pools::releasable_bytes(driver::Context context) {
  Pool* pool = pool_of(context);
  return pool == nullptr ? 0 : pool->releasable_bytes();
}

void Pools::forget_after_fork() {
  lock_.reset_after_fork();
  failed_.clear();
  this_thread = {};
  for (auto& slot : pools_) slot.store(nullptr, std::memory_order_relaxed);
  page_map.forget_after_fork();
  order_.forget_after_fork();
}

}  // namespace cupool::pool
