// Closing a pool when its context ends, and reopening its record for another context. The caller has waited
// for all calls in flight. Mapped memory does not end with its context: it is unmapped once the driver has
// ended that, and all work with it.
#include "pool/pool.hpp"

namespace cupool::pool {

void Pool::close(uint64_t number) {
  failed_.store(nullptr, std::memory_order_relaxed);
  drop_kept();
  ordered_frees_.drop_all([](const OrderedFrees::Waiting& block) {
    holder_of(*block.entry.range).leaving.store(0, std::memory_order_relaxed);
  });
  slabs_.drop_all();
  upstream_.forget(ranges_.reserved() + lost_.exchange(0, std::memory_order_relaxed));
  ranges_.drop_all();
  tainted_segments_.store(0, std::memory_order_relaxed);
  Guard hold_marks(marks_lock_);
  marks_.clear();
  is_ending_.store(true, std::memory_order_relaxed);
  closed_at_ = number;
}

void Pool::ended(bool gone) {
  if (gone) {
    space_.unmap_all();
  } else {
    space_.forget_all();
  }
  is_ending_.store(false, std::memory_order_release);
}

bool Pool::reopen(driver::Context context, int device, order::Timeline& order) {
  if (closed_at_ == 0 || device != device_) return false;
  closed_at_ = 0;
  // A free that read the old context before its end may have cached its block since.
  drop_kept();
  allocated_segments_.store(0, std::memory_order_relaxed);
  released_segments_.store(0, std::memory_order_relaxed);
  spread_.store(0, std::memory_order_relaxed);
  spread_once_.store(0, std::memory_order_relaxed);
  needed_once_.store(0, std::memory_order_relaxed);
  forget_moves();
  order_.store(&order, std::memory_order_relaxed);
  {
    Guard hold(caches_lock_);
    for (ThreadCache* cache = caches_; cache != nullptr; cache = cache->next_of_pool) cache->set_order(order);
  }
  context_.store(context, std::memory_order_relaxed);
  return true;
}

}  // namespace cupool::pool
