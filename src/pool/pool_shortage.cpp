// The pool's part of the out-of-memory report, written after an allocation has failed for good. Walks all
// segments under the range lock; slab tags are read without synchronisation, so blocks that other threads
// free meanwhile may be counted either way.
#include <algorithm>

#include "pool/pool.hpp"
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

void Pool::report_shortage(uint64_t asked) {
  report::Shortage shortage;
  shortage.device = device_;
  shortage.asked = asked;
  const unsigned size_class = sizes_.of(asked);
  const uint64_t range = sizes_.is_small(size_class) ? slabs_.slab_bytes(size_class) : sizes_.rounded(asked);
  shortage.rounded = round_up(range, kPageBytes);
  shortage.limit = settings_.limit;
  shortage.limited = upstream::Limit::booked(device_);
  shortage.capturing = order().is_capturing();
  size_t free = 0;
  size_t total = 0;
  if (upstream_.driver().memory(&free, &total) != driver::kSuccess) total = device_bytes_;
  shortage.device_free = free;
  shortage.device_total = total;
  {
    Guard hold(ranges_.lock());
    shortage.reserved = ranges_.reserved();
    for (const Segment* segment = ranges_.first_segment(); segment != nullptr; segment = segment->next) {
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
