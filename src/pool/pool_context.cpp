// The end of a pool's context, and the next context that the same record serves. Whoever calls has waited for
// the calls that were under way.
#include "pool/pool.hpp"

namespace cupool::pool {

void Pool::close(uint64_t number) {
  failed_.store(nullptr, std::memory_order_relaxed);
  drop_kept();
  slabs_.drop_all();
  upstream_.forget(ranges_.reserved() + lost_.exchange(0, std::memory_order_relaxed));
  ranges_.drop_all();
  tainted_segments_.store(0, std::memory_order_relaxed);
  Guard hold_marks(marks_lock_);
  marks_.clear();
  closed_at_ = number;
}

bool Pool::reopen(driver::Context context, int device, order::Timeline& order) {
  if (closed_at_ == 0 || device != device_) return false;
  closed_at_ = 0;
  // A free that had looked at the old context before it ended may have kept its block since.
  drop_kept();
  allocated_segments_.store(0, std::memory_order_relaxed);
  released_segments_.store(0, std::memory_order_relaxed);
  spread_.store(0, std::memory_order_relaxed);
  order_.store(&order, std::memory_order_relaxed);
  {
    Guard hold(caches_lock_);
    for (ThreadCache* cache = caches_; cache != nullptr; cache = cache->next_of_pool) cache->set_order(order);
  }
  context_.store(context, std::memory_order_relaxed);
  return true;
}

}  // namespace cupool::pool
