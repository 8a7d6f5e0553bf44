// How whole chunks of mapped segments leave the records, to go back or elsewhere, and how a mapped segment
// grows at its end, all under `lock_`. So unmapped memory has no record, and all else in the pool need not
// know of chunks. Never calls the driver.
#include <algorithm>

#include "pool/page_map.hpp"
#include "pool/ranges.hpp"

namespace cupool::pool {

// Roughly the smallest free range of those that `accept` wants in which whole chunks lie.
template <typename Accept>
Ranges::Found Ranges::find_chunks_locked(uint64_t enough, mapped::Space& space, Accept&& accept) {
  Found found;
  found.range = table_.find_free(driver::kMappingStep, [&](Range& range) {
    if (range.chunkless || !range.segment.load()->mapped || !accept(range)) return false;
    found.chunks = space.chunks_in(range.start, range.bytes, enough);
    range.chunkless = found.chunks.bytes == 0;
    return !range.chunkless;
  });
  return found;
}

// The same among pending ranges, of a single lane if one is given: the one freed first.
Ranges::Found Ranges::find_pending_chunks_locked(uint64_t enough, mapped::Space& space, Epoch limit,
                                                 order::LaneName sole) {
  Found found;
  found.range = table_.find_pending(limit, [&](Range& range) {
    if (range.chunkless || !range.segment.load()->mapped) return false;
    if (sole != order::LaneName::kNone && range.sole != sole) return false;
    found.chunks = space.chunks_in(range.start, range.bytes, enough);
    range.chunkless = found.chunks.bytes == 0;
    return !range.chunkless;
  });
  return found;
}

bool Ranges::find_idle_bytes(mapped::Space& space, uint64_t* out) {
  Guard hold(lock_);
  uint64_t bytes = bytes_.idle();
  if (has_mapped_segments()) {
    if (table_.has_pending()) return false;
    table_.find_free(driver::kMappingStep, [&](Range& range) {
      if (range.chunkless || !range.segment.load()->mapped) return false;
      const uint64_t chunks = space.chunks_in(range.start, range.bytes).bytes;
      range.chunkless = chunks == 0;
      bytes += chunks;
      return false;
    });
  }
  *out = bytes;
  return true;
}

Segment* Ranges::part(const ToRelease& which, mapped::Space& space, const order::Timeline& order) {
  Guard hold(lock_);
  // Unmapping waits for nothing: memory with unfinished work, or work that is only sealed, would be taken
  // away under a kernel. Read under the lock, as in take().
  const Epoch limit = order.done();
  table_.drain(limit);
  return part_locked(find_chunks_locked(which.enough, space, [&](Range& range) {
    if (range.stamp > limit) return false;
    if (which.idle_ms == 0) return true;
    if (range.idle_since() == 0) range.set_idle_since(which.now_ms);
    return which.now_ms - range.idle_since() >= which.idle_ms;
  }));
}

Segment* Ranges::part_to_move(uint64_t enough, order::Reach reach, order::LaneName sole, mapped::Space& space,
                              const order::Timeline& order) {
  Guard hold(lock_);
  const Epoch cheap = order.cheap();
  const Epoch limit = order.limit(reach);
  table_.drain(cheap);
  Found found = find_chunks_locked(enough, space, [=](const Range& range) { return range.stamp <= cheap; });
  if (found.range == nullptr && sole != order::LaneName::kNone)
    found = find_pending_chunks_locked(enough, space, limit, sole);
  if (found.range == nullptr && reach == order::Reach::kAll) {
    found = find_chunks_locked(enough, space, [=](const Range& range) { return range.stamp <= limit; });
    if (found.range == nullptr)
      found = find_pending_chunks_locked(enough, space, limit, order::LaneName::kNone);
  }
  // Nothing was pending at one of the two reads: an open epoch has no seal that work could wait for.
  const bool is_done = cheap == kAnyStamp || limit == kAnyStamp;
  Segment* const segment = part_locked(found);
  if (segment != nullptr && is_done) segment->lowest()->stamp = 0;
  return segment;
}

Segment* Ranges::part_locked(const Found& found) {
  Range* range = found.range;
  if (range == nullptr) return nullptr;
  const Address end = found.chunks.start + found.chunks.bytes;
  if (range->start < found.chunks.start) range = table_.cut_free(range, found.chunks.start);
  if (range == nullptr || (range->end() > end && table_.cut_free(range, end) == nullptr)) return nullptr;
  Segment* const segment = table_.isolate(range, range);
  if (segment == nullptr) return nullptr;
  return detach_free_locked(segment);
}

Range* Ranges::take_tail(uint64_t bytes, bool may_share, mapped::Space& space, const order::Timeline& order) {
  Guard hold(lock_);
  const Epoch limit = order.cheap();
  table_.drain(limit);
  Range* best = nullptr;
  for (const Segment* segment = first_segment(); segment != nullptr && !segment->tainted;
       segment = segment->next) {
    Range* const tail = segment->last;
    if (!segment->mapped || tail->use != Use::kFree || tail->stamp > limit) continue;
    if (!may_share && tail->bytes < kPageBytes) continue;
    if (tail->bytes >= bytes || (best != nullptr && best->bytes >= tail->bytes)) continue;
    if (space.is_vacant(tail->end(), round_up(bytes - tail->bytes, kPageBytes))) best = tail;
  }
  if (best == nullptr) return nullptr;
  table_.unlist(best);
  if (limit == kAnyStamp) best->stamp = 0;
  hand_out_locked(best);
  return best;
}

void Ranges::extend(Range* range, uint64_t more, uint64_t bytes, Epoch stamp, order::LaneName sole) {
  Guard hold(lock_);
  // As where free ranges merge.
  if (range->stamp == 0) range->sole = sole;
  if (stamp != 0 && range->sole != sole) range->sole = order::LaneName::kNone;
  range->stamp = std::max(range->stamp, stamp);
  Segment* const segment = range->segment;
  bytes_.remove_taken(range->bytes);
  page_map.set_segment(segment, range->end(), more);
  segment->bytes += more;
  range->bytes += more;
  range->set_new_bytes(range->new_bytes() + more);
  range->chunkless = false;
  bytes_.add_reserved(more, segment->small);
  if (segment->tainted) bytes_.add_tainted(more);
  Range* const rest = table_.cut(range, bytes);
  bytes_.add_taken(range->bytes);
  if (rest != nullptr && !segment->tainted) {
    bytes_.add_free(rest->bytes);
    table_.list_free(rest);
  }
  table_.join_neighbours(segment);
}

}  // namespace cupool::pool
