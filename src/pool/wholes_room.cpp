// How whole allocations go back to the driver: above the user's limits, when somebody needs the memory, after
// a long time, with their context. Every release stops the device. `lock_` is never held across a call of the
// driver: a block leaves the table first, and comes back to it if the driver refuses.
#include <sched.h>

#include <algorithm>
#include <iterator>

#include "pool/wholes.hpp"
#include "stats/counters.hpp"

namespace cupool::pool {

using driver::kSuccess;
using stats::DeviceCounter;

namespace {
// In the place of a size: blocks that serve nobody again.
constexpr uint64_t kTainted = 0;
}  // namespace

// ---- The user's limits.

uint64_t Wholes::taken_locked(int device) const {
  uint64_t taken = 0;
  for (const auto& [name, account] : accounts_) {
    if (!account.host_visible && account.device == device) taken += account.reserved;
  }
  return taken;
}

// Managed memory is not the device's: there may be more of it than the device has.
bool Wholes::may_take_locked(const Account& account, uint64_t bytes) const {
  const uint64_t limit = account.settings.limit;
  return account.host_visible ||
         (bytes <= account.device_bytes && bytes <= limit && taken_locked(account.device) <= limit - bytes);
}

bool Wholes::may_take(driver::Context context, driver::Driver& source, uint64_t bytes) {
  const Account& account = account_of(context, source);
  Guard hold(lock_);
  return may_take_locked(account, bytes);
}

bool Wholes::book(Account& account, uint64_t bytes) {
  Guard hold(lock_);
  const uint64_t limit = account.settings.limit;
  if (!account.host_visible && (bytes > limit || taken_locked(account.device) > limit - bytes)) return false;
  account.reserved += bytes;
  ++asking_;
  return true;
}

bool Wholes::make_room(const Account& account, uint64_t bytes, uint64_t seen) {
  Choice within_limit{.device = account.device};
  uint64_t too_many = 0;
  bool others_ask = false;
  if (!account.host_visible) {
    const uint64_t limit = account.settings.limit;
    if (bytes > account.device_bytes || bytes > limit) return false;
    Guard hold(lock_);
    const uint64_t taken = taken_locked(account.device);
    too_many = taken > limit - bytes ? taken - (limit - bytes) : 0;
    const uint64_t idle = idle_bytes_locked(within_limit);
    within_limit.keep = idle - std::min(idle, too_many);
    others_ask = too_many != 0 && asking_ != 0;
  }
  if (too_many != 0) {
    release(within_limit);
  } else {
    release(false, 0);
    release(true, 0);
  }
  // What another thread asks for counts already, and the driver may still refuse it.
  wait_for_others(others_ask);
  return others_ask || gone_.load(std::memory_order_acquire) != seen || idle_bytes({}) != 0 ||
         (too_many == 0 && idle_bytes({.host_visible = true}) != 0);
}

void Wholes::wait_for_others(bool asking) {
  for (bool leaves = true; leaves;) {
    {
      Guard hold(lock_);
      leaves = !leaving_.empty() || (asking && asking_ != 0);
    }
    if (leaves) sched_yield();
  }
}

uint64_t Wholes::max_cached(const Account& account) const {
  const uint64_t wanted = max_cached_.load(std::memory_order_relaxed);
  return wanted == kFromOptions ? account.settings.max_cached : wanted;
}

// ---- Idle blocks.

void Wholes::add_idle(Address start, const Whole& whole, Place place) {
  Account& account = *whole.account;
  const uint64_t key_bytes = whole.mark.taints == 0 ? whole.bytes : kTainted;
  std::deque<Address>& list = idle_[{account.context, whole.source, key_bytes}];
  list.insert(place == Place::kOldest ? list.begin() : list.end(), start);
  account.by_age.emplace(whole.age, start);
  account.idle += whole.bytes;
}

void Wholes::remove_idle(Address start, const Whole& whole) {
  Account& account = *whole.account;
  const uint64_t key_bytes = whole.mark.taints == 0 ? whole.bytes : kTainted;
  const auto list = idle_.find({account.context, whole.source, key_bytes});
  if (list == idle_.end()) return;
  if (!list->second.empty() && list->second.front() == start) {
    list->second.pop_front();
  } else if (std::erase(list->second, start) == 0) {
    return;
  }
  account.by_age.erase(whole.age);
  account.idle -= whole.bytes;
}

uint64_t Wholes::idle_bytes_locked(const Choice& choice) const {
  uint64_t idle = 0;
  for (const auto& [name, account] : accounts_) {
    if (choice.covers(account)) idle += account.idle;
  }
  return idle;
}

uint64_t Wholes::idle_bytes(const Choice& choice) {
  Guard hold(lock_);
  return idle_bytes_locked(choice);
}

uint64_t Wholes::releasable_bytes(driver::Context context) {
  return context == nullptr ? 0 : idle_bytes({.context = context});
}

uint64_t Wholes::largest_idle(int device, bool wait) CUPOOL_NO_THREAD_SAFETY_ANALYSIS {
  if (!(wait ? lock_.try_lock_for_a_moment() : lock_.try_lock())) return 0;
  uint64_t largest = 0;
  for (const auto& [name, account] : accounts_) {
    if (account.host_visible || account.device != device) continue;
    for (const auto& [age, start] : account.by_age)
      largest = std::max(largest, table_.find(start)->second.bytes);
  }
  lock_.unlock();
  return largest;
}

// ---- To the driver.

bool Wholes::remove_oldest(const Choice& choice, Address* start, Whole* out) {
  Guard hold(lock_);
  if (idle_bytes_locked(choice) <= choice.keep) return false;
  const Account* oldest = nullptr;
  for (const auto& [name, account] : accounts_) {
    if (!choice.covers(account) || account.by_age.empty()) continue;
    if (oldest == nullptr || account.by_age.begin()->first < oldest->by_age.begin()->first) oldest = &account;
  }
  if (oldest == nullptr) return false;
  *start = oldest->by_age.begin()->second;
  const Whole& whole = table_[*start];
  // What another thread submits meanwhile only a free may wait for.
  const order::Timeline& order = *whole.account->order;
  const bool is_old = whole.idle_since <= choice.idle_since && order.is_idle() &&
                      (choice.context != nullptr || !order.has_several_threads());
  if (choice.only_old && !is_old) return false;
  *out = whole;
  remove_idle(*start, *out);
  leaving_.push_back(out->account->context);
  table_.erase(*start);
  return true;
}

uint64_t Wholes::release(const Choice& choice) {
  uint64_t released = 0;
  // A capture that begins now would be broken by the driver's free: it waits until that is over.
  if (!order_.gate().enter()) return 0;
  // Kept only in the end: one that the driver will not take must not stand before all others.
  std::vector<std::pair<Address, Whole>> refused;
  Address start = 0;
  Whole whole;
  while (remove_oldest(choice, &start, &whole)) {
    if (!give_back(start, whole)) {
      refused.emplace_back(start, whole);
      continue;
    }
    if (stats::Holdings* const holdings = whole.account->holdings) {
      if (choice.only_old) holdings->device().count(DeviceCounter::decays);
      if (!choice.only_old && released == 0) holdings->device().count(DeviceCounter::trims);
    }
    released += whole.bytes;
    settle(start, whole, true);
  }
  order_.gate().leave();
  for (const auto& [address, one] : refused) settle(address, one, false);
  return released;
}

uint64_t Wholes::release(bool host_visible, uint64_t keep) {
  return release(Choice{.host_visible = host_visible, .keep = keep});
}

uint64_t Wholes::release_of(driver::Context context, bool host_visible, uint64_t keep) {
  return release(Choice{.host_visible = host_visible, .context = context, .keep = keep});
}

uint64_t Wholes::trim(uint64_t keep) {
  std::vector<Choice> all;
  {
    Guard hold(lock_);
    for (const auto& [name, account] : accounts_)
      all.push_back({account.host_visible, account.context, account.device, keep});
  }
  uint64_t released = 0;
  for (const Choice& choice : all) released += release(choice);
  return released;
}

void Wholes::decay(driver::Context freeing) {
  const uint64_t decay_ms = config::options().decay_ms;
  if (decay_ms == 0) return;
  const uint64_t now = now_ms();
  // As often as the pool's segments.
  uint64_t last = decayed_at_.load(std::memory_order_relaxed);
  if (now - last < decay_ms / 4 || !decayed_at_.compare_exchange_strong(last, now)) return;
  for (const bool host_visible : {false, true}) {
    release(Choice{.host_visible = host_visible,
                   .context = freeing,
                   .only_old = true,
                   .idle_since = now - std::min(now, decay_ms)});
  }
}

// The driver's free waits for all work, which proves as much as the program's own wait would.
bool Wholes::give_back(Address start, const Whole& whole) {
  order::Timeline& order = *whole.account->order;
  const Epoch epoch = order.begin_wait(order::Lane::kMany);
  const uint64_t before = stats::now_ns();
  const Status status = whole.source->release_in(whole.account->context, start);
  order.end_wait(epoch, status == kSuccess);
  if (status != kSuccess) return false;
  if (whole.account->holdings != nullptr) {
    stats::Device& device = whole.account->holdings->device();
    device.release(whole.bytes);
    device.count(DeviceCounter::segments_released);
    const uint64_t took = stats::now_ns() - before;
    device.count(DeviceCounter::driver_release_ns, took);
    device.released_in(whole.bytes, took);
  }
  return true;
}

// One that the driver refused is oldest again, so that it is the first to be tried the next time. What is
// tainted is never found by take().
void Wholes::settle(Address start, const Whole& whole, bool gone) {
  Guard hold(lock_);
  leaving_.erase(std::find(leaving_.begin(), leaving_.end(), whole.account->context));
  if (gone) {
    whole.account->reserved -= whole.bytes;
    gone_.fetch_add(1, std::memory_order_release);
    return;
  }
  table_[start] = whole;
  add_idle(start, whole, Place::kOldest);
}

// ---- Without the driver.

Wholes::Table::iterator Wholes::forget(Table::iterator entry) {
  const Whole& whole = entry->second;
  Account& account = *whole.account;
  account.reserved -= whole.bytes;
  if (account.holdings != nullptr) {
    account.holdings->device().release(whole.bytes);
    if (whole.asked != 0) account.holdings->drop(whole.asked, whole.bytes);
  }
  if (whole.asked == 0) remove_idle(entry->first, whole);
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
        at = at->second.account->context == context ? forget(at) : std::next(at);
      }
      std::erase_if(idle_, [&](const auto& entry) { return std::get<0>(entry.first) == context; });
      leaves = std::find(leaving_.begin(), leaving_.end(), context) != leaving_.end();
      if (!leaves) std::erase_if(accounts_, [&](const auto& entry) { return entry.first.first == context; });
    }
    if (leaves) sched_yield();
  }
}

}  // namespace cupool::pool
