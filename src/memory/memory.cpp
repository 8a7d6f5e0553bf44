// See memory.hpp. The slow path of allocation and free: routes each request to the allocator that serves it,
// and ends contexts for all allocators; what is tried when memory is short is in shortage.cpp. `lock_`
// protects only the making of a DedicatedBlocks; no lock is held across a call of the driver.
#include "memory/memory.hpp"

#include <algorithm>
#include <new>
#include <utility>

#include "base/bytes.hpp"
#include "base/clock.hpp"
#include "base/log.hpp"
#include "config/options.hpp"
#include "context/context_ending.hpp"
#include "driver/mapping.hpp"
#include "memory/hot_path.hpp"
#include "stats/counters.hpp"
#include "upstream/limit.hpp"

namespace cupool::memory {

using allocator::Allocator;
using allocator::Effort;
using allocator::kDeclined;
using dedicated::DedicatedBlocks;
using driver::kNotSupported;
using driver::kOutOfMemory;
using driver::kSuccess;

namespace {
// How far the answer to "how much is free" may be off because of idle managed memory.
constexpr uint64_t kIdleManaged = 64 << 20;
}  // namespace

// ---- Allocation.

Status Memory::allocate(driver::Context context, uint64_t bytes, Address* out) {
  const Kept kept = allocate_kept(context, bytes, out);
  return kept == Kept::kTaken ? kSuccess : allocate_slow(context, bytes, out, kept);
}

Status Memory::allocate_slow(driver::Context context, uint64_t bytes, Address* out, Kept kept) {
  mapped::Spill* const spill = spill_.load(std::memory_order_acquire);
  if (spill != nullptr && allocate_at_once(*spill, context, bytes, out)) [[unlikely]]
    return kSuccess;
  // The thread has a cache for this context, so the pool serves it.
  if (kept == Kept::kNone)
    return finish_allocation(pools_, *device_memory_, context, bytes, out,
                             pools_.allocate_missed(bytes, out));
  if (native_first_.load(std::memory_order_relaxed)) {
    const Status status = native()->allocate(context, bytes, out);
    if (status != kNotSupported)
      return finish_allocation(*native(), *device_memory_, context, bytes, out, status);
    native_first_.store(false, std::memory_order_relaxed);
  }
  if (dedicated_only_.load(std::memory_order_relaxed))
    return allocate_dedicated(context, *device_memory_, bytes, out);
  return finish_allocation(pools_, *device_memory_, context, bytes, out,
                           pools_.allocate(context, bytes, out));
}

Status Memory::allocate_dedicated(driver::Context context, driver::Source& source, uint64_t bytes,
                                  Address* out) {
  DedicatedBlocks* const blocks = dedicated_of(source);
  if (blocks == nullptr) return allocate_from_driver(source, bytes, out);
  const Status status =
      finish_allocation(*blocks, source, context, bytes, out, blocks->allocate(context, bytes, out));
  if (status == kSuccess) forget_stale(*blocks, *out, bytes);
  return status;
}

// If another source still records this address, its context ended without our noticing.
void Memory::forget_stale(const DedicatedBlocks& owner, Address start, uint64_t bytes) {
  for (auto& slot : dedicated_) {
    DedicatedBlocks* const other = slot.load(std::memory_order_acquire);
    // (The block may be one that spilled: those have addresses of their own.)
    if (other != nullptr && other != &owner && !other->source().is_mapped()) other->forget(start, bytes);
  }
}

// Handles the answers of `first` that are not final: it declined, or is out of memory.
Status Memory::finish_allocation(Allocator& first, driver::Source& source, driver::Context context,
                                 uint64_t bytes, Address* out, Status status) {
  if (status == kDeclined) return allocate_from_driver(source, bytes, out);
  return status == kOutOfMemory ? allocate_when_short(first, source, context, bytes, out) : status;
}

Status Memory::allocate_from_driver(driver::Source& source, uint64_t bytes, Address* out) {
  const Status status = source.allocate(bytes, out);
  if (status == kSuccess && !source.is_host_visible()) stats::count(stats::Counter::forwarded_allocations);
  return status;
}

DedicatedBlocks* Memory::find_dedicated(const driver::Source& source) {
  for (auto& slot : dedicated_) {
    DedicatedBlocks* const blocks = slot.load(std::memory_order_acquire);
    if (blocks != nullptr && &blocks->source() == &source) return blocks;
  }
  return nullptr;
}

DedicatedBlocks* Memory::dedicated_of(driver::Source& source) {
  if (DedicatedBlocks* const blocks = find_dedicated(source)) return blocks;
  Guard hold(lock_);
  if (DedicatedBlocks* const blocks = find_dedicated(source)) return blocks;
  for (auto& slot : dedicated_) {
    if (slot.load(std::memory_order_relaxed) != nullptr) continue;
    auto* const made = new (std::nothrow) DedicatedBlocks(*driver_, source, order_, in_flight_);
    const uint64_t max_cached = max_cached_.load(std::memory_order_relaxed);
    if (made != nullptr && max_cached != kFromOptions) made->set_max_cached(max_cached);
    slot.store(made, std::memory_order_release);
    return made;
  }
  return nullptr;
}

void Memory::use_native(NativePool* native, NativeUse use) {
  native_.store(native, std::memory_order_release);
  native_first_.store(native != nullptr && use == NativeUse::kFirst, std::memory_order_relaxed);
}

mapped::Part Memory::chunk_at(Address address) {
  const mapped::Part chunk = pools_.chunk_at(address);
  mapped::Spill* const spill = spill_.load(std::memory_order_acquire);
  return chunk.bytes != 0 || spill == nullptr ? chunk : spill->chunk_at(address);
}

// The driver's own allocations follow by themselves.
bool Memory::set_access(driver::Context owner, const pool::Pools::Guest& guest, bool allowed) {
  allowed = pools_.set_access(owner, guest, allowed);
  mapped::Spill* const spill = spill_.load(std::memory_order_acquire);
  if (spill != nullptr && allowed) spill->let_in(guest.device);
  return allowed;
}

// ---- Free.

Freed Memory::free(Address address) {
  uint64_t asked = 0;
  const Unkept why = free_kept(address, &asked);
  return why == Unkept::kNot ? Freed::kDone : finish_free(address, why, asked);
}

Freed Memory::finish_free(Address address, Unkept why, uint64_t asked) {
  if (why != Unkept::kNotLive) return pools_.finish_free(address, why, asked);
  return free_elsewhere(address, Waits::kIfAsked);
}

Freed Memory::free_on(Address address, driver::Stream stream, order::Timeline* elsewhere) {
  Freed freed = pools_.free_on(address, stream, elsewhere);
  for (auto& slot : dedicated_) {
    DedicatedBlocks* const blocks = slot.load(std::memory_order_acquire);
    if (freed == Freed::kNotOurs && blocks != nullptr && elsewhere != nullptr)
      freed = blocks->free_after(address, *elsewhere);
  }
  return freed == Freed::kNotOurs ? free_elsewhere(address, Waits::kNever) : freed;
}

Freed Memory::free_elsewhere(Address address, Waits waits) {
  Freed freed = Freed::kNotOurs;
  for_each([&](Allocator& one) {
    if (freed == Freed::kNotOurs) freed = one.free(address, waits);
  });
  return freed;
}

// ---- Queries, and operations on all allocators.

bool Memory::find(Address address, BlockInfo* out) {
  return any([&](Allocator& one) { return one.find(address, out); });
}

bool Memory::taint(Address address, Taint reason, uint64_t bytes) {
  if (mapped::Spill* const spill = spill_.load(std::memory_order_acquire)) spill->share(address);
  return any([&](Allocator& one) { return one.taint(address, bytes, reason); });
}

bool Memory::may_be_gone(Address address) {
  if (!context::ContextEnding::is_under_way()) return false;
  const pool::Pool* const pool = pool::page_map.pool_of(address);
  if (pool != nullptr) return context::ContextEnding::is_of(pool->context());
  for (auto& slot : dedicated_) {
    DedicatedBlocks* const blocks = slot.load(std::memory_order_acquire);
    if (blocks != nullptr && context::ContextEnding::is_of(blocks->context_at(address))) return true;
  }
  return false;
}

bool Memory::owns(Address address) {
  return any([&](Allocator& one) { return one.owns(address); });
}

bool Memory::device_of(driver::Context context, int* device) {
  return any([&](Allocator& one) { return one.device_of(context, device); });
}

void Memory::settle(Address address) {
  BlockInfo held;
  if (!find(address, &held)) return;
  if (order::Timeline* const order = order_.find(held.context)) order->settle();
}

uint64_t Memory::release_everything(int device, Effort effort) {
  uint64_t released = 0;
  for_each([&](Allocator& one) { released += one.release_everything(device, effort); });
  return released;
}

uint64_t Memory::releasable_bytes(int device) {
  uint64_t bytes = 0;
  for_each([&](Allocator& one) { bytes += one.releasable_bytes(device); });
  return bytes;
}

uint64_t Memory::trim(uint64_t keep) {
  uint64_t released = 0;
  for_each([&](Allocator& one) { released += one.trim(keep); });
  return released;
}

void Memory::set_max_cached(uint64_t bytes) {
  max_cached_.store(bytes, std::memory_order_relaxed);
  for_each([&](Allocator& one) { one.set_max_cached(bytes); });
}

uint64_t Memory::release_idle(const allocator::Idle& which) {
  uint64_t released = 0;
  for_each([&](Allocator& one) {
    if (released < which.enough) released += one.release_idle(which);
  });
  return released;
}

// At most a quarter of the period late, and rare enough to cost nothing; a little at a time, because the
// program's wait takes that much longer.
void Memory::decay() {
  constexpr uint64_t kLittle = 1 << 30;
  const uint64_t period = config::options().decay_ms;
  const uint64_t now = now_ns() / 1'000'000;
  uint64_t last = decayed_at_.load(std::memory_order_relaxed);
  if (now - last < period / 4 || !decayed_at_.compare_exchange_strong(last, now)) return;
  release_idle({.for_ms = period, .enough = kLittle});
}

void Memory::decay_quiet() {
  order_.for_each([](order::Timeline& timeline) { timeline.look_if_quiet(); });
  release_idle({.for_ms = config::options().decay_ms, .only_quiet = true, .on_own_thread = true});
}

uint64_t Memory::release_for_others(int device, uint64_t bytes) {
  order_.for_each([](order::Timeline& timeline) {
    if (!timeline.is_idle()) timeline.expect_completion();
  });
  return release_idle({.enough = bytes, .device = device, .on_own_thread = true});
}

uint64_t Memory::largest_free(int device, bool wait) {
  uint64_t largest = 0;
  for_each([&](Allocator& one) { largest = std::max(largest, one.largest_free(device, wait)); });
  return largest;
}

// Only when no work is pending: the driver's free would wait for it, and a query must not.
void Memory::release_idle_managed(driver::Context context) {
  order::Timeline* const order = context == nullptr || !has_dedicated() ? nullptr : order_.find(context);
  if (order == nullptr) return;
  order->advance();
  if (!order->is_idle()) return;
  for (auto& slot : dedicated_) {
    DedicatedBlocks* const blocks = slot.load(std::memory_order_acquire);
    if (blocks != nullptr && blocks->is_host_visible()) blocks->release_idle_of(context, kIdleManaged);
  }
}

// ---- The end of a context.

uint64_t Memory::begin_end(driver::Context context) {
  return endings_.begin(context, [&](auto&& tell) { for_each_resident(tell); });
}

pool::Pools::Lost Memory::closed(driver::Context context, uint64_t ending, bool gone) {
  endings_.finish(context, ending, gone, [&](auto&& tell) { for_each_resident(tell); });
  return ending != 0 ? pools_.end_access(context, ending, gone) : pool::Pools::Lost{};
}

void Memory::close(driver::Context context) { closed(context, begin_end(context), true); }

void Memory::fail(driver::Context context) {
  order_.leave(context);
  in_flight_.fail(context);
  pools_.fail(context);
}

void Memory::forget_after_fork() {
  lock_.reset_after_fork();
  in_flight_.forget_after_fork();
  upstream::Limit::forget_after_fork();
  pools_.forget_after_fork();
  for (auto& slot : dedicated_) slot.store(nullptr, std::memory_order_relaxed);
  use_native(nullptr, NativeUse::kLast);
  use_spill(nullptr);
  order_.forget_after_fork();
}

}  // namespace cupool::memory
