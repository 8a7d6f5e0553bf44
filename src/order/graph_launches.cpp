// The counters of graph_launches.hpp.
#include "order/graph_launches.hpp"

#include "base/after_fork.hpp"

namespace cupool::order {

constinit std::array<GraphLaunches::Counters, size_t{1} << GraphLaunches::kBits> GraphLaunches::counters_{};

namespace {

CUPOOL_AFTER_FORK(forget_graph_launches, &GraphLaunches::forget_after_fork);

}  // namespace

void GraphLaunches::forget_after_fork() {
  for (Counters& one : counters_) {
    one.begun.store(0, std::memory_order_relaxed);
    one.ended.store(0, std::memory_order_relaxed);
    one.overran.store(0, std::memory_order_relaxed);
    one.ours.store(0, std::memory_order_relaxed);
  }
}

}  // namespace cupool::order
