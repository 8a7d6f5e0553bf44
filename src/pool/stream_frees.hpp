// Frees in stream order: the block is free when its stream comes to that. Makes the events by which that is
// seen, on the stream or in another context, and returns the blocks past the thread caches. The list is in
// ordered_frees.hpp, under its own lock.
#pragma once

#include "pool/free_blocks.hpp"
#include "pool/ordered_frees.hpp"
#include "pool/tenancy.hpp"

namespace cupool::pool {

class StreamFrees {
 public:
  StreamFrees(Tenancy& tenancy, FreeBlocks& blocks) : tenancy_(tenancy), blocks_(blocks) {}

  // Takes back a block that is freed on a stream. `elsewhere`: the timeline of the stream's context, if it is
  // not this one. pre: it is counted as leaving, and its mark is gone.
  void take_back(driver::Stream stream, order::Timeline* elsewhere, unsigned size_class, Entry entry,
                 uint64_t asked);
  // Whether a stream has yet to come to one.
  bool any() const { return frees_.any(); }
  // Looks which streams have come to the free; asks so many times at most.
  void give_reached(size_t most = ~size_t{0});
  // How many bytes the owner of the block that starts there had asked for; 0: none waits there.
  uint64_t asked_at(Address start) { return frees_.asked_at(start); }
  // What they will need, while the driver still makes it.
  void keep_events() { frees_.keep_events(tenancy_.driver(), tenancy_.context()); }
  // The context is gone, and its events with it.
  void drop_all();

 private:
  bool record_on(driver::Stream stream, driver::Event event);
  void give(unsigned size_class, const Entry& entry);

  Tenancy& tenancy_;
  FreeBlocks& blocks_;
  OrderedFrees frees_;
};

}  // namespace cupool::pool
