// What one thread has freed in a pool a moment ago: whether so much that a seal is worth its cost, and
// whether it has given the device work since. Owner only; no lock.
#pragma once

#include <cstdint>

#include "base/reentry.hpp"
#include "order/lane.hpp"

namespace cupool::pool {

class RecentFrees {
 public:
  // Notes a free while work is pending; `open` is the open epoch. Whether this thread has freed so much in it
  // that a seal is worth its cost.
  bool seal_is_due(order::Epoch open, uint64_t bytes, uint32_t most_frees, uint64_t most_bytes) {
    if (open != unsealed_.epoch) unsealed_ = {open, 0, 0};
    unsealed_.bytes += bytes;
    return ++unsealed_.frees >= most_frees || unsealed_.bytes >= most_bytes;
  }
  // The end of a free; `sealed` is the newest epoch that has a seal by now.
  void note(order::Epoch sealed) {
    work_at_free_ = Reentry::work();
    sealed_ = sealed;
  }
  // The newest epoch that its last free while work was pending has waited for under the driver: a seal that
  // came later also covers work that is newer than the free.
  order::Epoch sealed() const { return sealed_; }
  // Whether this thread has submitted no work since its last free.
  bool is_last_act() const { return work_at_free_ == Reentry::work(); }

 private:
  // What this thread freed in an epoch.
  struct Unsealed {
    order::Epoch epoch = 0;
    uint64_t bytes = 0;
    uint32_t frees = 0;
  };
  Unsealed unsealed_;
  uint64_t work_at_free_ = ~uint64_t{0};
  order::Epoch sealed_ = 0;
};

}  // namespace cupool::pool
