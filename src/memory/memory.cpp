// See memory.hpp. The slow path of allocation and free: routes each request to the allocator that serves it.
#include "memory/memory.hpp"

#include "context/context_ending.hpp"
#include "memory/hot_path.hpp"
#include "stats/counters.hpp"
#include "stats/service.hpp"
#include "upstream/limit.hpp"

namespace cupool::memory {

using allocator::kDeclined;
using driver::kNotSupported;
using driver::kOutOfMemory;
using driver::kSuccess;

// ---- Allocation.

Status Memory::allocate(driver::Context context, uint64_t bytes, Address* out) {
  const Kept kept = allocate_kept(context, bytes, out);
  return kept == Kept::kTaken ? kSuccess : allocate_slow(context, bytes, out, kept);
}

Status Memory::allocate_slow(driver::Context context, uint64_t bytes, Address* out, Kept kept) {
  if (ladder_.spill() != nullptr && ladder_.allocate_at_once(context, bytes, out)) [[unlikely]]
    return kSuccess;
  pool::Pools& pools = allocators_.pools();
  // The thread has a cache for this context, so the pool serves it.
  if (kept == Kept::kNone)
    return finish_allocation(pools, *device_memory_, context, bytes, out, pools.allocate_missed(bytes, out));
  if (allocators_.is_native_first()) {
    const Status status = native()->allocate(context, bytes, out);
    if (status != kNotSupported)
      return finish_allocation(*native(), *device_memory_, context, bytes, out, status);
    allocators_.stop_native_first();
  }
  if (allocators_.is_dedicated_only()) return allocate_dedicated(context, *device_memory_, bytes, out);
  return finish_allocation(pools, *device_memory_, context, bytes, out, pools.allocate(context, bytes, out));
}

Status Memory::allocate_dedicated(driver::Context context, driver::Source& source, uint64_t bytes,
                                  Address* out) {
  DedicatedBlocks* const blocks = allocators_.dedicated_of(source);
  if (blocks == nullptr) return allocate_from_driver(source, bytes, out);
  const Status status =
      finish_allocation(*blocks, source, context, bytes, out, blocks->allocate(context, bytes, out));
  if (status == kSuccess) allocators_.forget_stale(*blocks, *out, bytes);
  return status;
}

// Handles the answers of `first` that are not final: it declined, or is out of memory.
Status Memory::finish_allocation(Allocator& first, driver::Source& source, driver::Context context,
                                 uint64_t bytes, Address* out, Status status) {
  if (status == kDeclined) return allocate_from_driver(source, bytes, out);
  return status == kOutOfMemory ? ladder_.allocate(first, source, context, bytes, out) : status;
}

Status Memory::allocate_from_driver(driver::Source& source, uint64_t bytes, Address* out) {
  const Status status = source.allocate(bytes, out);
  stats::last_service = {stats::Service::How::kDriver, stats::Service::By::kDriver};
  if (status == kSuccess)
    stats::count(source.is_host_visible() ? stats::Counter::forwarded_managed
                                          : stats::Counter::forwarded_allocations);
  return status;
}

mapped::Part Memory::chunk_at(Address address) {
  const mapped::Part chunk = allocators_.pools().chunk_at(address);
  mapped::Spill* const spill = ladder_.spill();
  return chunk.bytes != 0 || spill == nullptr ? chunk : spill->chunk_at(address);
}

// The driver's own allocations follow by themselves.
bool Memory::set_access(driver::Context owner, const pool::Pools::Guest& guest, bool allowed) {
  allowed = allocators_.pools().set_access(owner, guest, allowed);
  mapped::Spill* const spill = ladder_.spill();
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
  if (why != Unkept::kNotLive) return allocators_.pools().finish_free(address, why, asked);
  return free_elsewhere(address, Waits::kIfAsked);
}

Freed Memory::free_on(Address address, driver::Stream stream, order::Timeline* elsewhere) {
  Freed freed = allocators_.pools().free_on(address, stream, elsewhere);
  allocators_.for_each_dedicated([&](DedicatedBlocks& blocks) {
    if (freed == Freed::kNotOurs && elsewhere != nullptr) freed = blocks.free_after(address, *elsewhere);
  });
  return freed == Freed::kNotOurs ? free_elsewhere(address, Waits::kNever) : freed;
}

Freed Memory::free_elsewhere(Address address, Waits waits) {
  Freed freed = Freed::kNotOurs;
  allocators_.for_each([&](Allocator& one) {
    if (freed == Freed::kNotOurs) freed = one.free(address, waits);
  });
  return freed;
}

// ---- Questions about addresses.

bool Memory::find(Address address, BlockInfo* out) {
  return allocators_.any([&](Allocator& one) { return one.find(address, out); });
}

bool Memory::taint(Address address, Taint reason, uint64_t bytes) {
  if (mapped::Spill* const spill = ladder_.spill()) spill->share(address);
  return allocators_.any([&](Allocator& one) { return one.taint(address, bytes, reason); });
}

bool Memory::may_be_gone(Address address) {
  if (!context::ContextEnding::is_under_way()) return false;
  const pool::Pool* const pool = pool::page_map.pool_of(address);
  if (pool != nullptr) return context::ContextEnding::is_of(pool->context());
  bool found = false;
  allocators_.for_each_dedicated([&](DedicatedBlocks& blocks) {
    found = found || context::ContextEnding::is_of(blocks.context_at(address));
  });
  return found;
}

bool Memory::owns(Address address) {
  return allocators_.any([&](Allocator& one) { return one.owns(address); });
}

bool Memory::device_of(driver::Context context, int* device) {
  return allocators_.any([&](Allocator& one) { return one.device_of(context, device); });
}

void Memory::drain_before_export(Address address) {
  BlockInfo held;
  if (!find(address, &held)) return;
  if (order::Timeline* const order = order_.find(held.context)) order->wait_for_leant();
}

// ---- The end of a context.

uint64_t Memory::begin_end(driver::Context context) {
  return endings_.begin(context, [&](auto&& tell) { for_each_resident(tell); });
}

pool::Pools::Lost Memory::closed(driver::Context context, uint64_t ending, bool gone) {
  endings_.finish(context, ending, gone, [&](auto&& tell) { for_each_resident(tell); });
  return ending != 0 ? allocators_.pools().end_access(context, ending, gone) : pool::Pools::Lost{};
}

void Memory::close(driver::Context context) { closed(context, begin_end(context), true); }

void Memory::fail(driver::Context context) {
  order_.leave(context);
  in_flight_.fail(context);
  allocators_.pools().fail(context);
}

void Memory::forget_after_fork() {
  in_flight_.forget_after_fork();
  upstream::Limit::forget_after_fork();
  allocators_.forget_after_fork();
  ladder_.use_spill(nullptr);
  order_.forget_after_fork();
}

}  // namespace cupool::memory
