// Questions about a pool's blocks: which one contains an address, how many bytes more could be had beside
// what is live, and where all memory is when there was none left. Walks segments under the range lock.
// Changes no block and calls no driver, but to ask it how much it has free.
#pragma once

#include "allocator/allocator.hpp"
#include "pool/free_blocks.hpp"
#include "pool/needs.hpp"
#include "pool/segments.hpp"
#include "pool/stream_frees.hpp"
#include "pool/tenancy.hpp"

namespace cupool::pool {

using allocator::BlockInfo;

class Inventory {
 public:
  Inventory(const Pool* pool, Tenancy& tenancy, FreeBlocks& blocks, StreamFrees& frees, Segments& segments)
      : pool_(pool), tenancy_(tenancy), blocks_(blocks), frees_(frees), segments_(segments) {}

  // The block that contains `address`, if the application holds it.
  bool find(Address address, BlockInfo* out);
  // See Allocator::for_each_live().
  void visit_live(allocator::VisitLive visit, void* data);
  // Whether `bytes` more fit the device and the user's limit beside what is live.
  bool may_take(uint64_t bytes);
  // An allocation of `bytes` has failed for good: counts it. Whether the user wants to be told why.
  bool note_failure(uint64_t bytes);
  // The report on it, without what pools hold: each pool of the device adds its own.
  report::Shortage shortage_of(uint64_t asked);
  void add_to(report::Shortage* out, Needs* needs);
  void tell_needs(const Needs& needs, report::Shortage* out) const;
  // Keeps for later reports what the blocks would have needed at most under other settings. pre: before the
  // records of a context that ends are dropped.
  void note_needs();

 private:
  bool find_in_ranges(Address address, BlockInfo* out);

  const Pool* const pool_;
  Tenancy& tenancy_;
  FreeBlocks& blocks_;
  StreamFrees& frees_;
  Segments& segments_;
};

}  // namespace cupool::pool
