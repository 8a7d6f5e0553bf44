// See pending_frees.hpp.
#include "dedicated/pending_frees.hpp"

#include <algorithm>

namespace cupool::dedicated {

void PendingFrees::add(Address start, uint64_t age, const order::CrossContextWait& until) {
  {
    Guard hold(table_.lock());
    all_.push_back({start, age, until});
    has_any_.store(true, std::memory_order_relaxed);
  }
  until.expect(in_flight_);
}

void PendingFrees::admit() {
  if (!has_any_.load(std::memory_order_relaxed) || order_.is_capturing()) return;
  std::vector<One> all;
  {
    Guard hold(table_.lock());
    all.swap(all_);
  }
  const auto is_waiting = [&](const One& one) { return !one.until.is_done(in_flight_); };
  const auto reached = std::partition(all.begin(), all.end(), is_waiting);
  Guard hold(table_.lock());
  for (auto one = reached; one != all.end(); ++one) {
    Block* const block = table_.starting_at(one->start);
    if (block == nullptr || !block->free_pending || block->age != one->age) continue;
    block->free_pending = false;
    block->idle_since = now_ms();
    table_.add_idle(one->start, *block);
  }
  all_.insert(all_.end(), all.begin(), reached);
  has_any_.store(!all_.empty(), std::memory_order_relaxed);
}

}  // namespace cupool::dedicated
