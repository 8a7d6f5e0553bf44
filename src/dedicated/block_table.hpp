// The records of dedicated blocks: all of them by address, and the idle ones of each context by age and by
// size. Has the lock for all of this and for the accounts (account.hpp), which is never held across a call of
// the driver. Knows sizes, ages and stamps; when a stamp may be handed out, and how memory comes and goes,
// its callers know.
#pragma once

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "allocator/allocator.hpp"
#include "base/bytes.hpp"
#include "base/clock.hpp"
#include "base/lock.hpp"
#include "dedicated/admission.hpp"
#include "dedicated/driver_steps.hpp"
#include "driver/types.hpp"
#include "order/lane.hpp"

namespace cupool::dedicated {

using allocator::Address;
using allocator::Mark;
using order::Epoch;

// What one context has; the part of its account (account.hpp) that the table keeps.
struct Holdings {
  using Size = std::pair<uint64_t, uint64_t>;  // of an idle block: its bytes, then its age

  Holdings(driver::Context owner, int device_number) : context(owner), device(device_number) {}
  // The bytes that the program has, and those that are on their way to the driver.
  uint64_t taken() const { return reserved - idle; }

  const driver::Context context;
  const int device;
  uint64_t reserved = 0;
  uint64_t idle = 0;
  std::map<uint64_t, Address> by_age;  // idle blocks, oldest free first
  std::map<Size, Address> by_size;     // the same without those that are never reused
  Admission admission;
  uint64_t newcomers = 0;   // bytes of idle blocks whose size has not come again, in steps of the driver
  uint64_t idle_steps = 0;  // bytes of the driver's steps on which idle blocks of this context lie alone
};

// The clock of idle_since.
inline uint64_t now_ms() { return now_ns() / 1'000'000; }

struct Block {
  uint64_t bytes = 0;  // of the driver's allocation
  uint64_t asked = 0;  // 0: the program has freed it
  Holdings* owner = nullptr;
  Epoch stamp = 0;
  uint64_t age = 0;           // freed blocks: lower is older
  uint64_t idle_since = 0;    // in milliseconds
  uint64_t missed_at = 0;     // idle blocks: Admission::missed() when they became idle
  bool comes_again = false;   // its size did, so it is kept
  bool free_pending = false;  // pending_frees.hpp has it, and it is not idle yet
  Mark mark = {};             // idle and tainted: waits to go back to the driver

  bool is_idle() const { return asked == 0 && !free_pending; }
  // Requests have missed more bytes since it became idle than it is kept for.
  bool is_stale() const { return owner->admission.missed() - missed_at > owner->admission.patience(); }
  // What a small block may cost: the driver need not put two of them into one step.
  uint64_t steps() const { return round_up(bytes, kDriverStep); }
};

// One context or all, of one device or all.
struct Scope {
  driver::Context context = nullptr;
  int device = allocator::kEveryDevice;

  bool covers(const Holdings& one) const {
    return (context == nullptr || one.context == context) &&
           (device == allocator::kEveryDevice || one.device == device);
  }
};

class BlockTable {
 public:
  using Entry = std::pair<const Address, Block>;

  Lock& lock() CUPOOL_RETURN_CAPABILITY(lock_) { return lock_; }

  // ---- Contexts.

  void join(Holdings& one) CUPOOL_REQUIRES(lock_) { holdings_.emplace(one.context, &one); }
  // pre: it has no block any more.
  void leave(const Holdings& one) CUPOOL_REQUIRES(lock_) { holdings_.erase(one.context); }
  // Null: the context has not joined.
  Holdings* find(driver::Context context) const CUPOOL_REQUIRES(lock_) {
    const auto found = holdings_.find(context);
    return found == holdings_.end() ? nullptr : found->second;
  }
  std::vector<driver::Context> contexts(const Scope& scope) const CUPOOL_REQUIRES(lock_);
  uint64_t idle_bytes(const Scope& scope) const CUPOOL_REQUIRES(lock_);
  uint64_t taken_bytes(const Scope& scope) const CUPOOL_REQUIRES(lock_);
  // The largest idle block that may be reused.
  uint64_t largest_idle(const Scope& scope) const CUPOOL_REQUIRES(lock_);
  // The most bytes that a driver gains by all idle blocks, for a request of `wanted` bytes. `in_steps`: it
  // takes this memory in steps of 2 MiB. Blocks of up to 1 MiB share them, so a larger one gains only by
  // steps on which nothing lives.
  uint64_t most_idle(const Scope& scope, uint64_t wanted, bool in_steps) const CUPOOL_REQUIRES(lock_);

  // ---- Blocks.

  // Null: none.
  Entry* containing(Address address) CUPOOL_REQUIRES(lock_);
  Block* starting_at(Address start) CUPOOL_REQUIRES(lock_);
  // The block whose requested bytes contain an address.
  Entry* live_at(Address address) CUPOOL_REQUIRES(lock_);
  // The first of the blocks that lie at least in part in these addresses.
  Entry* first_in(Address start, uint64_t bytes) CUPOOL_REQUIRES(lock_);
  std::vector<Address> starts_of(const Holdings& owner) const CUPOOL_REQUIRES(lock_);
  // Runs `f(start, Block&)` for each block, or each in these addresses.
  template <typename F>
  void for_each(F&& f) CUPOOL_REQUIRES(lock_) {
    for (auto& [start, block] : blocks_) f(start, block);
  }
  template <typename F>
  void for_each_in(Address start, uint64_t bytes, F&& f) CUPOOL_REQUIRES(lock_) {
    for (auto at = find_in(start); at != blocks_.end() && at->first <= last_of(start, bytes); ++at)
      f(at->first, at->second);
  }
  // A block that is in no index yet, and whose bytes count as reserved.
  Block& add(Address start, const Block& block) CUPOOL_REQUIRES(lock_) {
    steps_.note(start, block.bytes, &block.owner->idle_steps, {.blocks = 1});
    return blocks_[start] = block;
  }
  // Out of the indexes too. The bytes stay reserved until the driver has them.
  Block remove(Address start) CUPOOL_REQUIRES(lock_);

  // ---- Idle blocks.

  // The program frees it. It gets an age, the highest so far, but is not idle yet.
  void note_free(Block& block, Epoch stamp) CUPOOL_REQUIRES(lock_) {
    block.asked = 0;
    block.stamp = stamp;
    renew(block);
  }
  // As if it had been freed just now: all others come before it.
  void renew(Block& block) CUPOOL_REQUIRES(lock_) { block.age = ++ages_; }
  uint64_t newest_age() const CUPOOL_REQUIRES(lock_) { return ages_; }
  void add_idle(Address start, Block& block) CUPOOL_REQUIRES(lock_);
  // An idle block of `bytes` to `most` bytes that `may_take(block)` accepts, the smallest and of equals the
  // oldest; null: there is none. Of each size only the oldest is tried, for those that were freed later have
  // later stamps; and few sizes.
  template <typename MayTake>
  Entry* find_idle(const Holdings& owner, uint64_t bytes, uint64_t most, MayTake&& may_take)
      CUPOOL_REQUIRES(lock_) {
    constexpr int kMostSizes = 16;
    auto at = owner.by_size.lower_bound({bytes, 0});
    for (int sizes = 0; sizes < kMostSizes; ++sizes) {
      if (at == owner.by_size.end() || at->first.first > most) break;
      Entry& entry = *blocks_.find(at->second);
      if (may_take(entry.second)) return &entry;
      at = owner.by_size.upper_bound({entry.second.bytes, ~uint64_t{0}});
    }
    return nullptr;
  }
  bool has_idle(const Holdings& owner, uint64_t bytes, uint64_t most) const CUPOOL_REQUIRES(lock_) {
    const auto at = owner.by_size.lower_bound({bytes, 0});
    return at != owner.by_size.end() && at->first.first <= most;
  }
  // The program has an idle block again, for a request of `bytes`.
  void hand_out(Entry& entry, uint64_t bytes) CUPOOL_REQUIRES(lock_);
  // The block that has been idle for longest; null: none is. Of several contexts: of those whose oldest
  // `accepts(owner, block)`.
  const Entry* oldest_of(const Holdings& owner) const CUPOOL_REQUIRES(lock_) {
    return owner.by_age.empty() ? nullptr : &*blocks_.find(owner.by_age.begin()->second);
  }
  template <typename Accepts>
  const Entry* oldest(const Scope& scope, Accepts&& accepts) const CUPOOL_REQUIRES(lock_) {
    const Entry* oldest = nullptr;
    for (const auto& [context, owner] : holdings_) {
      const Entry* const first = scope.covers(*owner) ? oldest_of(*owner) : nullptr;
      if (first == nullptr || (oldest != nullptr && first->second.age >= oldest->second.age)) continue;
      if (accepts(*owner, first->second)) oldest = first;
    }
    return oldest;
  }

 private:
  using Blocks = std::map<Address, Block>;

  static Address last_of(Address start, uint64_t bytes) { return start + (bytes == 0 ? 0 : bytes - 1); }
  Blocks::iterator find_in(Address start) CUPOOL_REQUIRES(lock_);
  void remove_idle(Address start, const Block& block) CUPOOL_REQUIRES(lock_);

  Lock lock_{Rank::kDedicated};
  Blocks blocks_ CUPOOL_GUARDED_BY(lock_);
  DriverSteps steps_ CUPOOL_GUARDED_BY(lock_);
  std::map<driver::Context, Holdings*> holdings_ CUPOOL_GUARDED_BY(lock_);
  uint64_t ages_ CUPOOL_GUARDED_BY(lock_) = 0;
};

}  // namespace cupool::dedicated
