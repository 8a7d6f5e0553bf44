// A pool's part of the out-of-memory report, written after an allocation has failed for good. Walks all
// segments under the range lock; slab tags are read without synchronisation, so blocks that other threads
// free meanwhile may be counted either way.
#include <algorithm>
#include <array>
#include <atomic>

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

// The most that any pool of a device ever needed, those of ended contexts included: what the program did once
// it may do again under the settings that the report names.
struct Peaks {
  std::atomic<uint64_t> alone{0};
  std::atomic<uint64_t> apart{0};
  std::atomic<uint64_t> minor{0};
};
constinit std::array<Peaks, stats::kMostDevices> all_peaks{};

Peaks& peaks_of(int device) {
  return all_peaks[static_cast<size_t>(std::clamp(device, 0, stats::kMostDevices - 1))];
}

void raise(std::atomic<uint64_t>& most, uint64_t bytes) {
  uint64_t seen = most.load(std::memory_order_relaxed);
  while (bytes > seen && !most.compare_exchange_weak(seen, bytes, std::memory_order_relaxed)) {
  }
}

}  // namespace

void Inventory::note_needs() {
  const RangeBytes& bytes = blocks_.ranges().bytes();
  Peaks& peaks = peaks_of(tenancy_.device());
  raise(peaks.alone, bytes.peak_alone());
  raise(peaks.apart, bytes.peak_apart());
  raise(peaks.minor, bytes.peak_minor());
}

report::Shortage Inventory::shortage_of(uint64_t asked) {
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
  return shortage;
}

void Inventory::add_to(report::Shortage* out, Needs* needs) {
  {
    Guard hold(blocks_.ranges().lock());
    out->reserved += blocks_.ranges().bytes().reserved();
    for (const Segment* segment = blocks_.ranges().first_segment(); segment != nullptr;
         segment = segment->next) {
      uint64_t live = 0;
      uint64_t rest = 0;
      for (const Range* range = segment->lowest(); range != nullptr; range = range->after) {
        const Slab* slab = range->slab.load(std::memory_order_acquire);
        const uint64_t here = slab != nullptr ? add_slab(*slab, out) : add_range(*range, out);
        needs->add(*range, here);
        live += here;
        rest = here == 0 && range->after == nullptr && range->bytes < kPageBytes ? range->bytes : 0;
      }
      needs->end_segment(segment->bytes);
      out->live += live;
      if (segment->tainted.load(std::memory_order_relaxed)) {
        out->tainted += segment->bytes - live;
      } else if (live == 0) {
        ++out->free_segments;
        out->free_segment_bytes += segment->bytes;
      } else if (live < segment->bytes) {
        ++out->shared_segments;
        out->free_in_shared += segment->bytes - live;
        out->rests += rest;
      }
    }
  }
  note_needs();
}

void Inventory::tell_needs(const Needs& needs, report::Shortage* out) const {
  const Peaks& before = peaks_of(tenancy_.device());
  out->peak_if_apart = before.apart.load(std::memory_order_relaxed);
  out->peak_if_dedicated = before.alone.load(std::memory_order_relaxed);
  needs.tell(before.minor.load(std::memory_order_relaxed), out);
}

}  // namespace cupool::pool
