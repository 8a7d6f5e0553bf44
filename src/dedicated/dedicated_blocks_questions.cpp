// Questions about dedicated blocks: which one contains an address, what is idle, marks and taints, and the
// report of a failed allocation. Walks the table under its lock; changes no block but its mark. Calls no
// driver except to ask how much it has free, without the lock.
#include <algorithm>

#include "dedicated/dedicated_blocks.hpp"
#include "report/shortage.hpp"
#include "stats/counters.hpp"
#include "trace/dealings.hpp"

namespace cupool::dedicated {

using driver::kSuccess;
using stats::DeviceCounter;

namespace {

void add_row(const Block& block, report::Shortage* out) {
  report::Shortage::Row& row = out->row_of(block.bytes);
  out->reserved += block.bytes;
  if (block.asked != 0) {
    out->live += block.bytes;
    row.blocks += 1;
    row.live += block.bytes;
    return;
  }
  row.free += block.bytes;
  if (block.mark.taints != 0) {
    out->tainted += block.bytes;
    return;
  }
  out->largest_free = std::max(out->largest_free, block.bytes);
  ++out->free_segments;
  out->free_segment_bytes += block.bytes;
}

}  // namespace

driver::Context DedicatedBlocks::context_at(Address address) {
  Guard hold(table_.lock());
  const BlockTable::Entry* const found = table_.containing(address);
  return found == nullptr ? nullptr : found->second.owner->context;
}

bool DedicatedBlocks::owns(Address address) { return context_at(address) != nullptr; }

bool DedicatedBlocks::find(Address address, BlockInfo* out) {
  Guard hold(table_.lock());
  const BlockTable::Entry* const found = table_.live_at(address);
  if (found == nullptr) return false;
  const bool mapped = source_.is_mapped();
  const auto& [start, block] = *found;
  *out = {start, block.asked, !mapped, start, 0, block.owner->context, mapped, false, block.bytes};
  return true;
}

void DedicatedBlocks::visit_live(allocator::VisitLive visit, void* data) {
  Guard hold(table_.lock());
  BlockInfo info{};
  table_.for_each([&](Address start, const Block& block) {
    if (block.asked == 0) return;
    info.start = start;
    info.bytes = block.asked;
    info.given = block.bytes;
    info.context = block.owner->context;
    visit(info, data);
  });
}

bool DedicatedBlocks::visit_mark(Address address, void (*visit)(Mark&, void*), void* data) {
  Guard hold(table_.lock());
  BlockTable::Entry* const found = table_.live_at(address);
  if (found == nullptr) return false;
  Mark& mark = found->second.mark;
  if (mark.life == 0) mark.life = allocator::next_life();
  visit(mark, data);
  return true;
}

bool DedicatedBlocks::taint(Address address, uint64_t bytes, Taint reason) {
  const uint32_t bit = 1u << static_cast<unsigned>(reason);
  bool any = false;
  Guard hold(table_.lock());
  table_.for_each_in(address, bytes, [&](Address, Block& block) {
    if (block.asked == 0) return;
    any = true;
    if ((block.mark.taints & bit) == 0) stats::count(allocator::counter_of(reason));
    block.mark.taints |= bit;
  });
  return any;
}

bool DedicatedBlocks::device_of(driver::Context context, int* device) {
  Guard hold(table_.lock());
  const Holdings* const owner = table_.find(context);
  if (owner == nullptr) return false;
  *device = owner->device;
  return true;
}

// Managed memory may exceed the device's.
bool DedicatedBlocks::may_take(driver::Context context, uint64_t bytes) {
  Guard hold(table_.lock());
  Holdings* const owner = table_.find(context);
  if (owner == nullptr || is_host_visible()) return owner != nullptr;
  const Account& account = Account::of(*owner);
  const uint64_t most = std::min(account.upstream.limit(), account.device_bytes);
  return bytes <= most && table_.taken_bytes({.device = account.device}) <= most - bytes;
}

uint64_t DedicatedBlocks::most_releasable(int device, uint64_t wanted) {
  pending_.admit();
  return is_on_device() || is_host_visible() ? releases_.most_idle(device, wanted) : 0;
}

// Memory that is not the device's is not counted as such, nor are small blocks beside live ones: the driver
// gains by whole steps.
uint64_t DedicatedBlocks::releasable_bytes(int device) {
  if (!is_on_device()) return 0;
  pending_.admit();
  uint64_t bytes = 0;
  Guard hold(table_.lock());
  for (const driver::Context context : table_.contexts({.device = device})) {
    if (!in_flight_.is_off(context)) bytes += table_.most_idle({.context = context}, kDriverStep, true);
  }
  return bytes;
}

uint64_t DedicatedBlocks::largest_free(int device, bool wait) CUPOOL_NO_THREAD_SAFETY_ANALYSIS {
  Lock& lock = table_.lock();
  if (!is_on_device() || !(wait ? lock.try_lock_for_a_moment() : lock.try_lock())) return 0;
  const uint64_t largest = table_.largest_idle({.device = device});
  lock.unlock();
  return largest;
}

// ---- The report of a failed allocation.

void DedicatedBlocks::note_failure(driver::Context context, uint64_t bytes) {
  // Its account does not end meanwhile.
  const InFlight::Call call(in_flight_, context, InFlight::Kind::kUse);
  const Account* const found = call.is_open() ? accounts_.find(context) : nullptr;
  if (found == nullptr) return;
  const Account& account = *found;
  const int device = account.device;
  stats::device(device).count(DeviceCounter::out_of_memory);
  trace::tell_out_of_memory(device, bytes);
  // A request larger than the device is no shortage; managed memory may exceed it.
  if (bytes > account.device_bytes) stats::device(device).count(DeviceCounter::too_large);
  const uint64_t most = is_host_visible() ? stats::kMostBytes : account.device_bytes;
  if (bytes > most || !report::shortage_is_due()) return;
  report::Shortage shortage;
  shortage.device = device;
  shortage.asked = shortage.rounded = bytes;
  shortage.source =
      is_host_visible() ? report::Shortage::Source::kManaged : report::Shortage::Source::kDedicated;
  shortage.limit = is_host_visible() ? kUnlimited : account.upstream.limit();
  shortage.limited = upstream::Limit::booked(device);
  if (!is_host_visible()) shortage.rounded = upstream::Upstream::charge(bytes);
  shortage.capturing = order_.is_capturing();
  size_t free = 0;
  size_t total = 0;
  if (driver_.memory(&free, &total) != kSuccess) total = account.device_bytes;
  shortage.device_free = free;
  shortage.device_total = total;
  {
    Guard hold(table_.lock());
    const Scope alike{.device = device};
    table_.for_each([&](Address, const Block& block) {
      if (!alike.covers(*block.owner)) return;
      add_row(block, &shortage);
      if (block.bytes > kMiB) shortage.rounding += block.steps() - block.bytes;
    });
  }
  report::write_shortage(shortage);
}

}  // namespace cupool::dedicated
