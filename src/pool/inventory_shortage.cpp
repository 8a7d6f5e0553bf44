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

// What the live blocks would need if they did not share segments.
class Needs {
 public:
  void add(const Range& range, uint64_t live) {
    if (live == 0) return;
    const Slab* const slab = range.slab.load(std::memory_order_relaxed);
    const uint64_t block = slab != nullptr ? slab->bytes_of_blocks() : range.bytes;
    const bool is_big = block >= kPageBytes;
    live_ += live;
    alone_ += is_big ? round_up(block, kPageBytes) : live / block * (kPageBytes / (kPageBytes / block));
    apart_ += is_big ? round_up(block, kPageBytes) : live;
    if (is_big) {
      big_ += round_up(range.bytes, kPageBytes);
      big_here_ += range.bytes;
      return;
    }
    // The driver gives those beyond 1 MiB a step of its own each. Smaller ones share steps there as here.
    if (slab == nullptr && live > kMiB) {
      medium_ += kPageBytes;
      has_small_ = true;
      return;
    }
    has_small_ = true;
    const uint64_t first = std::max(range.start / kPageBytes, next_page_);
    next_page_ = (range.start + range.bytes - 1) / kPageBytes + 1;
    pages_ += next_page_ - std::min(first, next_page_);
  }
  void end_segment(uint64_t bytes) {
    if (has_small_) small_segments_ += bytes - std::min(bytes, big_here_);
    has_small_ = false;
    big_here_ = next_page_ = 0;
  }
  void tell(report::Shortage* out) const {
    const uint64_t request = out->rounded;
    out->if_mapped = out->if_dedicated = big_ + medium_ + pages_ * kPageBytes + request;
    out->if_exact = big_ + small_segments_ + request;
    if (live_ == 0) return;
    const auto peak = static_cast<double>(stats::device(out->device).read().peak_live_bytes);
    const auto scaled = [&](uint64_t needed) {
      return static_cast<uint64_t>(peak * static_cast<double>(needed) / static_cast<double>(live_));
    };
    out->peak_if_apart = scaled(apart_);
    out->peak_if_dedicated = scaled(alone_);
  }

 private:
  uint64_t live_ = 0;
  uint64_t alone_ = 0;           // what the driver gives for each block alone, as many to a page as fit
  uint64_t apart_ = 0;           // the same for blocks of a page and more alone
  uint64_t big_ = 0;             // blocks of a page and more
  uint64_t medium_ = 0;          // those beyond half a page, with a page each
  uint64_t pages_ = 0;           // that hold still smaller ones
  uint64_t small_segments_ = 0;  // what segments with smaller ones have beside the bigger ones
  uint64_t big_here_ = 0;        // in the present segment
  uint64_t next_page_ = 0;
  bool has_small_ = false;
};

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
  shortage.can_map = tenancy_.driver().can_map(tenancy_.device());
  Needs needs;
  {
    Guard hold(blocks_.ranges().lock());
    shortage.reserved = blocks_.ranges().bytes().reserved();
    for (const Segment* segment = blocks_.ranges().first_segment(); segment != nullptr;
         segment = segment->next) {
      uint64_t live = 0;
      uint64_t rest = 0;
      for (const Range* range = segment->lowest(); range != nullptr; range = range->after) {
        const Slab* slab = range->slab.load(std::memory_order_acquire);
        const uint64_t here = slab != nullptr ? add_slab(*slab, &shortage) : add_range(*range, &shortage);
        needs.add(*range, here);
        live += here;
        rest = here == 0 && range->after == nullptr && range->bytes < kPageBytes ? range->bytes : 0;
      }
      needs.end_segment(segment->bytes);
      shortage.live += live;
      if (segment->tainted.load(std::memory_order_relaxed)) {
        shortage.tainted += segment->bytes - live;
      } else if (live == 0) {
        ++shortage.free_segments;
        shortage.free_segment_bytes += segment->bytes;
      } else if (live < segment->bytes) {
        ++shortage.shared_segments;
        shortage.free_in_shared += segment->bytes - live;
        shortage.rests += rest;
      }
    }
  }
  needs.tell(&shortage);
  report::write_shortage(shortage);
}

}  // namespace cupool::pool
