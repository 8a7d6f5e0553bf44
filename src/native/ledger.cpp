// See ledger.hpp.
#include "native/ledger.hpp"

#include <algorithm>
#include <iterator>

#include "stats/device.hpp"
#include "upstream/limit.hpp"

namespace cupool::native {

using stats::DeviceCounter;
using upstream::Limit;

ContextPool* Ledger::find_locked(driver::Context context) const {
  for (ContextPool* const pool : pools_) {
    if (pool->context == context) return pool;
  }
  return nullptr;
}

ContextPool* Ledger::find(driver::Context context) {
  Guard hold(lock_);
  return find_locked(context);
}

ContextPool* Ledger::enter(ContextPool* made) {
  Guard hold(lock_);
  if (ContextPool* const earlier = find_locked(made->context)) return earlier;
  made->tally = &stats::device(made->device).add_thread_tally();
  pools_.push_back(made);
  return nullptr;
}

std::vector<ContextPool*> Ledger::pools() {
  Guard hold(lock_);
  return pools_;
}

void Ledger::enter_block(ContextPool& pool, Address address, uint64_t bytes) {
  Guard hold(lock_);
  blocks_[address] = {&pool, bytes};
  pool.tally->give(bytes, bytes);
}

ContextPool* Ledger::pool_of(Address address, driver::Context* context) {
  Guard hold(lock_);
  const auto found = blocks_.find(address);
  if (found == blocks_.end()) return nullptr;
  if (context != nullptr) *context = found->second.pool->context;
  return found->second.pool;
}

void Ledger::visit_live(allocator::VisitLive visit, void* data) {
  Guard hold(lock_);
  allocator::BlockInfo info{};
  for (const auto& [address, block] : blocks_) {
    info.start = address;
    info.bytes = info.given = block.bytes;
    info.context = block.pool->context;
    visit(info, data);
  }
}

ContextPool* Ledger::take_out(Address address, driver::Context* context) {
  Guard hold(lock_);
  const auto found = blocks_.find(address);
  if (found == blocks_.end()) return nullptr;
  const auto [pool, bytes] = found->second;
  blocks_.erase(found);
  *context = pool->context;
  pool->live.fetch_sub(bytes, std::memory_order_relaxed);
  Limit::give_back(pool->device, bytes);
  pool->tally->take_back(bytes, bytes);
  stats::device(pool->device).count(DeviceCounter::native_frees);
  return pool;
}

void Ledger::defer(ContextPool& pool, Address address) {
  Guard hold(lock_);
  deferred_.emplace_back(address, &pool);
  has_deferred_.store(true, std::memory_order_relaxed);
}

std::vector<Address> Ledger::take_deferred(ContextPool& pool) {
  std::vector<Address> taken;
  Guard hold(lock_);
  for (const auto& [address, from] : deferred_) {
    if (from == &pool) taken.push_back(address);
  }
  std::erase_if(deferred_, [&](const auto& one) { return one.second == &pool; });
  if (deferred_.empty()) has_deferred_.store(false, std::memory_order_relaxed);
  return taken;
}

ContextPool* Ledger::begin_end(driver::Context context, uint64_t ending) {
  Guard hold(lock_);
  ContextPool* const pool = find_locked(context);
  if (pool == nullptr) return nullptr;
  Orphans left{ending, pool, {}, {}};
  for (auto block = blocks_.begin(); block != blocks_.end();) {
    const bool theirs = block->second.pool == pool;
    if (theirs) left.blocks.emplace_back(block->first, block->second.bytes);
    block = theirs ? blocks_.erase(block) : std::next(block);
  }
  for (const auto& [address, from] : deferred_) {
    if (from == pool) left.deferred.push_back(address);
  }
  std::erase_if(deferred_, [&](const auto& one) { return one.second == pool; });
  std::erase(pools_, pool);
  orphans_.push_back(std::move(left));
  return pool;
}

ContextPool* Ledger::end(uint64_t ending, bool gone, bool* is_empty) {
  Guard hold(lock_);
  const auto found = std::find_if(orphans_.begin(), orphans_.end(),
                                  [&](const Orphans& one) { return one.ending == ending; });
  if (found == orphans_.end()) return nullptr;
  ContextPool* const pool = found->pool;
  found->gone = gone;
  *is_empty = gone && found->is_empty();
  if (gone) {
    Limit::give_back(pool->device, pool->live.exchange(0, std::memory_order_relaxed));
    pool->tally->drop();
  } else {
    restore_locked(*found);
  }
  if (*is_empty || !gone) orphans_.erase(found);
  return pool;
}

void Ledger::restore_locked(const Orphans& orphans) {
  pools_.push_back(orphans.pool);
  for (const auto& [address, bytes] : orphans.blocks) blocks_[address] = {orphans.pool, bytes};
  for (const Address address : orphans.deferred) deferred_.emplace_back(address, orphans.pool);
  if (!deferred_.empty()) has_deferred_.store(true, std::memory_order_relaxed);
}

std::vector<Orphans> Ledger::take_orphans(int device) {
  Guard hold(lock_);
  const auto theirs = std::stable_partition(orphans_.begin(), orphans_.end(), [&](const Orphans& one) {
    return !one.gone || one.pool->device != device;
  });
  std::vector<Orphans> taken(std::make_move_iterator(theirs), std::make_move_iterator(orphans_.end()));
  orphans_.erase(theirs, orphans_.end());
  return taken;
}

driver::NativeUsage Ledger::usage(ContextPool& pool, const driver::NativeUsage* answer) {
  Guard hold(lock_);
  if (answer != nullptr) pool.seen = *answer;
  return pool.seen;
}

void Ledger::keep_peaks(const ContextPool& pool, const driver::NativeUsage* answer) {
  Guard hold(lock_);
  const driver::NativeUsage& last = answer != nullptr ? *answer : pool.seen;
  driver::NativeUsage& past = past_[pool.device];
  past.peak_used = std::max(past.peak_used, last.peak_used);
  past.peak_reserved = std::max(past.peak_reserved, last.peak_reserved);
}

void Ledger::add_past_peaks(int device, driver::NativeUsage* sum) {
  Guard hold(lock_);
  const auto past = past_.find(device);
  if (past == past_.end()) return;
  sum->peak_used = std::max(sum->peak_used, past->second.peak_used);
  sum->peak_reserved = std::max(sum->peak_reserved, past->second.peak_reserved);
}

void Ledger::forget_past_peaks() {
  Guard hold(lock_);
  past_.clear();
}

}  // namespace cupool::native
