// Whole allocations kept for the same size: one table under `lock_`, which is never held across a call of a
// driver.
#include "pool/wholes.hpp"

#include <sched.h>

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

#include "stats/counters.hpp"

namespace cupool::pool {

using driver::kOutOfMemory;
using driver::kSuccess;

namespace {
// In the place of a size: blocks that serve nobody again.
constexpr uint64_t kTainted = 0;
}  // namespace

Status Wholes::allocate(driver::Context context, driver::Driver& source, uint64_t bytes,
                        const Settings& settings, Address* out) {
  // For the very same size only: then every handle, every range and every check of a debugging tool is exact.
  const Key key{context, &source, bytes};
  if (take(key, bytes, out)) return kSuccess;
  if (has_idle(key) && !order_.is_capturing()) {
    if (!source.is_host_visible() && order_.request_grant() && take(key, bytes, out)) return kSuccess;
    order_.advance(true);
    if (take(key, bytes, out)) return kSuccess;
    if (idle_bytes_[source.is_host_visible()].load(std::memory_order_relaxed) > settings.many_budget &&
        order_.wait_for_all() && take(key, bytes, out)) {
      return kSuccess;
    }
  }
  uint64_t before = stats::now_ns();
  uint64_t seen = gone_.load(std::memory_order_acquire);
  Status status = source.allocate(bytes, out);
  for (int i = 0; i < kMostTries && status == kOutOfMemory && !order_.is_capturing() && make_room(seen);
       ++i) {
    before = stats::now_ns();
    seen = gone_.load(std::memory_order_acquire);
    status = source.allocate(bytes, out);
  }
  if (status != kSuccess) return status;
  Guard hold(lock_);
  forget_range(*out, bytes);
  Whole& whole = table_[*out];
  whole = {bytes, bytes, context, &source, 0, {}, holdings_of(source)};
  if (whole.holdings != nullptr) {
    whole.holdings->device().reserve(whole.bytes);
    whole.holdings->add(stats::DeviceCounter::segments_allocated);
    whole.holdings->add(stats::DeviceCounter::driver_allocate_ns, stats::now_ns() - before);
    whole.holdings->add(stats::DeviceCounter::misses);
    whole.holdings->give(bytes, whole.bytes);
  }
  return kSuccess;
}

bool Wholes::take(const Key& key, uint64_t bytes, Address* out) {
  Guard hold(lock_);
  const auto list = idle_.find(key);
  if (list == idle_.end() || list->second.empty()) return false;
  const Address start = list->second.front();
  Whole& whole = table_[start];
  // Under the lock, not before: whoever freed it has noted its work first.
  const bool host_visible = whole.source->is_host_visible();
  if (whole.stamp > (host_visible ? order_.completed() : order_.newest_usable())) return false;
  list->second.pop_front();
  idle_bytes_[host_visible].fetch_sub(whole.bytes, std::memory_order_relaxed);
  whole.asked = bytes;
  whole.mark = {};
  if (whole.holdings != nullptr) {
    whole.holdings->add(stats::DeviceCounter::range_hits);
    whole.holdings->give(bytes, whole.bytes);
  }
  *out = start;
  return true;
}

bool Wholes::make_room(uint64_t seen) {
  release(false, 0);
  release(true, 0);
  for (bool leaves = true; leaves;) {
    {
      Guard hold(lock_);
      leaves = !leaving_.empty();
    }
    if (leaves) sched_yield();
  }
  return gone_.load(std::memory_order_acquire) != seen || idle_bytes_[0] != 0 || idle_bytes_[1] != 0;
}

stats::Holdings* Wholes::holdings_of(driver::Driver& source) {
  int number = 0;
  if (source.is_host_visible() || source.device(&number) != kSuccess) return nullptr;
  stats::Holdings*& holdings = holdings_[number];
  if (holdings == nullptr) {
    holdings = new stats::Holdings(stats::device(number));
    stats::device(number).enlist(*holdings);
  }
  return holdings;
}

bool Wholes::has_idle(const Key& key) {
  Guard hold(lock_);
  const auto list = idle_.find(key);
  return list != idle_.end() && !list->second.empty();
}

Wholes::Table::iterator Wholes::containing(Address address) {
  auto next = table_.upper_bound(address);
  if (next == table_.begin()) return table_.end();
  --next;
  return address - next->first < next->second.bytes ? next : table_.end();
}

Wholes::Whole* Wholes::held_at(Address address) {
  const auto found = containing(address);
  return found != table_.end() && address - found->first < found->second.asked ? &found->second : nullptr;
}

Freed Wholes::free(Address address) {
  Whole tainted;
  {
    Guard hold(lock_);
    const auto found = containing(address);
    if (found == table_.end()) return Freed::kNotOurs;
    Whole& whole = found->second;
    if (found->first != address || whole.asked == 0) return Freed::kNobodys;
    if (whole.holdings != nullptr) {
      whole.holdings->take_back(whole.asked, whole.bytes);
    } else {
      stats::count(stats::Counter::managed_frees);
    }
    whole.asked = 0;
    whole.stamp = order_.open();
    if (whole.mark.taints == 0) {
      idle_[{whole.context, whole.source, whole.bytes}].push_back(address);
      idle_bytes_[whole.source->is_host_visible()].fetch_add(whole.bytes, std::memory_order_relaxed);
      return Freed::kDone;
    }
    tainted = whole;
    leaving_.push_back(whole.context);
    table_.erase(found);
  }
  settle(address, tainted, give_back(address, tainted));
  return Freed::kDone;
}

// The driver's free waits for all work, which proves as much as the program's own wait would.
bool Wholes::give_back(Address start, const Whole& whole) {
  const Epoch epoch = order_.begin_wait(order::Lane::kMany);
  const uint64_t before = stats::now_ns();
  const Status status = whole.source->release_in(whole.context, start);
  order_.end_wait(epoch, status == kSuccess);
  if (status != kSuccess) return false;
  if (whole.holdings != nullptr) {
    stats::Device& device = whole.holdings->device();
    device.release(whole.bytes);
    device.count(stats::DeviceCounter::segments_released);
    device.count(stats::DeviceCounter::driver_release_ns, stats::now_ns() - before);
  }
  return true;
}

// One that the driver refused is oldest again, so that it is the first to be tried the next time. What is
// tainted is never found by take().
void Wholes::settle(Address start, const Whole& whole, bool gone) {
  Guard hold(lock_);
  leaving_.erase(std::find(leaving_.begin(), leaving_.end(), whole.context));
  if (gone) {
    gone_.fetch_add(1, std::memory_order_release);
    return;
  }
  table_[start] = whole;
  const uint64_t key_bytes = whole.mark.taints == 0 ? whole.bytes : kTainted;
  idle_[{whole.context, whole.source, key_bytes}].push_front(start);
  idle_bytes_[whole.source->is_host_visible()].fetch_add(whole.bytes, std::memory_order_relaxed);
}

bool Wholes::owns(Address address) {
  Guard hold(lock_);
  return containing(address) != table_.end();
}

bool Wholes::find(Address address, Address* start, uint64_t* bytes, driver::Context* context) {
  Guard hold(lock_);
  const auto found = containing(address);
  if (found == table_.end() || address - found->first >= found->second.asked) return false;
  *start = found->first;
  *bytes = found->second.asked;
  *context = found->second.context;
  return true;
}

bool Wholes::taint(Address address, uint64_t bytes, Taint reason) {
  const uint32_t bit = 1u << static_cast<unsigned>(reason);
  bool any = false;
  Guard hold(lock_);
  auto at = containing(address);
  if (at == table_.end()) at = table_.lower_bound(address);
  for (; at != table_.end() && at->first <= address + (bytes == 0 ? 0 : bytes - 1); ++at) {
    if (at->second.asked == 0) continue;
    any = true;
    if ((at->second.mark.taints & bit) == 0) stats::count(counter_of(reason));
    at->second.mark.taints |= bit;
  }
  return any;
}

bool Wholes::remove_oldest(bool host_visible, Address* start, Whole* out) {
  Guard hold(lock_);
  std::deque<Address>* oldest = nullptr;
  for (auto& [key, list] : idle_) {
    if (list.empty() || std::get<1>(key)->is_host_visible() != host_visible) continue;
    if (oldest == nullptr || table_[list.front()].stamp < table_[oldest->front()].stamp) oldest = &list;
  }
  if (oldest == nullptr) return false;
  *start = oldest->front();
  oldest->pop_front();
  *out = table_[*start];
  leaving_.push_back(out->context);
  table_.erase(*start);
  idle_bytes_[host_visible].fetch_sub(out->bytes, std::memory_order_relaxed);
  return true;
}

uint64_t Wholes::release(bool host_visible, uint64_t keep) {
  uint64_t released = 0;
  // Kept only in the end: one that the driver will not take must not stand before all others.
  std::vector<std::pair<Address, Whole>> refused;
  Address start = 0;
  Whole whole;
  while (idle_bytes_[host_visible].load(std::memory_order_relaxed) > keep &&
         remove_oldest(host_visible, &start, &whole)) {
    if (give_back(start, whole)) {
      settle(start, whole, true);
      released += whole.bytes;
    } else {
      refused.emplace_back(start, whole);
    }
  }
  for (const auto& [address, one] : refused) settle(address, one, false);
  return released;
}

uint64_t Wholes::releasable_bytes(driver::Context context) {
  uint64_t bytes = 0;
  Guard hold(lock_);
  for (const auto& [key, list] : idle_) {
    if (std::get<0>(key) != context || std::get<1>(key)->is_host_visible()) continue;
    for (const Address start : list) bytes += table_[start].bytes;
  }
  return bytes;
}

Wholes::Table::iterator Wholes::forget(Table::iterator entry) {
  const Whole& whole = entry->second;
  if (whole.holdings != nullptr) {
    whole.holdings->device().release(whole.bytes);
    if (whole.asked != 0) whole.holdings->drop(whole.asked, whole.bytes);
  }
  const uint64_t key_bytes = whole.mark.taints == 0 ? whole.bytes : kTainted;
  const auto list = idle_.find({whole.context, whole.source, key_bytes});
  if (whole.asked == 0 && list != idle_.end() && std::erase(list->second, entry->first) != 0)
    idle_bytes_[whole.source->is_host_visible()].fetch_sub(whole.bytes, std::memory_order_relaxed);
  return table_.erase(entry);
}

void Wholes::forget_range(Address start, uint64_t bytes) {
  auto at = containing(start);
  if (at == table_.end()) at = table_.lower_bound(start);
  while (at != table_.end() && at->first < start + bytes) at = forget(at);
}

void Wholes::close(driver::Context context) {
  // What another thread is giving back is waited for: once the context is gone its address may be somebody
  // else's, and a block that the driver refuses would be kept for the next context with this handle.
  for (bool leaves = true; leaves;) {
    {
      Guard hold(lock_);
      for (auto at = table_.begin(); at != table_.end();) {
        at = at->second.context == context ? forget(at) : std::next(at);
      }
      std::erase_if(idle_, [&](const auto& entry) { return std::get<0>(entry.first) == context; });
      leaves = std::find(leaving_.begin(), leaving_.end(), context) != leaving_.end();
    }
    if (leaves) sched_yield();
  }
}

}  // namespace cupool::pool
