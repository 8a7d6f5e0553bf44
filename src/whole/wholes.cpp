// See wholes.hpp. A block leaves the table before it is released, and returns to it if the driver refuses;
// meanwhile a call in flight keeps its context, and so its account, alive. `lock_` is never held across a
// call of the driver.
#include "whole/wholes.hpp"

#include <sched.h>

#include <algorithm>
#include <iterator>
#include <optional>

#include "base/host_memory.hpp"
#include "order/idle_moment.hpp"
#include "report/shortage.hpp"
#include "stats/counters.hpp"
#include "upstream/retry.hpp"

namespace cupool::whole {

using driver::kOutOfMemory;
using driver::kSuccess;
using stats::DeviceCounter;
using upstream::InFlight;

namespace {

// Key in place of a size: blocks that are never reused.
constexpr uint64_t kTainted = 0;
// The driver's granularity for large blocks.
constexpr uint64_t kDriverStep = 2 << 20;

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

// ---- Allocation.

Wholes::Account* Wholes::find_account(driver::Context context) {
  Guard hold(lock_);
  const auto found = accounts_.find(context);
  return found == accounts_.end() ? nullptr : &found->second;
}

Wholes::Account* Wholes::open(driver::Context context) {
  if (Account* const account = find_account(context)) return account;
  int device = 0;
  size_t free = 0;
  size_t total = 0;
  if (source_.device(&device) != kSuccess || source_.memory(&free, &total) != kSuccess) return nullptr;
  order::Timeline* const order = order_.of(context);
  if (order == nullptr) return nullptr;
  Guard hold(lock_);
  const auto [entry, is_new] = accounts_.try_emplace(context, source_, device, total, *order);
  Account& account = entry->second;
  if (!is_new || is_host_visible()) return &account;
  stats::ThreadTally*& tally = tally_[device];
  if (tally == nullptr) {
    tally = new stats::ThreadTally(stats::device(device));
    stats::device(device).enlist(*tally);
  }
  account.tally = tally;
  return &account;
}

Status Wholes::allocate(driver::Context context, uint64_t bytes, Address* out, allocator::Short when_short) {
  const InFlight::Call call(in_flight_, context, InFlight::Kind::kUse);
  Account* const account = call.is_open() && !host::is_short() ? open(context) : nullptr;
  if (account == nullptr) return allocator::kDeclined;
  // For the exact size only, so that handles, address ranges and the checks of debugging tools stay exact.
  const Key key{context, bytes};
  if (take(key, bytes, order::Reach::kCheap, DeviceCounter::range_hits, out)) return kSuccess;
  if (has_idle(key) && !order_.is_capturing() && take_after_wait(*account, key, bytes, out)) return kSuccess;
  uint64_t seen = gone_.load(std::memory_order_acquire);
  const Status status = allocate_from_driver(*account, key, out);
  if (status != kOutOfMemory || when_short == allocator::Short::kLeave) return status;
  stats::device(account->upstream.device()).count(DeviceCounter::out_of_memory_retries);
  if (has_idle(key) && !order_.is_capturing() && take_when_short(*account, key, bytes, out)) return kSuccess;
  const auto make_room = [&] {
    if (order_.is_capturing()) return false;
    // What another thread is giving back counts as taken until it is gone.
    const bool may_help =
        is_host_visible() || ((!is_on_device() || may_take(context, bytes)) && may_have(*account, bytes));
    if (may_help) return this->make_room(*account, bytes, seen);
    return in_flight_.wait_for_releases(account->upstream.device()) ||
           gone_.load(std::memory_order_acquire) != seen;
  };
  return upstream::ask_again(make_room, [&] {
    seen = gone_.load(std::memory_order_acquire);
    return allocate_from_driver(*account, key, out);
  });
}

bool Wholes::take_done(driver::Context context, uint64_t bytes, Address* out) {
  const InFlight::Call call(in_flight_, context, InFlight::Kind::kUse);
  Account* const account = call.is_open() ? find_account(context) : nullptr;
  const Key key{context, bytes};
  if (account == nullptr || !has_idle(key)) return false;
  if (!order_.is_capturing()) account->order.advance();
  return take(key, bytes, order::Reach::kCheap, DeviceCounter::range_hits, out);
}

// There are idle blocks of this size, but none may be handed out yet. Above the budget, work is made to wait
// for one.
bool Wholes::take_after_wait(const Account& account, const Key& key, uint64_t bytes, Address* out) {
  account.order.advance();
  if (take(key, bytes, order::Reach::kCheap, DeviceCounter::hits_after_wait, out)) return true;
  if (is_host_visible() || idle_bytes({}) <= account.settings.many_budget) return false;
  return account.order.reach() && take(key, bytes, order::Reach::kAll, DeviceCounter::hits_after_wait, out);
}

// Before memory goes back, for which the driver waits for all work: a block that work can be made to wait
// for, or whose work the program's own free would have waited for.
bool Wholes::take_when_short(const Account& account, const Key& key, uint64_t bytes, Address* out) {
  const auto take_within = [&](order::Reach reach) {
    return take(key, bytes, reach, DeviceCounter::hits_after_wait, out);
  };
  if (!is_host_visible() && account.order.reach() && take_within(order::Reach::kAll)) return true;
  return account.order.wait_for_frees() && take_within(order::Reach::kCheap);
}

Status Wholes::allocate_from_driver(Account& account, const Key& key, Address* out) {
  const auto [context, bytes] = key;
  const Status status = account.upstream.allocate(bytes, out);
  if (status != kSuccess) return status;
  Guard hold(lock_);
  forget_range(*out, bytes);
  Whole& whole = table_[*out] = {};
  whole.bytes = whole.asked = bytes;
  whole.context = context;
  whole.account = &account;
  account.reserved += bytes;
  if (account.tally != nullptr) {
    account.tally->add(DeviceCounter::misses);
    account.tally->give(bytes, bytes);
  }
  return kSuccess;
}

// Memory the host may touch needs completed work; while no work is pending, all of it is.
Epoch Wholes::limit(const Account& account, order::Reach reach) const {
  const order::Timeline& order = account.order;
  return is_host_visible() && !order.is_idle() ? order.completed() : order.limit(reach);
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
    // Read under the lock, not before: the freeing thread has noted its work first.
    const Epoch most = limit(*whole.account, reach);
    if (whole.stamp > most) return false;
    order = &whole.account->order;
    if (most != order::kAnyStamp) stamp = whole.stamp;
    remove_idle(start, whole);
    whole.asked = bytes;
    whole.mark = {};
    if (stats::ThreadTally* const tally = whole.account->tally) {
      tally->add(how);
      tally->give(bytes, whole.bytes);
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

// ---- Free.

Freed Wholes::free(Address address, Waits waits) {
  const bool may_wait = waits == Waits::kIfAsked;
  const driver::Context context = context_at(address);
  if (context == nullptr) return Freed::kNotOurs;
  const InFlight::Call call(in_flight_, context, InFlight::Kind::kUse);
  // An ending context takes its memory with it, so the driver is not called.
  const bool may_call = call.is_open();
  bool leaves = false;
  bool is_surplus = false;
  bool waits_for_work = false;
  Whole freed;
  Choice surplus{.context = context};
  {
    Guard hold(lock_);
    const auto found = containing(address);
    if (found == table_.end()) return Freed::kNotOurs;
    Whole& whole = found->second;
    if (found->first != address || whole.asked == 0) return Freed::kNobodys;
    Account& account = *whole.account;
    if (account.tally != nullptr) {
      account.tally->take_back(whole.asked, whole.bytes);
    } else {
      stats::count(stats::Counter::managed_frees);
    }
    whole.asked = 0;
    whole.stamp = account.order.open();
    whole.age = ++ages_;
    whole.idle_since = now_ms();
    freed = whole;
    // A cached block needs a record; when host memory is short, cache only blocks that cannot be released
    // now.
    leaves = may_call && may_wait && (whole.mark.taints != 0 || host::is_short());
    if (leaves) {
      table_.erase(found);
    } else {
      add_idle(address, whole);
      surplus.keep = max_cached(account);
      is_surplus = may_wait && account.idle > surplus.keep;
      // Memory that is reused only after its work is done must not pile up without bound: then the free
      // waits, as the driver's does.
      waits_for_work = account.idle > account.settings.many_budget &&
                       (is_host_visible() || account.order.reuse() == order::Reuse::kCompleted);
    }
  }
  if (!may_call) return Freed::kDone;
  const Account& account = *freed.account;
  order::Timeline& order = account.order;
  if (!may_wait) {
    order.seal_for_completion();
  } else if (!order.is_idle()) {
    waits_for_work ? order.wait_in_free() : order.seal_in_free(true);
  }
  if (leaves) {
    const InFlight::Call releasing(in_flight_, context, InFlight::Kind::kRelease, account.upstream.device());
    // The driver's free would break a capture: during one the block stays cached, unused.
    const bool may_release = releasing.is_open() && order_.gate().enter();
    give_back(address, freed, may_release ? Call::kWait : Call::kNot);
    if (may_release) order_.gate().leave();
  }
  if (is_surplus) release(surplus);
  if (may_wait && account.settings.free_waits) order.wait_for_all();
  return Freed::kDone;
}

// ---- Queries.

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

driver::Context Wholes::context_at(Address address) {
  Guard hold(lock_);
  const auto found = containing(address);
  return found == table_.end() ? nullptr : found->second.context;
}

bool Wholes::owns(Address address) { return context_at(address) != nullptr; }

bool Wholes::find(Address address, Held* out) {
  Guard hold(lock_);
  const auto found = containing(address);
  if (found == table_.end() || address - found->first >= found->second.asked) return false;
  const bool mapped = source_.is_mapped();
  *out = {found->first, found->second.asked, !mapped, found->first, 0, found->second.context, mapped};
  return true;
}

bool Wholes::visit_mark(Address address, void (*visit)(Mark&, void*), void* data) {
  Guard hold(lock_);
  Whole* const whole = held_at(address);
  if (whole == nullptr) return false;
  if (whole->mark.life == 0) whole->mark.life = allocator::next_life();
  visit(whole->mark, data);
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
    if ((at->second.mark.taints & bit) == 0) stats::count(allocator::counter_of(reason));
    at->second.mark.taints |= bit;
  }
  return any;
}

bool Wholes::device_of(driver::Context context, int* device) {
  Guard hold(lock_);
  const auto found = accounts_.find(context);
  if (found == accounts_.end()) return false;
  *device = found->second.upstream.device();
  return true;
}

// Memory that is not the device's is not counted as such.
uint64_t Wholes::releasable_bytes(driver::Context context) {
  return context == nullptr || !is_on_device() ? 0 : idle_bytes({.context = context});
}

uint64_t Wholes::largest_free(int device, bool wait) CUPOOL_NO_THREAD_SAFETY_ANALYSIS {
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

// ---- Idle blocks.

void Wholes::add_idle(Address start, const Whole& whole) {
  const uint64_t key_bytes = whole.mark.taints == 0 ? whole.bytes : kTainted;
  idle_[{whole.context, key_bytes}].push_back(start);
  whole.account->by_age.emplace(whole.age, start);
  whole.account->idle += whole.bytes;
}

void Wholes::remove_idle(Address start, const Whole& whole) {
  const uint64_t key_bytes = whole.mark.taints == 0 ? whole.bytes : kTainted;
  const auto list = idle_.find({whole.context, key_bytes});
  if (list == idle_.end()) return;
  if (!list->second.empty() && list->second.front() == start) {
    list->second.pop_front();
  } else if (std::erase(list->second, start) == 0) {
    return;
  }
  whole.account->by_age.erase(whole.age);
  whole.account->idle -= whole.bytes;
}

uint64_t Wholes::idle_bytes_locked(const Choice& choice) const {
  uint64_t idle = 0;
  for (const auto& [context, account] : accounts_) {
    if (choice.covers(context, account)) idle += account.idle;
  }
  return idle;
}

uint64_t Wholes::idle_bytes(const Choice& choice) {
  Guard hold(lock_);
  return idle_bytes_locked(choice);
}

uint64_t Wholes::max_cached(const Account& account) const {
  const uint64_t wanted = max_cached_.load(std::memory_order_relaxed);
  return wanted == kFromOptions ? account.settings.max_cached : wanted;
}

// ---- Room.

// Managed memory may exceed the device's.
bool Wholes::may_take(driver::Context context, uint64_t bytes) {
  Guard hold(lock_);
  const auto found = accounts_.find(context);
  if (found == accounts_.end() || is_host_visible()) return found != accounts_.end();
  const Account& account = found->second;
  const uint64_t most = std::min(account.upstream.limit(), account.device_bytes);
  if (bytes > most) return false;
  uint64_t taken = 0;
  for (const auto& [one, other] : accounts_) {
    if (other.upstream.device() == account.upstream.device()) taken += other.reserved - other.idle;
  }
  return taken <= most - bytes;
}

// Whether a release may be enough. The driver refuses at once what it does not have: then nobody waits for
// one.
bool Wholes::may_have(const Account& account, uint64_t bytes) {
  const int device = account.upstream.device();
  const uint64_t idle = idle_bytes({.device = device});
  // Asked first: what is refused meanwhile is booked no more.
  if (is_on_device() && !upstream::Limit::is_asking(device) && account.upstream.excess(bytes) > idle)
    return false;
  const uint64_t most = most_idle(device, bytes);
  const uint64_t needed = bytes > kMiB ? round_up(bytes, kDriverStep) : bytes;
  return idle == 0 || most >= needed || source_.might_give(device, needed - most);
}

bool Wholes::make_room(const Account& account, uint64_t bytes, uint64_t seen) {
  const int device = account.upstream.device();
  const uint64_t excess = account.upstream.excess(bytes);
  Choice choice;
  if (!is_host_visible()) choice.device = device;
  if (excess != 0) {
    const uint64_t idle = idle_bytes(choice);
    choice.keep = idle - std::min(idle, excess);
  }
  Choice done = choice;
  done.only_done = true;
  look(done, allocator::Effort::kDone);
  uint64_t released = release(done);
  if (released == 0) {
    look(done, allocator::Effort::kFrees);
    released = release(done);
  }
  if (released == 0) release(choice);
  in_flight_.wait_for_releases(is_host_visible() ? driver::kEveryDevice : device);
  // Another thread's request is booked already, but the driver may still refuse it.
  const bool others_ask = excess != 0 && upstream::Limit::is_asking(device);
  while (others_ask && upstream::Limit::is_asking(device)) sched_yield();
  return others_ask || gone_.load(std::memory_order_acquire) != seen ||
         idle_bytes({.device = choice.device}) != 0;
}

driver::Context Wholes::context_of_oldest(const Choice& choice, int* device) {
  Guard hold(lock_);
  if (idle_bytes_locked(choice) <= choice.keep) return nullptr;
  driver::Context oldest = nullptr;
  uint64_t age = ~uint64_t{0};
  for (const auto& [context, account] : accounts_) {
    if (!choice.covers(context, account) || account.by_age.empty() || account.by_age.begin()->first >= age)
      continue;
    // What lies in a context that has failed, or ends, must not stand before all others.
    if (in_flight_.is_off(context)) continue;
    if (choice.only_idle != nullptr && choice.only_idle->only_quiet && !account.order.was_quiet()) continue;
    if (choice.only_done && !is_done(table_.find(account.by_age.begin()->second)->second)) continue;
    age = account.by_age.begin()->first;
    oldest = context;
    *device = account.upstream.device();
  }
  return oldest;
}

// pre: `choice` names one context.
bool Wholes::remove_oldest(const Choice& choice, uint64_t newest, Address* start, Whole* out) {
  Guard hold(lock_);
  const auto found = accounts_.find(choice.context);
  if (found == accounts_.end() || found->second.by_age.empty()) return false;
  const Account& account = found->second;
  const Address oldest = account.by_age.begin()->second;
  const Whole& whole = table_[oldest];
  const bool is_needed =
      choice.only_idle != nullptr && now_ms() - whole.idle_since < choice.only_idle->for_ms;
  if (is_needed || whole.age > newest || (choice.only_done && !is_done(whole))) return false;
  *start = oldest;
  *out = whole;
  remove_idle(oldest, whole);
  table_.erase(oldest);
  return true;
}

uint64_t Wholes::release(const Choice& choice) {
  uint64_t released = 0;
  uint64_t newest = 0;
  // The driver's free would break a capture: the gate holds captures back until it is done.
  if ((choice.only_done && !is_on_device()) || !order_.gate().enter()) return 0;
  {
    Guard hold(lock_);
    newest = ages_;
  }
  int device = allocator::kEveryDevice;
  const uint64_t enough = choice.only_idle != nullptr ? choice.only_idle->enough : ~uint64_t{0};
  while (released < enough) {
    const driver::Context context = context_of_oldest(choice, &device);
    if (context == nullptr) break;
    const InFlight::Call call(in_flight_, context, InFlight::Kind::kRelease, device);
    if (!call.is_open()) continue;
    // A block that is not ready would wait for work, which only a free may do.
    std::optional<order::IdleMoment> moment;
    if (choice.only_idle != nullptr) {
      order::Timeline* const order = order_.find(context);
      if (order == nullptr) break;
      moment.emplace(*order, choice.only_idle->on_own_thread);
      if (!moment->has_come()) break;
    }
    Choice oldest = choice;
    oldest.context = context;
    Address start = 0;
    Whole whole;
    if (!remove_oldest(oldest, newest, &start, &whole)) break;
    // A refused block is put back as the newest, so each is tried once.
    if (!give_back(start, whole, choice.only_done ? Call::kAtOnce : Call::kWait)) continue;
    if (stats::ThreadTally* const tally = whole.account->tally) {
      if (choice.only_idle != nullptr) tally->device().count(DeviceCounter::decays);
      if (choice.only_idle == nullptr && released == 0) tally->device().count(DeviceCounter::trims);
    }
    released += whole.bytes;
  }
  order_.gate().leave();
  return released;
}

// take() never finds a tainted block.
bool Wholes::give_back(Address start, const Whole& whole, Call call) {
  Account& account = *whole.account;
  bool gone = false;
  if (call == Call::kWait) gone = account.upstream.release(account.order, start, whole.bytes);
  // (Nobody has asked a driver what a free in stream order does to exported memory.)
  if (call == Call::kAtOnce && whole.mark.taints == 0)
    gone = account.upstream.release_done(account.order, start, whole.bytes);
  Guard hold(lock_);
  if (gone) {
    account.reserved -= whole.bytes;
    gone_.fetch_add(1, std::memory_order_release);
  } else {
    Whole& kept = table_[start] = whole;
    kept.age = ++ages_;
    add_idle(start, kept);
  }
  return gone;
}

uint64_t Wholes::release_of(driver::Context context, uint64_t keep) {
  return release({.context = context, .keep = keep});
}

void Wholes::look(const Choice& choice, allocator::Effort effort) {
  if (!is_on_device() || order_.is_capturing()) return;
  for (const driver::Context context : contexts_of(choice)) {
    const InFlight::Call call(in_flight_, context, InFlight::Kind::kUse);
    order::Timeline* const order = call.is_open() ? order_.find(context) : nullptr;
    // A free that gives nothing back may wait for this very call.
    if (order == nullptr || idle_bytes({.context = context}) == 0) continue;
    order->advance();
    if (effort != allocator::Effort::kDone) order->wait_for_frees();
  }
}

// What spilled makes no room on a device. (Managed memory may.)
uint64_t Wholes::release_everything(int device, allocator::Effort effort) {
  if (!is_on_device() && !is_host_visible()) return 0;
  const Choice done{.device = device, .only_done = true};
  look(done, effort);
  const uint64_t released = release(done);
  return effort == allocator::Effort::kAll ? released + release({.device = device}) : released;
}

uint64_t Wholes::most_releasable(int device, uint64_t wanted) {
  return is_on_device() || is_host_visible() ? most_idle(device, wanted) : 0;
}

// The driver takes device memory in steps of 2 MiB. Blocks of up to 1 MiB share them, so a larger one gains
// only by steps on which nothing lives.
uint64_t Wholes::most_idle(int device, uint64_t wanted) {
  const Choice choice{.device = device};
  Guard hold(lock_);
  uint64_t bytes = 0;
  if (wanted <= kMiB || !is_on_device()) {
    for (const auto& [context, account] : accounts_) {
      if (choice.covers(context, account)) bytes += account.idle + kDriverStep * account.by_age.size();
    }
    return bytes;
  }
  Address end = 0;  // of the steps that were looked at, and whether the last of them counted
  bool is_counted = false;
  for (const auto& [start, whole] : table_) {
    const bool is_idle = whole.asked == 0 && choice.covers(whole.context, *whole.account);
    if (start < end && is_counted && !is_idle) {
      bytes -= kDriverStep;
      is_counted = false;
    }
    const Address from = std::max(end, start / kDriverStep * kDriverStep);
    const Address to = round_up(start + whole.bytes, kDriverStep);
    if (to <= from) continue;
    if (is_idle) bytes += to - from;
    is_counted = is_idle;
    end = to;
  }
  return bytes;
}

std::vector<driver::Context> Wholes::contexts_of(const Choice& choice) {
  std::vector<driver::Context> all;
  Guard hold(lock_);
  for (const auto& [context, account] : accounts_) {
    if (choice.covers(context, account)) all.push_back(context);
  }
  return all;
}

uint64_t Wholes::trim(uint64_t keep) {
  uint64_t released = 0;
  for (const driver::Context context : contexts_of({})) released += release_of(context, keep);
  return released;
}

// Where a device is named, its memory is wanted.
uint64_t Wholes::release_idle(const allocator::Idle& which) {
  if (which.device != allocator::kEveryDevice && !is_on_device() && !is_host_visible()) return 0;
  return release({.device = which.device, .only_idle = &which});
}

// ---- Without the driver.

Wholes::Table::iterator Wholes::forget(Table::iterator entry) {
  const Whole& whole = entry->second;
  Account& account = *whole.account;
  account.reserved -= whole.bytes;
  account.upstream.forget(whole.bytes);
  if (whole.asked != 0 && account.tally != nullptr) account.tally->drop(whole.asked, whole.bytes);
  if (whole.asked == 0) remove_idle(entry->first, whole);
  return table_.erase(entry);
}

void Wholes::forget_range(Address start, uint64_t bytes) {
  auto at = containing(start);
  if (at == table_.end()) at = table_.lower_bound(start);
  while (at != table_.end() && at->first < start + bytes) at = forget(at);
}

void Wholes::begin_end(driver::Context context, uint64_t ending) {
  Guard hold(lock_);
  for (auto at = table_.begin(); at != table_.end();) {
    const bool is_meant = at->second.context == context;
    if (is_meant && source_.is_mapped()) left_.emplace(ending, at->first);
    at = is_meant ? forget(at) : std::next(at);
  }
  std::erase_if(idle_, [&](const auto& entry) { return entry.first.first == context; });
  accounts_.erase(context);
}

// If the context lives on after all, the program may still use its blocks: they stay.
void Wholes::ended(uint64_t ending, bool gone) {
  std::vector<Address> left;
  {
    Guard hold(lock_);
    const auto [begin, end] = left_.equal_range(ending);
    for (auto at = begin; at != end; ++at) left.push_back(at->second);
    left_.erase(begin, end);
  }
  for (size_t i = 0; gone && i < left.size(); ++i) source_.drop(left[i]);
}

// ---- The report of a failed allocation.

void Wholes::note_failure(driver::Context context, uint64_t bytes) {
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
  shortage.source = is_host_visible() ? report::Shortage::Source::kManaged : report::Shortage::Source::kWhole;
  shortage.limit = is_host_visible() ? kUnlimited : account.upstream.limit();
  shortage.limited = is_host_visible() ? 0 : upstream::Limit::booked(device);
  shortage.capturing = order_.is_capturing();
  size_t free = 0;
  size_t total = 0;
  if (source_.memory(&free, &total) != kSuccess) total = account.device_bytes;
  shortage.device_free = free;
  shortage.device_total = total;
  {
    Guard hold(lock_);
    const Choice alike{.device = device};
    for (const auto& [start, whole] : table_) {
      if (!alike.covers(whole.context, *whole.account)) continue;
      add_row(whole.bytes, whole.asked, whole.mark.taints != 0, &shortage);
      if (whole.bytes > kMiB) shortage.rounding += round_up(whole.bytes, kDriverStep) - whole.bytes;
    }
  }
  report::write_shortage(shortage);
}

}  // namespace cupool::whole
