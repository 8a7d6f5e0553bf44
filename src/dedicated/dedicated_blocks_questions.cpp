// Questions about dedicated blocks: which one contains an address, what is idle, marks and taints, and the
// report of a failed allocation. Walks the table under `lock_`; changes no block but its mark, and calls no
// driver, but to ask it how much it has free.
#include <algorithm>

#include "dedicated/dedicated_blocks.hpp"
#include "report/shortage.hpp"
#include "stats/counters.hpp"

namespace cupool::dedicated {

using driver::kSuccess;
using stats::DeviceCounter;

namespace {

void add_row(uint64_t bytes, uint64_t asked, bool tainted, report::Shortage* out) {
  report::Shortage::Row& row = out->row_of(bytes);
  out->reserved += bytes;
  if (asked != 0) {
    out->live += bytes;
    row.blocks += 1;
    row.live += bytes;
    return;
  }
  row.free += bytes;
  if (tainted) {
    out->tainted += bytes;
    return;
  }
  out->largest_free = std::max(out->largest_free, bytes);
  ++out->free_segments;
  out->free_segment_bytes += bytes;
}

}  // namespace

DedicatedBlocks::Table::iterator DedicatedBlocks::containing(Address address) {
  auto next = table_.upper_bound(address);
  if (next == table_.begin()) return table_.end();
  --next;
  return address - next->first < next->second.bytes ? next : table_.end();
}

DedicatedBlocks::Block* DedicatedBlocks::held_at(Address address) {
  const auto found = containing(address);
  return found != table_.end() && address - found->first < found->second.asked ? &found->second : nullptr;
}

driver::Context DedicatedBlocks::context_at(Address address) {
  Guard hold(lock_);
  const auto found = containing(address);
  return found == table_.end() ? nullptr : found->second.context;
}

bool DedicatedBlocks::owns(Address address) { return context_at(address) != nullptr; }

bool DedicatedBlocks::find(Address address, BlockInfo* out) {
  Guard hold(lock_);
  const auto found = containing(address);
  if (found == table_.end() || address - found->first >= found->second.asked) return false;
  const bool mapped = source_.is_mapped();
  *out = {found->first, found->second.asked, !mapped, found->first, 0, found->second.context, mapped};
  return true;
}

bool DedicatedBlocks::visit_mark(Address address, void (*visit)(Mark&, void*), void* data) {
  Guard hold(lock_);
  Block* const block = held_at(address);
  if (block == nullptr) return false;
  if (block->mark.life == 0) block->mark.life = allocator::next_life();
  visit(block->mark, data);
  return true;
}

bool DedicatedBlocks::taint(Address address, uint64_t bytes, Taint reason) {
  const uint32_t bit = 1u << static_cast<unsigned>(reason);
  bool any = false;
  Guard hold(lock_);
  auto at = containing(address);
  if (at == table_.end()) at = table_.lower_bound(address);
  for (; at != table_.end() && at->first <= address + (bytes == 0 ? 0 : bytes - 1); ++at) {
    if (at->second.asked == 0) continue;
    any = true;
    if ((at->second.mark.taints & bit) == 0) stats::count(allocator::counter_of(reason));
    at->second.mark.taints |= bit;
  }
  return any;
}

bool DedicatedBlocks::device_of(driver::Context context, int* device) {
  Guard hold(lock_);
  const auto found = accounts_.find(context);
  if (found == accounts_.end()) return false;
  *device = found->second.upstream.device();
  return true;
}

// Memory that is not the device's is not counted as such.
uint64_t DedicatedBlocks::releasable_bytes(int device) {
  if (!is_on_device()) return 0;
  admit_left();
  uint64_t bytes = 0;
  Guard hold(lock_);
  for (const auto& [context, account] : accounts_) {
    if (account.upstream.device() == device && !in_flight_.is_off(context)) bytes += account.idle;
  }
  return bytes;
}

uint64_t DedicatedBlocks::largest_free(int device, bool wait) CUPOOL_NO_THREAD_SAFETY_ANALYSIS {
  if (!is_on_device() || !(wait ? lock_.try_lock_for_a_moment() : lock_.try_lock())) return 0;
  uint64_t largest = 0;
  for (const auto& [context, account] : accounts_) {
    if (account.upstream.device() != device) continue;
    for (const auto& [age, start] : account.by_age)
      largest = std::max(largest, table_.find(start)->second.bytes);
  }
  lock_.unlock();
  return largest;
}

// ---- The report of a failed allocation.

void DedicatedBlocks::note_failure(driver::Context context, uint64_t bytes) {
  // Its account does not end meanwhile.
  const InFlight::Call call(in_flight_, context, InFlight::Kind::kUse);
  const Account* const found = call.is_open() ? find_account(context) : nullptr;
  if (found == nullptr) return;
  const Account& account = *found;
  const int device = account.upstream.device();
  stats::device(device).count(DeviceCounter::out_of_memory);
  // A request larger than the device is not reported as a shortage; managed memory may exceed it.
  const uint64_t most = is_host_visible() ? stats::kMostBytes : account.device_bytes;
  if (bytes > most || !report::shortage_is_due()) return;
  report::Shortage shortage;
  shortage.device = device;
  shortage.asked = shortage.rounded = bytes;
  shortage.source =
      is_host_visible() ? report::Shortage::Source::kManaged : report::Shortage::Source::kDedicated;
  shortage.limit = is_host_visible() ? kUnlimited : account.upstream.limit();
  shortage.limited = is_host_visible() ? 0 : upstream::Limit::booked(device);
  shortage.capturing = order_.is_capturing();
  size_t free = 0;
  size_t total = 0;
  if (driver_.memory(&free, &total) != kSuccess) total = account.device_bytes;
  shortage.device_free = free;
  shortage.device_total = total;
  {
    Guard hold(lock_);
    const Choice alike{.device = device};
    for (const auto& [start, block] : table_) {
      if (!alike.covers(block.context, *block.account)) continue;
      add_row(block.bytes, block.asked, block.mark.taints != 0, &shortage);
      if (block.bytes > kMiB) shortage.rounding += round_up(block.bytes, kDriverStep) - block.bytes;
    }
  }
  report::write_shortage(shortage);
}

}  // namespace cupool::dedicated
