// What is known of a single block beyond its size: the number of its life, attributes set by the application,
// why it is tainted. Few blocks are ever marked. Each allocator keeps the marks of its own blocks, under its
// own lock.
#pragma once

#include <cstdint>

#include "stats/counters.hpp"

namespace cupool::allocator {

// Why a block must never be reused. In the order of the counters in stats/counters.def.
enum class Taint : uint8_t { kExported, kSyncMemops, kPeerTokens, kDmaBuf, kAdvised, kAttached, kPrefetched };

struct Mark {
  uint64_t life = 0;    // unique in the process, among the driver's allocations too
  uint32_t taints = 0;  // a bit for each Taint
  bool sync_memops = false;
};

// Counts the blocks that were tainted for this reason.
stats::Event counter_of(Taint reason);

// The next number for a life.
uint64_t next_life();

}  // namespace cupool::allocator
