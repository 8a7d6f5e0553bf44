// See releases.hpp.
#include "dedicated/releases.hpp"

#include <algorithm>
#include <optional>

#include "order/idle_moment.hpp"
#include "stats/counters.hpp"
#include "upstream/limit.hpp"

namespace cupool::dedicated {

using stats::DeviceCounter;

constinit thread_local Releases::LastFree Releases::last_free_;

uint64_t Releases::idle_bytes(const Scope& scope) {
  Guard hold(table_.lock());
  return table_.idle_bytes(scope);
}

uint64_t Releases::most_idle(int device, uint64_t wanted) {
  Guard hold(table_.lock());
  return table_.most_idle({.device = device}, wanted, source_.is_on_device());
}

// ---- For a request that was refused.

bool Releases::may_be_enough(const Account& account, uint64_t bytes) {
  const uint64_t idle = idle_bytes({.device = account.device});
  // Asked first: what is refused meanwhile is booked no more. (The limit is charged less than twice what a
  // block has.)
  if (source_.is_on_device() && !upstream::Limit::is_asking(account.device) &&
      account.upstream.excess(bytes) > 2 * idle)
    return false;
  const uint64_t most = most_idle(account.device, bytes);
  const uint64_t needed = bytes > kMiB ? round_up(bytes, kDriverStep) : bytes;
  return idle == 0 || most >= needed || source_.might_give(account.device, needed - most);
}

bool Releases::release_enough(const Account& account, uint64_t bytes, uint64_t seen, uint64_t others_ns) {
  const int device = account.device;
  const driver::Context context = account.context;
  const uint64_t excess = account.upstream.excess(bytes);
  Choice choice;
  if (!source_.is_host_visible()) choice.of.device = device;
  if (excess != 0) {
    const uint64_t idle = idle_bytes(choice.of);
    choice.keep = idle - std::min(idle, excess);
  }
  Choice done = choice;
  done.only_done = true;
  look(done.of, allocator::Effort::kDone, context, 0);
  uint64_t released = release(done);
  if (released == 0) {
    look(done.of, allocator::Effort::kFrees, context, others_ns);
    released = release(done);
  }
  if (released == 0) release_waiting(choice, context);
  in_flight_.wait_for_releases(source_.is_host_visible() ? driver::kEveryDevice : device, context, others_ns);
  // Another thread's request is booked already, but the driver may still refuse it. Not waited for long: it
  // may stand as long as a launch in its context stands.
  constexpr int kMostTurns = 600;
  const bool others_ask = excess != 0 && upstream::Limit::is_asking(device);
  for (int turn = 0; others_ask && turn < kMostTurns && upstream::Limit::is_asking(device); ++turn)
    Lock::wait_a_little(turn);
  return others_ask || gone() != seen || idle_bytes({.context = context}) != 0;
}

// ---- Which block, and how it goes.

// The context of the block that goes first.
bool Releases::find_oldest(const Choice& choice, Scope* owner) {
  const auto accepts = [&](const Holdings& one, const Block& first) {
    // What lies in a context that has failed, or ends, must not stand before all others.
    if (in_flight_.is_off(one.context)) return false;
    const Account& account = Account::of(first);
    if (choice.only_idle != nullptr && choice.only_idle->only_quiet && !account.order.was_quiet())
      return false;
    return (!choice.only_done || account.is_done(first)) && (!choice.only_stale || first.is_stale());
  };
  Guard hold(table_.lock());
  if (table_.idle_bytes(choice.of) <= choice.keep) return false;
  const BlockTable::Entry* const oldest = table_.oldest(choice.of, accepts);
  if (oldest == nullptr) return false;
  const Holdings& found = *oldest->second.owner;
  *owner = {found.context, found.device};
  return true;
}

bool Releases::remove_oldest(const Choice& choice, uint64_t newest, Address* start, Block* out) {
  Guard hold(table_.lock());
  const Holdings* const owner = table_.find(choice.of.context);
  const BlockTable::Entry* const oldest = owner == nullptr ? nullptr : table_.oldest_of(*owner);
  if (oldest == nullptr) return false;
  const Block& block = oldest->second;
  const bool is_needed =
      choice.only_idle != nullptr && now_ms() - block.idle_since < choice.only_idle->for_ms;
  if (is_needed || block.age > newest || (choice.only_done && !Account::of(block).is_done(block)) ||
      (choice.only_stale && !block.is_stale()))
    return false;
  *start = oldest->first;
  *out = table_.remove(*start);
  if (choice.is_remembered) out->owner->admission.note_given_back(out->bytes);
  return true;
}

uint64_t Releases::release(const Choice& choice) {
  uint64_t released = 0;
  uint64_t newest = 0;
  if ((choice.only_done && !source_.is_on_device()) || order_.is_capturing()) return 0;
  {
    Guard hold(table_.lock());
    newest = table_.newest_age();
  }
  const uint64_t enough = choice.only_idle != nullptr ? choice.only_idle->enough : ~uint64_t{0};
  Choice oldest = choice;
  const auto goes_on = [&] { return choice.only_idle == nullptr || choice.only_idle->goes_on(); };
  while (released < enough && goes_on() && find_oldest(choice, &oldest.of)) {
    const driver::Context context = oldest.of.context;
    const InFlight::Call call(in_flight_, context, InFlight::Kind::kRelease, oldest.of.device);
    if (!call.is_open()) continue;
    // A block that is not ready would wait for work, which only a free may do.
    std::optional<order::IdleMoment> moment;
    if (choice.only_idle != nullptr) {
      order::Timeline* const order = order_.find(context);
      if (order == nullptr) break;
      moment.emplace(*order);
      if (!moment->has_come()) break;
    }
    Address start = 0;
    Block block;
    if (!remove_oldest(oldest, newest, &start, &block)) break;
    // A refused block is put back as the newest, so each is tried once.
    if (!give_back(start, block, choice.only_done ? Call::kAtOnce : Call::kWait)) continue;
    if (stats::ThreadTally* const tally = Account::of(block).tally) {
      if (choice.only_idle != nullptr) tally->device().count(DeviceCounter::decays);
      if (choice.only_idle == nullptr && released == 0) tally->device().count(DeviceCounter::trims);
    }
    released += block.bytes;
  }
  return released;
}

// No allocation finds a tainted block.
bool Releases::give_back(Address start, const Block& block, Call call) {
  Account& account = Account::of(block);
  bool is_gone = false;
  if (call == Call::kWait) is_gone = account.upstream.release(account.order, start, block.bytes);
  // (Nobody has asked a driver what a free in stream order does to exported memory.)
  if (call == Call::kAtOnce && block.mark.taints == 0)
    is_gone = account.upstream.release_done(account.order, start, block.bytes);
  Guard hold(table_.lock());
  if (is_gone) {
    account.reserved -= block.bytes;
    gone_.fetch_add(1, std::memory_order_release);
  } else {
    Block& kept = table_.add(start, block);
    table_.renew(kept);
    table_.add_idle(start, kept);
  }
  return is_gone;
}

// ---- What is waited for.

void Releases::look(const Scope& scope, allocator::Effort effort, driver::Context asking,
                    uint64_t others_ns) {
  pending_.admit();
  if (!source_.is_on_device() || order_.is_capturing()) return;
  std::vector<driver::Context> contexts;
  {
    Guard hold(table_.lock());
    contexts = table_.contexts(scope);
  }
  for (const driver::Context context : contexts) {
    const InFlight::Call call(in_flight_, context, InFlight::Kind::kUse);
    order::Timeline* const order = call.is_open() ? order_.find(context) : nullptr;
    // A free that gives nothing back may wait for this very call.
    if (order == nullptr || idle_bytes({.context = context}) == 0) continue;
    const bool is_own = asking == nullptr || asking == context;
    is_own ? order->advance() : order->advance_from_outside();
    // What is done goes by it.
    is_own ? order->make_spare_stream() : order->ask_for_spare_stream();
    if (effort == allocator::Effort::kDone) continue;
    if (is_own) {
      order->wait_for_frees();
    } else {
      order->wait_for_frees_elsewhere(last_free_.order == order ? last_free_.epoch : 0, others_ns);
    }
  }
}

// Spilled memory makes no room on a device. (Managed memory may.)
uint64_t Releases::release_everything(int device, allocator::Effort effort, driver::Context asking) {
  if (!source_.is_on_device() && !source_.is_host_visible()) return 0;
  const Choice done{.of = {.device = device}, .only_done = true};
  const bool may_wait = effort == allocator::Effort::kFrees;
  look(done.of, effort, asking, may_wait ? allocator::kMostForOtherContexts : 0);
  const uint64_t released = release(done);
  if (effort != allocator::Effort::kAll) return released;
  return released + release_waiting({.of = {.device = device}}, asking);
}

// The driver's free waits for all work of the block's context: where that is not the one that asks, blocks go
// only while nothing is pending there.
uint64_t Releases::release_waiting(const Choice& choice, driver::Context asking) {
  if (asking == nullptr) return release(choice);
  const allocator::Idle idle;
  Choice own = choice;
  own.of.context = asking;
  Choice others = choice;
  others.only_idle = &idle;
  return release(own) + release(others);
}

}  // namespace cupool::dedicated
