// The pool's part of the out-of-memory report, written after an allocation has failed for good. Walks all
// segments under the range lock; slab tags are read without synchronisation, so blocks that other threads
// free meanwhile may be counted either way.
#include <algorithm>

#include "pool/inventory.hpp"
#include "report/shortage.hpp"

namespace cupool::pool {
namespace {

uint64_t add_slab(const Slab& slab, report::Shortage* out) {
  uint64_t held = 0;
  for (uint32_t i = 0; i < slab.blocks; ++i)
    held += slab.tags[i].load(std::memory_order_relaxed) != 0 ? 1 : 0;
  const uint64_t block_bytes = slab.bytes_of_blocks();
  report::Shortage::Row& row = out->row_of(block_bytes);
  row.blocks += held;
  row.live += held * block_bytes;
  row.free += (slab.blocks - held) * block_bytes;
  return held * block_bytes;
}

uint64_t add_range(const Range& range, report::Shortage* out) {
  report::Shortage::Row& row = out->row_of(range.bytes);
  if (range.tag.load(std::memory_order_relaxed) == 0) {
    row.free += range.bytes;
    out->largest_free = std::max(out->largest_free, range.bytes);
    return 0;
  }
  row.blocks += 1;
  row.live += range.bytes;
  return range.bytes;
}

}  // namespace

void Inventory::report_shortage(uint64_t asked) {
  report::Shortage shortage;
  shortage.device = tenancy_.device();
  shortage.asked = asked;
  const unsigned size_class = blocks_.sizes().of(asked);
  const uint64_t range = blocks_.sizes().is_small(size_class) ? blocks_.slabs().slab_bytes(size_class)
                                                              : blocks_.sizes().rounded(asked);
  shortage.rounded = round_up(range, kPageBytes);
  shortage.limit = tenancy_.settings().limit;
  shortage.limited = upstream::Limit::booked(tenancy_.device());
  shortage.capturing = tenancy_.order().is_capturing();
  size_t free = 0;
  size_t total = 0;
  if (tenancy_.driver().memory(&free, &total) != driver::kSuccess) total = tenancy_.device_bytes();
  shortage.device_free = free;
  shortage.device_total = total;
  {
    Guard hold(blocks_.ranges().lock());
    shortage.reserved = blocks_.ranges().reserved();
    for (const Segment* segment = blocks_.ranges().first_segment(); segment != nullptr;
         segment = segment->next) {
      uint64_t live = 0;
      for (const Range* range = segment->lowest(); range != nullptr; range = range->after) {
        const Slab* slab = range->slab.load(std::memory_order_acquire);
        live += slab != nullptr ? add_slab(*slab, &shortage) : add_range(*range, &shortage);
      }
      shortage.live += live;
      if (segment->tainted.load(std::memory_order_relaxed)) {
        shortage.tainted += segment->bytes - live;
      } else if (live == 0) {
        ++shortage.free_segments;
        shortage.free_segment_bytes += segment->bytes;
      } else if (live < segment->bytes) {
        ++shortage.shared_segments;
        shortage.free_in_shared += segment->bytes - live;
      }
    }
  }
  report::write_shortage(shortage);
}

}  // namespace cupool::pool
