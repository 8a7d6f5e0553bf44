// Blocks that no thread keeps: small ones in slabs, all others as ranges. Where a block goes when a thread's
// cache gives it up, and where new ones come from. Slabs and ranges have locks of their own; nothing here
// calls the driver.
#pragma once

#include "pool/ranges.hpp"
#include "pool/size_classes.hpp"
#include "pool/slabs.hpp"
#include "pool/tenancy.hpp"

namespace cupool::pool {

class FreeBlocks {
 public:
  FreeBlocks(Pool* pool, const Tenancy& tenancy);

  const SizeClasses& sizes() const { return sizes_; }
  const FineClasses& fine() const { return fine_; }
  // A block of a class is not to be had. If the pool has many of the class, its size gets a fine one.
  void note_missed(unsigned size_class, uint64_t bytes);
  Slabs& slabs() { return slabs_; }
  Ranges& ranges() { return ranges_; }
  const Ranges& ranges() const { return ranges_; }

  // Take blocks back, of one class, or single ranges with the stamp of their last work.
  void give(unsigned size_class, const Entry* entries, size_t count);
  void give_range(Range* range, Epoch stamp);
  // The same of a range that was a block.
  void give_block(const Entry& entry);
  void give_large(const Entry& entry);

 private:
  const Tenancy& tenancy_;
  const SizeClasses sizes_;
  FineClasses fine_;
  Slabs slabs_;
  Ranges ranges_;  // large, so last
};

}  // namespace cupool::pool
