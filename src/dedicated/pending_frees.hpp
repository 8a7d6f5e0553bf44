// Dedicated blocks that were freed in the order of a stream of another context: not the program's any more,
// and idle once the work there is done. Their list is under the table's lock; the driver is asked without it.
#pragma once

#include <atomic>
#include <vector>

#include "context/in_flight.hpp"
#include "dedicated/block_table.hpp"
#include "order/cross_context_wait.hpp"
#include "order/timelines.hpp"

namespace cupool::dedicated {

using context::InFlight;

class PendingFrees {
 public:
  PendingFrees(order::Timelines& order, InFlight& in_flight, BlockTable& table)
      : order_(order), in_flight_(in_flight), table_(table) {}

  // A block of this age, which note_free() gave it and which is marked as pending.
  void add(Address start, uint64_t age, const order::CrossContextWait& until) CUPOOL_EXCLUDES(table_.lock());
  // Makes those idle whose streams have come to the free.
  void admit() CUPOOL_EXCLUDES(table_.lock());

 private:
  struct One {
    Address start;
    uint64_t age;  // of the block: another one may start there by now
    order::CrossContextWait until;
  };

  order::Timelines& order_;
  InFlight& in_flight_;
  BlockTable& table_;
  std::vector<One> all_ CUPOOL_GUARDED_BY(table_.lock());
  std::atomic<bool> has_any_{false};
};

}  // namespace cupool::dedicated
