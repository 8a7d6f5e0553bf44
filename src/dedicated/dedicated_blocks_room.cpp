// How dedicated blocks make room: which idle ones go back to the driver, when, and how the driver is asked
// again. A block leaves the table before it is released, and returns to it if the driver refuses; meanwhile a
// call in flight keeps its context, and so its account, alive.
#include <sched.h>

#include <algorithm>
#include <optional>

#include "dedicated/dedicated_blocks.hpp"
#include "order/idle_moment.hpp"
#include "stats/counters.hpp"

namespace cupool::dedicated {

using driver::kSuccess;
using stats::DeviceCounter;

// Managed memory may exceed the device's.
bool DedicatedBlocks::may_take(driver::Context context, uint64_t bytes) {
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
bool DedicatedBlocks::may_have(const Account& account, uint64_t bytes) {
  const int device = account.upstream.device();
  const uint64_t idle = idle_bytes({.device = device});
  // Asked first: what is refused meanwhile is booked no more.
  if (is_on_device() && !upstream::Limit::is_asking(device) && account.upstream.excess(bytes) > idle)
    return false;
  const uint64_t most = most_idle(device, bytes);
  const uint64_t needed = bytes > kMiB ? round_up(bytes, kDriverStep) : bytes;
  return idle == 0 || most >= needed || source_.might_give(device, needed - most);
}

bool DedicatedBlocks::release_enough(const Account& account, uint64_t bytes, uint64_t seen,
                                     uint64_t others_ns) {
  const int device = account.upstream.device();
  const driver::Context context = account.order.context();
  const uint64_t excess = account.upstream.excess(bytes);
  Choice choice;
  if (!is_host_visible()) choice.device = device;
  if (excess != 0) {
    const uint64_t idle = idle_bytes(choice);
    choice.keep = idle - std::min(idle, excess);
  }
  Choice done = choice;
  done.only_done = true;
  look(done, allocator::Effort::kDone, context);
  uint64_t released = release(done);
  if (released == 0) {
    look(done, allocator::Effort::kFrees, context, others_ns);
    released = release(done);
  }
  if (released == 0) release_waiting(choice, context);
  in_flight_.wait_for_releases(is_host_visible() ? driver::kEveryDevice : device, context, others_ns);
  // Another thread's request is booked already, but the driver may still refuse it. Not waited for long: it
  // may stand as long as a launch in its context stands.
  constexpr int kMostTurns = 600;
  const bool others_ask = excess != 0 && upstream::Limit::is_asking(device);
  for (int turn = 0; others_ask && turn < kMostTurns && upstream::Limit::is_asking(device); ++turn)
    Lock::wait_a_little(turn);
  return others_ask || gone_.load(std::memory_order_acquire) != seen || idle_bytes({.context = context}) != 0;
}

driver::Context DedicatedBlocks::context_of_oldest(const Choice& choice, int* device) {
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
    const Block& first = table_.find(account.by_age.begin()->second)->second;
    if ((choice.only_done && !is_done(first)) || (choice.only_stale && !is_stale(first))) continue;
    age = account.by_age.begin()->first;
    oldest = context;
    *device = account.upstream.device();
  }
  return oldest;
}

// pre: `choice` names one context.
bool DedicatedBlocks::remove_oldest(const Choice& choice, uint64_t newest, Address* start, Block* out) {
  Guard hold(lock_);
  const auto found = accounts_.find(choice.context);
  if (found == accounts_.end() || found->second.by_age.empty()) return false;
  const Account& account = found->second;
  const Address oldest = account.by_age.begin()->second;
  const Block& block = table_[oldest];
  const bool is_needed =
      choice.only_idle != nullptr && now_ms() - block.idle_since < choice.only_idle->for_ms;
  if (is_needed || block.age > newest || (choice.only_done && !is_done(block)) ||
      (choice.only_stale && !is_stale(block)))
    return false;
  *start = oldest;
  *out = block;
  remove_idle(oldest, block);
  table_.erase(oldest);
  return true;
}

uint64_t DedicatedBlocks::release(const Choice& choice) {
  uint64_t released = 0;
  uint64_t newest = 0;
  if ((choice.only_done && !is_on_device()) || order_.is_capturing()) return 0;
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
      moment.emplace(*order);
      if (!moment->has_come()) break;
    }
    Choice oldest = choice;
    oldest.context = context;
    Address start = 0;
    Block block;
    if (!remove_oldest(oldest, newest, &start, &block)) break;
    // A refused block is put back as the newest, so each is tried once.
    if (!give_back(start, block, choice.only_done ? Call::kAtOnce : Call::kWait)) continue;
    if (stats::ThreadTally* const tally = block.account->tally) {
      if (choice.only_idle != nullptr) tally->device().count(DeviceCounter::decays);
      if (choice.only_idle == nullptr && released == 0) tally->device().count(DeviceCounter::trims);
    }
    released += block.bytes;
  }
  return released;
}

// take() never finds a tainted block.
bool DedicatedBlocks::give_back(Address start, const Block& block, Call call) {
  Account& account = *block.account;
  bool gone = false;
  if (call == Call::kWait) gone = account.upstream.release(account.order, start, block.bytes);
  // (Nobody has asked a driver what a free in stream order does to exported memory.)
  if (call == Call::kAtOnce && block.mark.taints == 0)
    gone = account.upstream.release_done(account.order, start, block.bytes);
  Guard hold(lock_);
  if (gone) {
    account.reserved -= block.bytes;
    gone_.fetch_add(1, std::memory_order_release);
  } else {
    Block& kept = table_[start] = block;
    kept.age = ++ages_;
    kept.missed_at = account.admission.missed();
    add_idle(start, kept);
  }
  return gone;
}

bool DedicatedBlocks::take_out(Address start, Block* out) {
  Guard hold(lock_);
  const auto found = table_.find(start);
  if (found == table_.end() || found->second.asked == 0) return false;
  *out = found->second;
  table_.erase(found);
  return true;
}

void DedicatedBlocks::end_free_by(Address start, const Block& block, bool is_gone) {
  Guard hold(lock_);
  if (!is_gone) {
    table_[start] = block;
    return;
  }
  Account& account = *block.account;
  account.reserved -= block.bytes;
  account.upstream.forget(block.bytes);
  if (account.tally != nullptr) {
    account.tally->take_back(block.asked, block.bytes);
  } else {
    stats::count(stats::Counter::managed_frees);
  }
}

uint64_t DedicatedBlocks::release_of(driver::Context context, uint64_t keep) {
  return release({.context = context, .keep = keep});
}

uint64_t DedicatedBlocks::release_idle_of(driver::Context context, uint64_t keep) {
  const allocator::Idle idle;
  return release({.context = context, .keep = keep, .only_idle = &idle});
}

void DedicatedBlocks::look(const Choice& choice, allocator::Effort effort, driver::Context asking,
                           uint64_t others_ns) {
  admit_left();
  if (!is_on_device() || order_.is_capturing()) return;
  for (const driver::Context context : contexts_of(choice)) {
    const InFlight::Call call(in_flight_, context, InFlight::Kind::kUse);
    order::Timeline* const order = call.is_open() ? order_.find(context) : nullptr;
    // A free that gives nothing back may wait for this very call.
    if (order == nullptr || idle_bytes({.context = context}) == 0) continue;
    order->advance();
    if (effort == allocator::Effort::kDone) continue;
    if (asking == nullptr || asking == context) {
      order->wait_for_frees();
    } else {
      order->wait_for_frees_elsewhere(last_free_.order == order ? last_free_.epoch : 0, others_ns);
    }
  }
}

// What spilled makes no room on a device. (Managed memory may.)
uint64_t DedicatedBlocks::release_everything(int device, allocator::Effort effort, driver::Context asking) {
  if (!is_on_device() && !is_host_visible()) return 0;
  const Choice done{.device = device, .only_done = true};
  const bool may_wait = effort == allocator::Effort::kFrees;
  look(done, effort, asking, may_wait ? allocator::kMostForOtherContexts : 0);
  const uint64_t released = release(done);
  if (effort != allocator::Effort::kAll) return released;
  return released + release_waiting({.device = device}, asking);
}

// The driver's free waits for all work of the block's context: where that is not the one that asks, blocks go
// only while nothing is pending there.
uint64_t DedicatedBlocks::release_waiting(const Choice& choice, driver::Context asking) {
  if (asking == nullptr) return release(choice);
  const allocator::Idle idle;
  Choice own = choice;
  own.context = asking;
  Choice others = choice;
  others.only_idle = &idle;
  return release(own) + release(others);
}

uint64_t DedicatedBlocks::most_releasable(int device, uint64_t wanted) {
  admit_left();
  return is_on_device() || is_host_visible() ? most_idle(device, wanted) : 0;
}

// The driver takes device memory in steps of 2 MiB. Blocks of up to 1 MiB share them, so a larger one gains
// only by steps on which nothing lives.
uint64_t DedicatedBlocks::most_idle(int device, uint64_t wanted) {
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
  for (const auto& [start, block] : table_) {
    const bool is_idle =
        block.asked == 0 && !block.free_pending && choice.covers(block.context, *block.account);
    if (start < end && is_counted && !is_idle) {
      bytes -= kDriverStep;
      is_counted = false;
    }
    const Address from = std::max(end, start / kDriverStep * kDriverStep);
    const Address to = round_up(start + block.bytes, kDriverStep);
    if (to <= from) continue;
    if (is_idle) bytes += to - from;
    is_counted = is_idle;
    end = to;
  }
  return bytes;
}

std::vector<driver::Context> DedicatedBlocks::contexts_of(const Choice& choice) {
  std::vector<driver::Context> all;
  Guard hold(lock_);
  for (const auto& [context, account] : accounts_) {
    if (choice.covers(context, account)) all.push_back(context);
  }
  return all;
}

uint64_t DedicatedBlocks::trim(uint64_t keep) {
  admit_left();
  uint64_t released = 0;
  for (const driver::Context context : contexts_of({})) released += release_of(context, keep);
  return released;
}

// Where a device is named, its memory is wanted.
uint64_t DedicatedBlocks::release_idle(const allocator::Idle& which) {
  if (which.device != allocator::kEveryDevice && !is_on_device() && !is_host_visible()) return 0;
  admit_left();
  return release({.device = which.device, .only_idle = &which});
}

}  // namespace cupool::dedicated
