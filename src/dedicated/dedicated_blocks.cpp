// See dedicated_blocks.hpp: allocation, free, and the end of a context.
#include "dedicated/dedicated_blocks.hpp"

#include <utility>
#include <vector>

#include "base/host_memory.hpp"
#include "stats/counters.hpp"
#include "upstream/retry.hpp"

namespace cupool::dedicated {

using driver::kOutOfMemory;
using driver::kSuccess;
using stats::DeviceCounter;

// ---- Allocation.

Status DedicatedBlocks::allocate(driver::Context context, uint64_t bytes, Address* out,
                                 allocator::Short when_short) {
  const InFlight::Call call(in_flight_, context, InFlight::Kind::kUse);
  Account* const account = call.is_open() && !host::is_short() ? accounts_.open(context) : nullptr;
  if (account == nullptr) return allocator::kDeclined;
  pending_.admit();
  if (take(*account, bytes, order::Reach::kCheap, DeviceCounter::range_hits, out)) return kSuccess;
  if (has_idle(*account, bytes) && !order_.is_capturing() && take_after_wait(*account, bytes, out))
    return kSuccess;
  make_way(*account, bytes);
  uint64_t seen = releases_.gone();
  uint64_t refusals = upstream::Limit::refusals();
  bool is_asked = false;
  const Status status = allocate_from_driver(*account, bytes, out, &is_asked);
  if (status != kOutOfMemory || when_short == allocator::Short::kLeave) return status;
  stats::device(account->device).count(DeviceCounter::out_of_memory_retries);
  if (has_idle(*account, bytes) && !order_.is_capturing() && take_when_short(*account, bytes, out))
    return kSuccess;
  uint64_t others_ns = allocator::kMostForOtherContexts;
  const auto may_ask_again = [&] {
    if (order_.is_capturing()) return false;
    // Once.
    const uint64_t for_others = std::exchange(others_ns, 0);
    // What another thread is giving back counts as taken until it is gone.
    const bool may_help = is_host_visible() || ((!is_on_device() || may_take(context, bytes)) &&
                                                releases_.may_be_enough(*account, bytes));
    const bool has_changed = may_help ? releases_.release_enough(*account, bytes, seen, for_others)
                                      : in_flight_.wait_for_releases(account->device, context, for_others) ||
                                            releases_.gone() != seen;
    // Or the limit refused because of another thread's request, which the driver has refused by now.
    return has_changed || (!is_asked && upstream::Limit::refusals() != refusals);
  };
  return upstream::ask_again(may_ask_again, [&] {
    seen = releases_.gone();
    refusals = upstream::Limit::refusals();
    is_asked = false;
    return allocate_from_driver(*account, bytes, out, &is_asked);
  });
}

bool DedicatedBlocks::take_done(driver::Context context, uint64_t bytes, Address* out) {
  const InFlight::Call call(in_flight_, context, InFlight::Kind::kUse);
  Account* const account = call.is_open() ? accounts_.find(context) : nullptr;
  if (account == nullptr || !has_idle(*account, bytes)) return false;
  if (!order_.is_capturing()) account->order.advance();
  return take(*account, bytes, order::Reach::kCheap, DeviceCounter::range_hits, out);
}

// There are idle blocks of this size, but none may be handed out yet. Above the budget, work is made to wait
// for one.
bool DedicatedBlocks::take_after_wait(Account& account, uint64_t bytes, Address* out) {
  account.order.advance();
  if (take(account, bytes, order::Reach::kCheap, DeviceCounter::hits_after_wait, out)) return true;
  if (is_host_visible() || releases_.idle_bytes({}) <= account.settings.many_budget) return false;
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

// See Admission. If blocks of about this size lie idle, but their work is pending, nothing is useless. All go
// where the program has next to nothing: when it asks again, it has work under way.
void DedicatedBlocks::make_way(Account& account, uint64_t bytes) {
  uint64_t keep = 0;
  {
    Guard hold(table_.lock());
    const uint64_t largest = account.largest_for(bytes);
    if (account.idle == 0 || table_.has_idle(account, bytes, largest)) return;
    if (is_host_visible() || account.newcomers >= bytes) account.admission.note_useless(account.newcomers);
    if (!is_host_visible() || account.admission.comes_again(bytes, largest)) return;
    const uint64_t held = account.reserved + bytes;
    const uint64_t most = account.admission.most_held(account.taken() + bytes);
    if (!account.admission.is_little(account.taken())) {
      if (held <= most) return;
      keep = account.idle - std::min(account.idle, held - most);
    }
  }
  account.order.advance();
  const allocator::Idle idle;
  releases_.release(
      {.of = {.context = account.context}, .keep = keep, .only_idle = &idle, .is_remembered = true});
}

Status DedicatedBlocks::allocate_from_driver(Account& account, uint64_t bytes, Address* out, bool* is_asked) {
  if (!is_host_visible()) account.order.keep_events();
  const Status status = account.upstream.allocate(bytes, out, is_asked);
  if (status != kSuccess) return status;
  Guard hold(table_.lock());
  forget_range(*out, bytes);
  account.reserved += bytes;
  Block& block = table_.add(*out, {.bytes = bytes, .asked = bytes, .owner = &account});
  block.comes_again = account.admission.note_miss(bytes, account.largest_for(bytes));
  account.admission.note_live(account.taken());
  account.count_given(block, DeviceCounter::misses);
  return kSuccess;
}

bool DedicatedBlocks::take(Account& account, uint64_t bytes, order::Reach reach, DeviceCounter how,
                           Address* out) {
  Epoch stamp = 0;
  {
    Guard hold(table_.lock());
    const auto may_take = [&](const Block& block) {
      // Read under the lock, not before: the freeing thread has noted its work first.
      const Epoch most = account.limit(reach);
      stamp = most == order::kAnyStamp ? 0 : block.stamp;
      return block.stamp <= most;
    };
    BlockTable::Entry* const found = table_.find_idle(account, bytes, account.largest_for(bytes), may_take);
    if (found == nullptr) return false;
    table_.hand_out(*found, bytes);
    account.count_given(found->second, how);
    *out = found->first;
  }
  account.order.lean_on(stamp, *out);
  return true;
}

bool DedicatedBlocks::has_idle(const Account& account, uint64_t bytes) {
  Guard hold(table_.lock());
  return table_.has_idle(account, bytes, account.largest_for(bytes));
}

bool DedicatedBlocks::has_idle(driver::Context context, uint64_t bytes) {
  const Account* const account = accounts_.find(context);
  return account != nullptr && has_idle(*account, bytes);
}

// ---- Free.

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
  bool avoids_wait = false;
  Block freed;
  Releases::Choice surplus{.of = {.context = context}};
  {
    Guard hold(table_.lock());
    BlockTable::Entry* const found = table_.containing(address);
    if (found == nullptr) return Freed::kNotOurs;
    Block& block = found->second;
    if (found->first != address || block.asked == 0) return Freed::kNotLive;
    Account& account = Account::of(block);
    account.count_freed(block);
    table_.note_free(block, account.order.open());
    block.idle_since = now_ms();
    // A cached block needs a record; when host memory is short, cache only blocks that cannot be released
    // now.
    const bool is_wanted =
        block.comes_again || account.newcomers + block.steps() <= account.admission.allowance();
    leaves = may_call && may_wait && (block.mark.taints != 0 || !is_wanted || host::is_short());
    freed = block;
    if (leaves) {
      table_.remove(address);
      if (freed.mark.taints == 0) account.admission.note_given_back(freed.bytes);
    } else {
      table_.add_idle(address, block);
      const uint64_t max_cached = max_cached_.load(std::memory_order_relaxed);
      surplus.keep = max_cached == kFromOptions ? account.settings.max_cached : max_cached;
      is_surplus = may_wait && account.idle > surplus.keep;
      // Memory that is reused only after its work is done must not pile up without bound: then the free
      // waits, as the driver's does.
      waits_for_work = account.idle > account.settings.many_budget &&
                       (is_host_visible() || account.order.reuse() == order::Reuse::kCompleted);
    }
    const BlockTable::Entry* const oldest = table_.oldest_of(account);
    has_stale = may_wait && oldest != nullptr && oldest->second.is_stale();
    // (Without events of a context each free waits, for there is no other way to learn what is done.)
    const bool waits = leaves || is_surplus || has_stale || waits_for_work || account.settings.free_waits ||
                       !account.order.has_context_events();
    avoids_wait = may_wait && !waits && account.tally != nullptr && !account.order.is_idle();
  }
  if (!may_call) return Freed::kDone;
  const Account& account = Account::of(freed);
  order::Timeline& order = account.order;
  if (!may_wait) {
    order.keep_events();
    order.seal_for_completion();
  } else if (!order.is_idle()) {
    waits_for_work ? order.wait_in_free() : order.seal_in_free(true);
    Releases::note_free(order, order.sealed());
  }
  if (leaves) {
    const InFlight::Call releasing(in_flight_, context, InFlight::Kind::kRelease, account.device);
    // During a capture the block stays cached, unused.
    const bool may_release = releasing.is_open() && !order_.is_capturing();
    releases_.give_back(address, freed, may_release ? Releases::Call::kWait : Releases::Call::kNot);
  }
  if (is_surplus) releases_.release(surplus);
  if (has_stale) releases_.release({.of = {.context = context}, .only_stale = true});
  if (may_wait && account.settings.free_waits) order.wait_for_all();
  if (avoids_wait) order.note_unwaited_free(account.tally->device());
  return Freed::kDone;
}

// The stream may not have waited for the work of the block's former lives: that still counts, as the stamp.
Freed DedicatedBlocks::free_after(Address address, order::Timeline& elsewhere) {
  const driver::Context context = context_at(address);
  if (context == nullptr) return Freed::kNotOurs;
  const InFlight::Call call(in_flight_, context, InFlight::Kind::kUse);
  order::Timeline* const order = call.is_open() ? order_.find(context) : nullptr;
  const Epoch former = order == nullptr ? 0 : order->newest_leant_on();
  const order::CrossContextWait until(elsewhere);
  uint64_t age = 0;
  {
    Guard hold(table_.lock());
    BlockTable::Entry* const found = table_.containing(address);
    if (found == nullptr) return Freed::kNotOurs;
    Block& block = found->second;
    if (found->first != address || block.asked == 0) return Freed::kNotLive;
    Account::of(block).count_freed(block);
    table_.note_free(block, former);
    block.free_pending = true;
    age = block.age;
  }
  pending_.add(address, age, until);
  return Freed::kDone;
}

bool DedicatedBlocks::take_out(Address start, Block* out) {
  Guard hold(table_.lock());
  const Block* const found = table_.starting_at(start);
  if (found == nullptr || found->asked == 0) return false;
  *out = table_.remove(start);
  return true;
}

void DedicatedBlocks::end_free_by(Address start, const Block& block, bool is_gone) {
  Guard hold(table_.lock());
  if (!is_gone) {
    table_.add(start, block);
    return;
  }
  Account& account = Account::of(block);
  account.reserved -= block.bytes;
  account.upstream.forget(block.bytes);
  account.count_freed(block);
}

// ---- Idle blocks.

uint64_t DedicatedBlocks::release_idle_of(driver::Context context, uint64_t keep) {
  const allocator::Idle idle;
  return releases_.release({.of = {.context = context}, .keep = keep, .only_idle = &idle});
}

uint64_t DedicatedBlocks::trim(uint64_t keep) {
  pending_.admit();
  std::vector<driver::Context> contexts;
  {
    Guard hold(table_.lock());
    contexts = table_.contexts({});
  }
  uint64_t released = 0;
  for (const driver::Context context : contexts)
    released += releases_.release({.of = {.context = context}, .keep = keep});
  return released;
}

// Where a device is named, its memory is wanted.
uint64_t DedicatedBlocks::release_idle(const allocator::Idle& which) {
  if (which.device != allocator::kEveryDevice && !is_on_device() && !is_host_visible()) return 0;
  pending_.admit();
  return releases_.release({.of = {.device = which.device}, .only_idle = &which});
}

// ---- Without the driver.

void DedicatedBlocks::forget_block(Address start) {
  const Block block = table_.remove(start);
  Account& account = Account::of(block);
  account.reserved -= block.bytes;
  account.upstream.forget(block.bytes);
  if (block.asked != 0) account.count_dropped(block);
}

void DedicatedBlocks::forget_range(Address start, uint64_t bytes) {
  while (const BlockTable::Entry* const stale = table_.first_in(start, bytes)) forget_block(stale->first);
}

void DedicatedBlocks::begin_end(driver::Context context, uint64_t ending) {
  {
    Guard hold(table_.lock());
    const Holdings* const owner = table_.find(context);
    if (owner == nullptr) return;
    for (const Address start : table_.starts_of(*owner)) {
      if (source_.is_mapped()) left_.emplace(ending, start);
      forget_block(start);
    }
  }
  accounts_.close(context);
}

// If the context lives on after all, the program may still use its blocks: they stay.
void DedicatedBlocks::ended(uint64_t ending, bool gone) {
  std::vector<Address> left;
  {
    Guard hold(table_.lock());
    const auto [begin, end] = left_.equal_range(ending);
    for (auto at = begin; at != end; ++at) left.push_back(at->second);
    left_.erase(begin, end);
  }
  for (size_t i = 0; gone && i < left.size(); ++i) source_.drop(left[i]);
}

}  // namespace cupool::dedicated
