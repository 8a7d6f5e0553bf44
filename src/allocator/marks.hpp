// What is known of single blocks beyond their size: the number of their life, what the application set on
// them, why they are tainted. Few blocks are ever marked. Each allocator keeps the marks of its own blocks,
// under its own lock.
#pragma once

#include <cstdint>

#include "stats/counters.hpp"

namespace cupool::allocator {

// Why a block must never be handed to another owner. In the order of the counters in stats/counters.def.
enum class Taint : uint8_t { kExported, kSyncMemops, kPeerTokens, kDmaBuf, kAdvised, kAttached, kPrefetched };

struct Mark {
  uint64_t life = 0;    // unlike that of any other allocation in this process, of ours or of the driver's
  uint32_t taints = 0;  // a bit for each Taint
  bool sync_memops = false;
};

// Counts the blocks that were tainted for this reason.
stats::Event counter_of(Taint reason);

// The next number for a life.
uint64_t next_life();

}  // namespace cupool::allocator
