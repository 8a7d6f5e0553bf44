// See pool_table.hpp.
#include "pool/pool_table.hpp"

#include <new>

#include "base/asymmetric_fence.hpp"
#include "base/log.hpp"
#include "pool/this_thread.hpp"

namespace cupool::pool {

using driver::kSuccess;

Pool* PoolTable::find(driver::Context context) {
  for (auto& slot : pools_) {
    Pool* pool = slot.load(std::memory_order_acquire);
    if (pool == nullptr) return nullptr;
    if (pool->context() == context) return pool;
  }
  return nullptr;
}

Pool* PoolTable::open(driver::Context context) {
  size_t free = 0;
  size_t total = 0;
  int device = 0;
  if (driver_->memory(&free, &total) != kSuccess || driver_->device(&device) != kSuccess) return nullptr;
  driver::Mapping* const mapping = mapping_for(device);
  Guard hold(lock_);
  if (Pool* pool = find(context)) return pool;
  if (in_flight_.is_off(context)) return nullptr;
  order::Timeline* const order = order_.of(context);
  if (order == nullptr) return nullptr;
  Pool* const rested = rested_pool_locked(device);
  if (rested != nullptr && rested->reopen(context, device, *order)) {
    let_peers_in_locked(*rested);
    return rested;
  }
  for (auto& slot : pools_) {
    if (slot.load(std::memory_order_relaxed) != nullptr) continue;
    if (&slot == pools_.data()) prepare_thread_ends();
    auto* pool =
        new (std::nothrow) Pool(context, device, total, *driver_, *source_, mapping, *order, in_flight_);
    if (pool == nullptr) return nullptr;
    const uint64_t max_cached = max_cached_.load(std::memory_order_relaxed);
    if (max_cached != kFromOptions) pool->tenancy().set_max_cached(max_cached);
    let_peers_in_locked(*pool);
    slot.store(pool, std::memory_order_release);
    return pool;
  }
  return nullptr;
}

driver::Mapping* PoolTable::mapping_for(int device) {
  driver::Mapping* const mapping = mapping_.load(std::memory_order_acquire);
  if (mapping == nullptr || mapping->can_map(device)) return mapping;
  static constinit log::Once once;
  if (once.first())
    log::line("device {} or its driver cannot map memory: CUPOOL_SEGMENTS=mapped has no effect there",
              device);
  return nullptr;
}

void PoolTable::stop_mapping() {
  mapping_.store(nullptr, std::memory_order_release);
  for (auto& slot : pools_) {
    if (Pool* const pool = slot.load(std::memory_order_acquire)) pool->segments().stop_mapping();
  }
}

// Nothing is mapped there yet, so the driver is not called.
void PoolTable::let_peers_in_locked(Pool& pool) {
  for (const int device : peers_.devices_of(pool.context())) pool.segments().space().allow(device);
}

Pool* PoolTable::rested_pool_locked(int device) const {
  Pool* oldest = nullptr;
  size_t resting = 0;
  for (const auto& slot : pools_) {
    Pool* const pool = slot.load(std::memory_order_relaxed);
    if (pool == nullptr || pool->tenancy().closed_at() == 0 || pool->tenancy().is_ending() ||
        pool->device() != device)
      continue;
    ++resting;
    if (oldest == nullptr || pool->tenancy().closed_at() < oldest->tenancy().closed_at()) oldest = pool;
  }
  const bool is_full = pools_.back().load(std::memory_order_relaxed) != nullptr;
  return resting > kResting || is_full ? oldest : nullptr;
}

// ---- The end of a context.

void PoolTable::fail(driver::Context context) {
  Guard hold(lock_);
  if (Pool* pool = find(context)) pool->tenancy().fail();
}

void PoolTable::shut(driver::Context context) {
  {
    Guard hold(lock_);
    if (Pool* const pool = find(context)) {
      pool->tenancy().fail();
      pool->tenancy().shut();
    }
  }
  AsymmetricFence::order_all_threads();
}

bool PoolTable::is_in_use(driver::Context context) {
  for (auto& slot : pools_) {
    Pool* const pool = slot.load(std::memory_order_acquire);
    if (pool != nullptr && pool->tenancy().belongs_to(context) && pool->caches().is_in_use()) return true;
  }
  return false;
}

void PoolTable::begin_end(driver::Context context, uint64_t ending) {
  // Under the lock, so that the pool is not reopened before it is empty.
  Guard hold(lock_);
  for (auto& slot : pools_) {
    Pool* pool = slot.load(std::memory_order_relaxed);
    if (pool != nullptr && pool->tenancy().belongs_to(context)) pool->close(ending);
  }
  peers_.note_ending(context, ending);
}

void PoolTable::ended(uint64_t ending, bool gone) {
  const auto is_meant = [&](Pool* pool) {
    Guard hold(lock_);
    return pool->tenancy().closed_at() == ending;
  };
  for (auto& slot : pools_) {
    Pool* const pool = slot.load(std::memory_order_acquire);
    if (pool != nullptr && pool->tenancy().is_ending() && is_meant(pool)) pool->ended(gone);
  }
}

void PoolTable::set_max_cached(uint64_t bytes) {
  max_cached_.store(bytes, std::memory_order_relaxed);
  for_each([&](Pool& pool) { pool.tenancy().set_max_cached(bytes); });
}

void PoolTable::forget_after_fork() CUPOOL_NO_THREAD_SAFETY_ANALYSIS {
  lock_.reset_after_fork();
  for (auto& slot : pools_) slot.store(nullptr, std::memory_order_relaxed);
  peers_.clear();
}

}  // namespace cupool::pool
