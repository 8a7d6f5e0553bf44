// What is known of single blocks beyond their size: the number of their life, what the application set on
// them, why they are tainted. Few blocks are ever marked. A marked block carries a bit in its tag (of a slab)
// or in its asked size (of a range), so that its free takes the long way and all others pay for the test of
// one bit. One table per pool, under the pool's mark lock.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>

#include "pool/range.hpp"
#include "stats/counters.hpp"

namespace cupool::pool {

// Why a block must never be handed to another owner. In the order of the counters in stats/counters.def.
enum class Taint : uint8_t { kExported, kSyncMemops, kPeerTokens, kDmaBuf, kAdvised, kAttached, kPrefetched };

struct Mark {
  uint64_t life = 0;    // unlike that of any other allocation in this process, of ours or of the driver's
  uint32_t taints = 0;  // a bit for each Taint
  bool sync_memops = false;
};

using Marks = std::map<Address, Mark>;  // small nodes: the host may be short of memory

// Sets the bit of a block that somebody holds; false when nobody does.
inline bool set_mark_bit(Tag& tag) {
  uint16_t seen = tag.load(std::memory_order_relaxed);
  while (seen != 0) {
    if ((seen & kMarkedTag) != 0 || tag.compare_exchange_weak(seen, seen | kMarkedTag)) return true;
  }
  return false;
}

// Counts the blocks that were tainted for this reason.
stats::Event counter_of(Taint reason);

// The next number for a life.
uint64_t next_life();

}  // namespace cupool::pool
