// The record of one slab: a range that is cut into equal small blocks. Under the lock of its size class
// (slabs.hpp), but for what its comment excepts.
#pragma once

#include "pool/range.hpp"

namespace cupool::pool {

// The record of one slab, followed in memory by its tags. Only tags are written without the class's lock. The
// fields that every free reads have their own cache line, apart from those that change under the lock.
struct alignas(64) Slab : BlockRecord {
  alignas(64) uint32_t free_blocks = 0;
  uint8_t bucket = 0;
  bool closed = false;  // its segment is tainted: it serves no block and is in no list
  Epoch stamp = 0;      // the newest stamp of the blocks given back
  Slab* prev = nullptr;
  Slab* next = nullptr;
  uint64_t* free_bits = nullptr;
  uint64_t* new_bits = nullptr;  // of the blocks that were never handed out
  uint64_t few_bits = 0;         // all the bits, if there are at most 64
  uint64_t few_new_bits = 0;

  Slab() { tags = reinterpret_cast<Tag*>(this + 1); }
};

// The record of a range's blocks: its slab, or the range itself.
inline const BlockRecord& record_of(const Range& range) {
  const Slab* slab = range.slab.load(std::memory_order_acquire);
  return slab != nullptr ? static_cast<const BlockRecord&>(*slab) : range;
}

}  // namespace cupool::pool
