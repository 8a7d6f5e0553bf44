// See dedicated_blocks.hpp. A block leaves the table before it is released, and returns to it if the driver
// refuses; meanwhile a call in flight keeps its context, and so its account, alive. `lock_` is never held
// across a call of the driver.
#include "dedicated/dedicated_blocks.hpp"

#include <algorithm>
#include <iterator>

#include "base/host_memory.hpp"
#include "stats/counters.hpp"
#include "upstream/retry.hpp"

namespace cupool::dedicated {

using driver::kOutOfMemory;
using driver::kSuccess;
using stats::DeviceCounter;

// ---- Allocation.

DedicatedBlocks::Account* DedicatedBlocks::find_account(driver::Context context) {
  Guard hold(lock_);
  const auto found = accounts_.find(context);
  return found == accounts_.end() ? nullptr : &found->second;
}

DedicatedBlocks::Account* DedicatedBlocks::open(driver::Context context) {
  if (Account* const account = find_account(context)) return account;
  int device = 0;
  size_t free = 0;
  size_t total = 0;
  if (driver_.device(&device) != kSuccess || driver_.memory(&free, &total) != kSuccess) return nullptr;
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

Status DedicatedBlocks::allocate(driver::Context context, uint64_t bytes, Address* out,
                                 allocator::Short when_short) {
  const InFlight::Call call(in_flight_, context, InFlight::Kind::kUse);
  Account* const account = call.is_open() && !host::is_short() ? open(context) : nullptr;
  if (account == nullptr) return allocator::kDeclined;
  admit_left();
  if (take(*account, bytes, order::Reach::kCheap, DeviceCounter::range_hits, out)) return kSuccess;
  if (has_idle(*account, bytes) && !order_.is_capturing() && take_after_wait(*account, bytes, out))
    return kSuccess;
  uint64_t seen = gone_.load(std::memory_order_acquire);
  uint64_t refusals = upstream::Limit::refusals();
  bool is_asked = false;
  const Status status = allocate_from_driver(*account, context, bytes, out, &is_asked);
  if (status != kOutOfMemory || when_short == allocator::Short::kLeave) return status;
  stats::device(account->upstream.device()).count(DeviceCounter::out_of_memory_retries);
  if (has_idle(*account, bytes) && !order_.is_capturing() && take_when_short(*account, bytes, out))
    return kSuccess;
  uint64_t others_ns = allocator::kMostForOtherContexts;
  const auto may_ask_again = [&] {
    if (order_.is_capturing()) return false;
    // Once.
    const uint64_t for_others = std::exchange(others_ns, 0);
    // What another thread is giving back counts as taken until it is gone.
    const bool may_help =
        is_host_visible() || ((!is_on_device() || may_take(context, bytes)) && may_have(*account, bytes));
    const bool has_changed =
        may_help ? release_enough(*account, bytes, seen, for_others)
                 : in_flight_.wait_for_releases(account->upstream.device(), context, for_others) ||
                       gone_.load(std::memory_order_acquire) != seen;
    // Or the limit refused because of another thread's request, which the driver has refused by now.
    return has_changed || (!is_asked && upstream::Limit::refusals() != refusals);
  };
  return upstream::ask_again(may_ask_again, [&] {
    seen = gone_.load(std::memory_order_acquire);
    refusals = upstream::Limit::refusals();
    is_asked = false;
    return allocate_from_driver(*account, context, bytes, out, &is_asked);
  });
}

bool DedicatedBlocks::take_done(driver::Context context, uint64_t bytes, Address* out) {
  const InFlight::Call call(in_flight_, context, InFlight::Kind::kUse);
  Account* const account = call.is_open() ? find_account(context) : nullptr;
  if (account == nullptr || !has_idle(*account, bytes)) return false;
  if (!order_.is_capturing()) account->order.advance();
  return take(*account, bytes, order::Reach::kCheap, DeviceCounter::range_hits, out);
}

// There are idle blocks of this size, but none may be handed out yet. Above the budget, work is made to wait
// for one.
bool DedicatedBlocks::take_after_wait(Account& account, uint64_t bytes, Address* out) {
  account.order.advance();
  if (take(account, bytes, order::Reach::kCheap, DeviceCounter::hits_after_wait, out)) return true;
  if (is_host_visible() || idle_bytes({}) <= account.settings.many_budget) return false;
  return account.order.reach() &&
         take(account, bytes, order::Reach::kAll, DeviceCounter::hits_after_wait, out);
}

// Before memory goes back, for which the driver waits for all work: a block that work can be made to wait
// for, or whose work the program's own free would have waited for.
bool DedicatedBlocks::take_when_short(Account& account, uint64_t bytes, Address* out) {
  const auto take_within = [&](order::Reach reach) {
    return take(account, bytes, reach, DeviceCounter::hits_after_wait, out);
  };
  if (!is_host_visible() && account.order.reach() && take_within(order::Reach::kAll)) return true;
  return account.order.wait_for_frees() && take_within(order::Reach::kCheap);
}

Status DedicatedBlocks::allocate_from_driver(Account& account, driver::Context context, uint64_t bytes,
                                             Address* out, bool* is_asked) {
  if (!is_host_visible()) account.order.keep_events();
  const Status status = account.upstream.allocate(bytes, out, is_asked);
  if (status != kSuccess) return status;
  Guard hold(lock_);
  forget_range(*out, bytes);
  Block& block = table_[*out] = {};
  block.bytes = block.asked = bytes;
  block.context = context;
  block.account = &account;
  account.reserved += bytes;
  // Blocks of about this size lie idle, but their work is pending: they are not useless.
  const auto alike = account.by_size.lower_bound({bytes, 0});
  const bool has_alike = alike != account.by_size.end() && alike->first.first <= largest_for(bytes);
  block.comes_again =
      account.admission.note_miss(bytes, largest_for(bytes), has_alike ? 0 : account.newcomers);
  account.admission.note_live(account.reserved - account.idle);
  if (account.tally != nullptr) {
    account.tally->add(DeviceCounter::misses);
    account.tally->give(bytes, bytes);
  }
  return kSuccess;
}

// Memory the host may touch needs completed work; while no work is pending, all of it is.
Epoch DedicatedBlocks::limit(const Account& account, order::Reach reach) const {
  const order::Timeline& order = account.order;
  return is_host_visible() && !order.is_idle() ? order.completed() : order.limit(reach);
}

// Of each size the oldest is looked at: those that were freed later have later stamps.
bool DedicatedBlocks::take(Account& account, uint64_t bytes, order::Reach reach, DeviceCounter how,
                           Address* out) {
  constexpr int kMostSizes = 16;
  Epoch stamp = 0;
  bool is_found = false;
  {
    Guard hold(lock_);
    const uint64_t largest = largest_for(bytes);
    auto at = account.by_size.lower_bound({bytes, 0});
    for (int sizes = 0; sizes < kMostSizes && !is_found; ++sizes) {
      if (at == account.by_size.end() || at->first.first > largest) break;
      const Address start = at->second;
      Block& block = table_[start];
      // Read under the lock, not before: the freeing thread has noted its work first.
      const Epoch most = limit(account, reach);
      if (block.stamp > most) {
        at = account.by_size.upper_bound({block.bytes, ~uint64_t{0}});
        continue;
      }
      if (most != order::kAnyStamp) stamp = block.stamp;
      remove_idle(start, block);
      account.admission.note_live(account.reserved - account.idle);
      block.asked = bytes;
      block.comes_again = true;
      block.mark = {};
      if (account.tally != nullptr) {
        account.tally->add(how);
        account.tally->give(bytes, block.bytes);
      }
      *out = start;
      is_found = true;
    }
  }
  if (is_found) account.order.lean_on(stamp, *out);
  return is_found;
}

bool DedicatedBlocks::has_idle(const Account& account, uint64_t bytes) {
  Guard hold(lock_);
  const auto at = account.by_size.lower_bound({bytes, 0});
  return at != account.by_size.end() && at->first.first <= largest_for(bytes);
}

bool DedicatedBlocks::has_idle(driver::Context context, uint64_t bytes) {
  const Account* const account = find_account(context);
  return account != nullptr && has_idle(*account, bytes);
}

// ---- Free.

constinit thread_local DedicatedBlocks::LastFree DedicatedBlocks::last_free_;

Freed DedicatedBlocks::free(Address address, Waits waits) {
  const bool may_wait = waits == Waits::kIfAsked;
  const driver::Context context = context_at(address);
  if (context == nullptr) return Freed::kNotOurs;
  const InFlight::Call call(in_flight_, context, InFlight::Kind::kUse);
  // An ending context takes its memory with it, so the driver is not called.
  const bool may_call = call.is_open();
  bool leaves = false;
  bool is_surplus = false;
  bool has_stale = false;
  bool waits_for_work = false;
  Block freed;
  Choice surplus{.context = context};
  {
    Guard hold(lock_);
    const auto found = containing(address);
    if (found == table_.end()) return Freed::kNotOurs;
    Block& block = found->second;
    if (found->first != address || block.asked == 0) return Freed::kNotLive;
    Account& account = *block.account;
    if (account.tally != nullptr) {
      account.tally->take_back(block.asked, block.bytes);
    } else {
      stats::count(stats::Counter::managed_frees);
    }
    block.asked = 0;
    block.stamp = account.order.open();
    block.age = ++ages_;
    block.idle_since = now_ms();
    freed = block;
    last_free_ = {&account.order, block.stamp};
    // A cached block needs a record; when host memory is short, cache only blocks that cannot be released
    // now.
    const Admission& admission = account.admission;
    const bool is_wanted =
        block.comes_again || account.newcomers + steps(block.bytes) <= admission.allowance();
    leaves = may_call && may_wait && (block.mark.taints != 0 || !is_wanted || host::is_short());
    if (leaves) {
      table_.erase(found);
      if (block.mark.taints == 0) account.admission.note_given_back(block.bytes);
    } else {
      block.missed_at = admission.missed();
      add_idle(address, block);
      surplus.keep = max_cached(account);
      is_surplus = may_wait && account.idle > surplus.keep;
      // Memory that is reused only after its work is done must not pile up without bound: then the free
      // waits, as the driver's does.
      waits_for_work = account.idle > account.settings.many_budget &&
                       (is_host_visible() || account.order.reuse() == order::Reuse::kCompleted);
    }
    has_stale = may_wait && !account.by_age.empty() && is_stale(table_[account.by_age.begin()->second]);
  }
  if (!may_call) return Freed::kDone;
  const Account& account = *freed.account;
  order::Timeline& order = account.order;
  if (!may_wait) {
    order.keep_events();
    order.seal_for_completion();
  } else if (!order.is_idle()) {
    waits_for_work ? order.wait_in_free() : order.seal_in_free(true);
  }
  if (leaves) {
    const InFlight::Call releasing(in_flight_, context, InFlight::Kind::kRelease, account.upstream.device());
    // During a capture the block stays cached, unused.
    const bool may_release = releasing.is_open() && !order_.is_capturing();
    give_back(address, freed, may_release ? Call::kWait : Call::kNot);
  }
  if (is_surplus) release(surplus);
  if (has_stale) release({.context = context, .only_stale = true});
  if (may_wait && account.settings.free_waits) order.wait_for_all();
  return Freed::kDone;
}

// The stream may not have waited for the work of the block's former lives: that counts on, as the stamp.
Freed DedicatedBlocks::free_after(Address address, order::Timeline& elsewhere) {
  const driver::Context context = context_at(address);
  if (context == nullptr) return Freed::kNotOurs;
  const InFlight::Call call(in_flight_, context, InFlight::Kind::kUse);
  order::Timeline* const order = call.is_open() ? order_.find(context) : nullptr;
  const Epoch former = order == nullptr ? 0 : order->newest_leant_on();
  const order::CrossContextWait until(elsewhere);
  {
    Guard hold(lock_);
    const auto found = containing(address);
    if (found == table_.end()) return Freed::kNotOurs;
    Block& block = found->second;
    if (found->first != address || block.asked == 0) return Freed::kNotLive;
    if (block.account->tally != nullptr) block.account->tally->take_back(block.asked, block.bytes);
    block.asked = 0;
    block.stamp = former;
    block.age = ++ages_;
    block.free_pending = true;
    pending_frees_.push_back({address, block.age, until});
    has_pending_frees_.store(true, std::memory_order_relaxed);
  }
  until.expect(in_flight_);
  return Freed::kDone;
}

void DedicatedBlocks::admit_left() {
  if (!has_pending_frees_.load(std::memory_order_relaxed) || order_.is_capturing()) return;
  std::vector<PendingFree> all;
  {
    Guard hold(lock_);
    all.swap(pending_frees_);
  }
  // Not under the lock.
  const auto is_waiting = [&](const PendingFree& one) { return !one.until.is_done(in_flight_); };
  const auto reached = std::partition(all.begin(), all.end(), is_waiting);
  Guard hold(lock_);
  for (auto one = reached; one != all.end(); ++one) {
    const auto found = table_.find(one->start);
    if (found == table_.end() || !found->second.free_pending || found->second.age != one->age) continue;
    found->second.free_pending = false;
    found->second.idle_since = now_ms();
    add_idle(one->start, found->second);
  }
  pending_frees_.insert(pending_frees_.end(), all.begin(), reached);
  has_pending_frees_.store(!pending_frees_.empty(), std::memory_order_relaxed);
}

// ---- Idle blocks.

void DedicatedBlocks::add_idle(Address start, const Block& block) {
  Account& account = *block.account;
  if (block.mark.taints == 0) account.by_size.emplace(Size{block.bytes, block.age}, start);
  account.by_age.emplace(block.age, start);
  account.idle += block.bytes;
  if (!block.comes_again) account.newcomers += steps(block.bytes);
}

void DedicatedBlocks::remove_idle(Address start, const Block& block) {
  Account& account = *block.account;
  const auto found = account.by_age.find(block.age);
  if (found == account.by_age.end() || found->second != start) return;
  account.by_age.erase(found);
  account.by_size.erase({block.bytes, block.age});
  account.idle -= block.bytes;
  if (!block.comes_again) account.newcomers -= steps(block.bytes);
}

uint64_t DedicatedBlocks::idle_bytes_locked(const Choice& choice) const {
  uint64_t idle = 0;
  for (const auto& [context, account] : accounts_) {
    if (choice.covers(context, account)) idle += account.idle;
  }
  return idle;
}

uint64_t DedicatedBlocks::idle_bytes(const Choice& choice) {
  Guard hold(lock_);
  return idle_bytes_locked(choice);
}

uint64_t DedicatedBlocks::max_cached(const Account& account) const {
  const uint64_t wanted = max_cached_.load(std::memory_order_relaxed);
  return wanted == kFromOptions ? account.settings.max_cached : wanted;
}

// ---- Without the driver.

DedicatedBlocks::Table::iterator DedicatedBlocks::forget(Table::iterator entry) {
  const Block& block = entry->second;
  Account& account = *block.account;
  account.reserved -= block.bytes;
  account.upstream.forget(block.bytes);
  if (block.asked != 0 && account.tally != nullptr) account.tally->drop(block.asked, block.bytes);
  if (block.asked == 0) remove_idle(entry->first, block);
  return table_.erase(entry);
}

void DedicatedBlocks::forget_range(Address start, uint64_t bytes) {
  auto at = containing(start);
  if (at == table_.end()) at = table_.lower_bound(start);
  while (at != table_.end() && at->first < start + bytes) at = forget(at);
}

void DedicatedBlocks::begin_end(driver::Context context, uint64_t ending) {
  Guard hold(lock_);
  for (auto at = table_.begin(); at != table_.end();) {
    const bool is_meant = at->second.context == context;
    if (is_meant && source_.is_mapped()) left_.emplace(ending, at->first);
    at = is_meant ? forget(at) : std::next(at);
  }
  accounts_.erase(context);
}

// If the context lives on after all, the program may still use its blocks: they stay.
void DedicatedBlocks::ended(uint64_t ending, bool gone) {
  std::vector<Address> left;
  {
    Guard hold(lock_);
    const auto [begin, end] = left_.equal_range(ending);
    for (auto at = begin; at != end; ++at) left.push_back(at->second);
    left_.erase(begin, end);
  }
  for (size_t i = 0; gone && i < left.size(); ++i) source_.drop(left[i]);
}

}  // namespace cupool::dedicated
