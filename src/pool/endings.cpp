// Contexts that end, and threads that allocate there at the same moment. What such a thread gets from the
// driver while the context ends dies with it, and must not be kept for the next context, which may have the
// same handle: so nothing is begun there any more, and what is under way is waited for. Whoever is waited
// for takes no lock that is held here.
#include <sched.h>

#include <algorithm>

#include "pool/pools.hpp"

namespace cupool::pool {

Pools::Arrival::Arrival(Pools& pools, driver::Context context) : pools_(pools), context_(context) {
  Guard hold(pools_.lock_);
  welcome_ = !pools_.is_off_locked(context);
  if (welcome_) pools_.arriving_.push_back(context);
}

Pools::Arrival::~Arrival() {
  if (!welcome_) return;
  Guard hold(pools_.lock_);
  pools_.arriving_.erase(std::find(pools_.arriving_.begin(), pools_.arriving_.end(), context_));
}

bool Pools::is_off_locked(driver::Context context) const {
  return std::find(failed_.begin(), failed_.end(), context) != failed_.end() ||
         std::find(ending_.begin(), ending_.end(), context) != ending_.end();
}

bool Pools::has_arrivals(driver::Context context) {
  Guard hold(lock_);
  return std::find(arriving_.begin(), arriving_.end(), context) != arriving_.end();
}

Pool* Pools::rested_pool_locked(int device) const {
  Pool* oldest = nullptr;
  size_t resting = 0;
  for (const auto& slot : pools_) {
    Pool* const pool = slot.load(std::memory_order_relaxed);
    if (pool == nullptr || pool->closed_at() == 0 || pool->device() != device) continue;
    ++resting;
    if (oldest == nullptr || pool->closed_at() < oldest->closed_at()) oldest = pool;
  }
  const bool is_full = pools_.back().load(std::memory_order_relaxed) != nullptr;
  return resting > kResting || is_full ? oldest : nullptr;
}

uint64_t Pools::begin_end(driver::Context context) {
  {
    Guard hold(lock_);
    ending_.push_back(context);
  }
  while (has_arrivals(context)) sched_yield();
  {
    // So that no other context gets the pool before it is empty.
    Guard hold(lock_);
    for (auto& slot : pools_) {
      Pool* pool = slot.load(std::memory_order_relaxed);
      if (pool != nullptr && pool->belongs_to(context)) pool->close(++closings_);
    }
    std::erase(failed_, context);
  }
  order_.leave(context);
  if (Wholes* wholes = wholes_.load(std::memory_order_acquire)) wholes->close(context);
  Native* const one = native();
  return one == nullptr ? 0 : one->close(context);
}

void Pools::closed(driver::Context context, uint64_t ending, bool gone) {
  if (Native* const one = native(); ending != 0 && one != nullptr) one->closed(ending, gone);
  Guard hold(lock_);
  const auto found = std::find(ending_.begin(), ending_.end(), context);
  if (found != ending_.end()) ending_.erase(found);
}

void Pools::close(driver::Context context) { closed(context, begin_end(context), true); }

}  // namespace cupool::pool
