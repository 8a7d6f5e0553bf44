// See stream_frees.hpp.
#include "pool/stream_frees.hpp"

namespace cupool::pool {

// Keeps the stamp of the block's earlier lives: a stream that was given no work on the block has not waited
// for theirs. Where the stream can have no event, the block waits for all work so far.
void StreamFrees::take_back(driver::Stream stream, order::Timeline* elsewhere, unsigned size_class,
                            const Entry& entry, uint64_t asked) {
  order::Timeline& order = tenancy_.order();
  Waiting block{entry, asked, size_class};
  block.entry.stamp = order::kFormer ? order.newest_leant_on() : 0;
  if (elsewhere != nullptr) {
    frees_.put_after(*elsewhere, block);
    return;
  }
  if (frees_.put(order, stream, block)) return;
  block.entry.stamp = order.open();
  give(block);
  if (order.is_idle()) return;
  order.keep_events();
  order.seal_for_completion();
}

void StreamFrees::give_reached(size_t most) {
  frees_.take_reached(tenancy_.order(), most, [&](const Waiting& block) { give(block); });
}

uint64_t StreamFrees::asked_at(Address start) {
  uint64_t asked = 0;
  frees_.find([&](const Waiting& block) {
    if (block.entry.address == start) asked = block.asked;
    return block.entry.address == start;
  });
  return asked;
}

void StreamFrees::give(const Waiting& block) {
  record_of(*block.entry.range).pending_frees.fetch_sub(1, std::memory_order_relaxed);
  blocks_.give(block.size_class, &block.entry, 1);
}

void StreamFrees::drop_all() {
  frees_.drop_all([](const Waiting& block) {
    record_of(*block.entry.range).pending_frees.store(0, std::memory_order_relaxed);
  });
}

}  // namespace cupool::pool
