// Frees in stream order: the block is free when its stream comes to that, which order/ordered_frees.hpp sees,
// under its own lock. Returns the blocks past the thread caches.
#pragma once

#include "order/ordered_frees.hpp"
#include "pool/free_blocks.hpp"
#include "pool/slabs.hpp"
#include "pool/tenancy.hpp"

namespace cupool::pool {

class StreamFrees {
 public:
  StreamFrees(Tenancy& tenancy, FreeBlocks& blocks)
      : tenancy_(tenancy), blocks_(blocks), frees_(tenancy.driver(), tenancy.in_flight()) {}

  // Takes back a block that is freed on a stream. `elsewhere`: the timeline of the stream's context, if it is
  // not this one. pre: its free is counted as pending, and its mark is gone.
  void take_back(driver::Stream stream, order::Timeline* elsewhere, unsigned size_class, const Entry& entry,
                 uint64_t asked);
  // Whether a stream has yet to come to one.
  bool any() const { return frees_.any(); }
  // Looks which streams have come to the free; asks so many times at most.
  void give_reached(size_t most = ~size_t{0});
  // How many bytes the owner of the block that starts there had asked for; 0: none waits there.
  uint64_t asked_at(Address start);
  // What they will need, while the driver still makes it.
  void keep_events() { frees_.keep_events(tenancy_.context()); }
  // The context is gone, and its events with it.
  void drop_all();

 private:
  struct Waiting {
    Entry entry;
    uint64_t asked;  // by its owner
    unsigned size_class;
  };

  void give(const Waiting& block);

  Tenancy& tenancy_;
  FreeBlocks& blocks_;
  order::OrderedFrees<Waiting> frees_;
};

}  // namespace cupool::pool
