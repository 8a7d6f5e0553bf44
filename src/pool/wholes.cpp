// Whole allocations kept for the same size: one table under `lock_`, which is never held across a call of a
// driver. How they go back to it is in wholes_room.cpp.
#include "pool/wholes.hpp"

#include <utility>

#include "base/host_memory.hpp"
#include "stats/counters.hpp"

namespace cupool::pool {

using driver::kOutOfMemory;
using driver::kSuccess;
using stats::DeviceCounter;

bool Wholes::open(driver::Context context, driver::Driver& source) {
  const std::pair<driver::Context, bool> name{context, source.is_host_visible()};
  {
    Guard hold(lock_);
    if (accounts_.contains(name)) return true;
  }
  int device = 0;
  size_t free = 0;
  size_t total = 0;
  if (source.device(&device) != kSuccess || source.memory(&free, &total) != kSuccess) return false;
  order::Timeline* const order = order_.of(context);
  if (order == nullptr) return false;
  Guard hold(lock_);
  const auto [entry, is_new] = accounts_.try_emplace(name);
  if (!is_new) return true;
  Account& account = entry->second;
  account.context = context;
  account.order = order;
  account.host_visible = source.is_host_visible();
  account.device = device;
  account.device_bytes = total;
  account.settings = Settings::from(config::options(), total);
  if (account.host_visible) return true;
  stats::Holdings*& holdings = holdings_[device];
  if (holdings == nullptr) {
    holdings = new stats::Holdings(stats::device(device));
    stats::device(device).enlist(*holdings);
  }
  account.holdings = holdings;
  return true;
}

Wholes::Account& Wholes::account_of(driver::Context context, driver::Driver& source) {
  Guard hold(lock_);
  return accounts_.find({context, source.is_host_visible()})->second;
}

Status Wholes::allocate(driver::Context context, driver::Driver& source, uint64_t bytes, Address* out) {
  Account& account = account_of(context, source);
  // For the very same size only: then every handle, every range and every check of a debugging tool is exact.
  const Key key{context, &source, bytes};
  if (take(key, bytes, order::Reach::kCheap, DeviceCounter::range_hits, out)) return kSuccess;
  if (has_idle(key) && !order_.is_capturing() && take_after_wait(account, key, bytes, out)) return kSuccess;
  uint64_t seen = gone_.load(std::memory_order_acquire);
  Status status = ask(account, source, bytes, out);
  if (status == kOutOfMemory) stats::device(account.device).count(DeviceCounter::out_of_memory_retries);
  for (int i = 0;
       i < kMostTries && status == kOutOfMemory && !order_.is_capturing() && make_room(account, bytes, seen);
       ++i) {
    seen = gone_.load(std::memory_order_acquire);
    status = ask(account, source, bytes, out);
  }
  return status;
}

// There are idle blocks of this size, but none that may be handed out. Above the budget work waits for one.
bool Wholes::take_after_wait(Account& account, const Key& key, uint64_t bytes, Address* out) {
  order::Timeline& order = *account.order;
  order.advance();
  if (take(key, bytes, order::Reach::kCheap, DeviceCounter::hits_after_wait, out)) return true;
  if (account.host_visible || idle_bytes({}) <= account.settings.many_budget) return false;
  return order.reach() && take(key, bytes, order::Reach::kAll, DeviceCounter::hits_after_wait, out);
}

// A new allocation of the driver's, within the user's limit.
Status Wholes::ask(Account& account, driver::Driver& source, uint64_t bytes, Address* out) {
  if (!book(account, bytes)) return kOutOfMemory;
  const uint64_t before = stats::now_ns();
  const Status status = source.allocate(bytes, out);
  const uint64_t took = stats::now_ns() - before;
  Guard hold(lock_);
  --asking_;
  if (status != kSuccess) {
    account.reserved -= bytes;
    if (account.holdings != nullptr) account.holdings->add(DeviceCounter::driver_refusals);
    return status;
  }
  forget_range(*out, bytes);
  Whole& whole = table_[*out];
  whole = {};
  whole.bytes = whole.asked = bytes;
  whole.account = &account;
  whole.source = &source;
  if (stats::Holdings* const holdings = account.holdings) {
    holdings->device().reserve(bytes);
    holdings->add(DeviceCounter::segments_allocated);
    holdings->add(DeviceCounter::driver_allocate_ns, took);
    holdings->device().allocated_in(bytes, took);
    holdings->add(DeviceCounter::misses);
    holdings->give(bytes, bytes);
  }
  return kSuccess;
}

// While no work is under way all of it is over.
Epoch Wholes::limit(const Account& account, order::Reach reach) {
  const order::Timeline& order = *account.order;
  return account.host_visible && !order.is_idle() ? order.completed() : order.limit(reach);
}

bool Wholes::take(const Key& key, uint64_t bytes, order::Reach reach, DeviceCounter how, Address* out) {
  order::Timeline* order = nullptr;
  Epoch stamp = 0;
  {
    Guard hold(lock_);
    const auto list = idle_.find(key);
    if (list == idle_.end() || list->second.empty()) return false;
    const Address start = list->second.front();
    Whole& whole = table_[start];
    // Under the lock, not before: whoever freed it has noted its work first.
    const Epoch most = limit(*whole.account, reach);
    if (whole.stamp > most) return false;
    order = whole.account->order;
    if (most != order::kAnyStamp) stamp = whole.stamp;
    remove_idle(start, whole);
    whole.asked = bytes;
    whole.mark = {};
    if (stats::Holdings* const holdings = whole.account->holdings) {
      holdings->add(how);
      holdings->give(bytes, whole.bytes);
    }
    *out = start;
  }
  order->lean_on(stamp);
  return true;
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

Freed Wholes::free(Address address, bool may_wait) {
  Whole tainted;
  order::Timeline* order = nullptr;
  bool has_surplus = false;
  bool waits = false;
  Choice surplus;
  {
    Guard hold(lock_);
    const auto found = containing(address);
    if (found == table_.end()) return Freed::kNotOurs;
    Whole& whole = found->second;
    if (found->first != address || whole.asked == 0) return Freed::kNobodys;
    const Account& account = *whole.account;
    if (account.holdings != nullptr) {
      account.holdings->take_back(whole.asked, whole.bytes);
    } else {
      stats::count(stats::Counter::managed_frees);
    }
    whole.asked = 0;
    order = account.order;
    whole.stamp = order->open();
    whole.age = ++ages_;
    whole.idle_since = now_ms();
    // Keeping it takes a record, which a host short of memory has only for blocks that cannot leave now.
    if ((whole.mark.taints == 0 && !host::is_short()) || !may_wait) {
      add_idle(address, whole, Place::kNewest);
      surplus = {account.host_visible, account.context, account.device, max_cached(account)};
      has_surplus = may_wait && account.idle > surplus.keep;
      // What serves again only when its work is over must not grow without end: such a free waits, as the
      // driver's does.
      waits = account.idle > account.settings.many_budget &&
              (account.host_visible || order->reuse() == order::Reuse::kCompleted);
    } else {
      tainted = whole;
      leaving_.push_back(account.context);
      table_.erase(found);
    }
  }
  if (!may_wait) {
    order->seal_for_completion();
  } else if (!order->is_idle()) {
    waits ? order->wait_in_free() : order->seal_in_free();
  }
  if (tainted.account != nullptr) {
    // A capture would not survive it: then the block waits, and serves nobody.
    const bool may_call = order_.gate().enter();
    settle(address, tainted, may_call && give_back(address, tainted));
    if (may_call) order_.gate().leave();
  } else if (has_surplus) {
    release(surplus);
  }
  return Freed::kDone;
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
  *context = found->second.account->context;
  return true;
}

bool Wholes::device_of(driver::Context context, int* device) {
  Guard hold(lock_);
  const auto first = accounts_.lower_bound({context, false});
  if (first == accounts_.end() || first->first.first != context) return false;
  *device = first->second.device;
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

}  // namespace cupool::pool
