// Queries: which block contains an address, how much is live, how much could be released. Walks segments
// under the range lock, and thread tallies under `caches_lock_`. Changes no block and calls no driver.
#include <algorithm>

#include "pool/page_map.hpp"
#include "pool/pool.hpp"

namespace cupool::pool {

bool Pool::is_held(const Range& range) {
  const Holder& holder = holder_of(range);
  for (uint32_t i = 0; i < holder.blocks; ++i) {
    if (holder.tags[i].load(std::memory_order_relaxed) != 0) return true;
  }
  // Counted before its tag is cleared.
  std::atomic_thread_fence(std::memory_order_acquire);
  return holder.leaving.load(std::memory_order_relaxed) != 0;
}

bool Pool::find_held(Address address, Held* out) {
  return find_in_ranges(address, out) &&
         (!out->leaving || (out->bytes = ordered_frees_.asked_at(out->start)) != 0) &&
         // Only the requested bytes count, not the slack: the driver answers likewise.
         address - out->start < out->bytes;
}

// Of a block that a stream has yet to free, all but the requested bytes.
bool Pool::find_in_ranges(Address address, Held* out) {
  Guard hold(ranges_.lock());
  // The segment may have gone since the caller looked.
  if (page_map.pool_of(address) != this) return false;
  const Range* range = page_map.find_containing(address);
  if (range == nullptr) return false;
  const Holder& holder = holder_of(*range);
  const uint32_t index = holder.index_containing(address);
  const uint16_t tag = index < holder.blocks ? holder.tags[index].load(std::memory_order_relaxed) : 0;
  const bool is_leaving =
      tag == 0 && index < holder.blocks && holder.leaving.load(std::memory_order_relaxed) != 0;
  if (tag == 0 && !is_leaving) return false;
  const Segment& segment = *range->segment.load();
  const bool is_whole = &holder == range && range->bytes == segment.bytes && !segment.mapped;
  *out = {holder.start + uint64_t{index} * holder.bytes_of_blocks(),
          is_leaving ? 0 : holder.asked(tag),
          is_whole,
          segment.start,
          segment.number,
          context(),
          segment.mapped,
          is_leaving};
  // The next copy to this place is to find the block without a lock.
  if (tag != 0 && &holder == range && range->start < (address & ~(kPageBytes - 1)))
    page_map.remember(address, range);
  return true;
}

uint64_t Pool::releasable_bytes() {
  uint64_t bytes = 0;
  Guard hold(ranges_.lock());
  for (const Segment* segment = ranges_.first_segment(); segment != nullptr; segment = segment->next) {
    // (What is tainted goes back as a whole.)
    if (segment->mapped && !segment->tainted.load(std::memory_order_relaxed)) {
      bytes += releasable_chunks_locked(*segment);
      continue;
    }
    const Range* range = segment->lowest();
    while (range != nullptr && !is_held(*range)) range = range->after;
    if (range == nullptr) bytes += segment->bytes;
  }
  return bytes;
}

// Mapped memory need not go back: a free range at the end of a segment grows, so that the part of it that
// lies in a chunk with live blocks counts, too.
uint64_t Pool::most_releasable() {
  const uint64_t bytes = releasable_bytes();
  return ranges_.has_mapped_segments() ? bytes + most_of_tail() : bytes;
}

uint64_t Pool::most_of_tail() {
  uint64_t most = 0;
  Guard hold(ranges_.lock());
  for (const Segment* segment = ranges_.first_segment(); segment != nullptr; segment = segment->next) {
    if (!segment->mapped || segment->tainted.load(std::memory_order_relaxed)) continue;
    const Range* range = segment->lowest();
    Address start = segment->start;
    for (; range != nullptr; range = range->after) {
      if (is_held(*range)) start = range->end();
    }
    const uint64_t tail = segment->end() - start;
    if (tail != 0) most = std::max(most, tail - space_.chunks_in(start, tail).bytes);
  }
  return most;
}

bool Pool::may_take(uint64_t bytes) {
  const uint64_t most = std::min(device_bytes_, settings_.limit);
  const uint64_t reserved = ranges_.reserved();
  const uint64_t live = reserved - std::min(reserved, most_releasable());
  return bytes <= most && live <= most - bytes;
}

// Mapped memory goes back by chunks, wherever nothing is held from end to end of one. A block that is held
// rules out its last chunk, so the walk goes on behind that: it looks at a block for each chunk, not at all.
// (No running figure: threads keep and take blocks without a lock.)
uint64_t Pool::releasable_chunks_locked(const Segment& segment) {
  uint64_t bytes = 0;
  Address start = segment.start;
  const Range* range = segment.lowest();
  while (range != nullptr) {
    if (!is_held(*range)) {
      range = range->after;
      continue;
    }
    if (range->start > start) bytes += space_.chunks_in(start, range->start - start).bytes;
    const mapped::Part last = space_.chunk_at(range->end() - 1);
    start = last.start + last.bytes;
    if (start >= segment.end()) return bytes;
    // The range around that place begins there or not far below it.
    Address at = start;
    while (page_map.find(at) == nullptr) at -= kGranule;
    range = page_map.find(at)->range;
  }
  return bytes + space_.chunks_in(start, segment.end() - start).bytes;
}

uint64_t Pool::live_bytes() {
  int64_t live = 0;
  Guard hold(caches_lock_);
  for (const ThreadCache* cache = caches_; cache != nullptr; cache = cache->next_of_pool)
    live += cache->tally().live();
  return live > 0 ? static_cast<uint64_t>(live) : 0;
}

}  // namespace cupool::pool
