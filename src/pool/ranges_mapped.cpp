// What only segments of mapped memory do: they become one with a neighbour, grow at their end, and are parted
// where whole chunks are free and done, all under `lock_`. So unmapped memory has no record, and all else in
// the pool need not know of chunks. Never calls the driver.
#include <algorithm>

#include "allocator/marks.hpp"
#include "pool/page_map.hpp"
#include "pool/ranges.hpp"

namespace cupool::pool {

namespace {

// Joining and splitting name the smaller side anew, page by page, so two large ones stay apart: memory can be
// unmapped and mapped elsewhere, and no block depends on it.
constexpr uint64_t kMostRenamed = 1 << 30;

bool can_join(const Segment& left, const Segment& right) {
  return left.pool == right.pool && left.mapped && right.mapped && !left.tainted && !right.tainted &&
         left.end() == right.start && std::min(left.bytes, right.bytes) <= kMostRenamed;
}

void rename_ranges(Range* first, const Range* end, Segment* segment) {
  for (Range* range = first; range != end; range = range->after) range->segment.store(segment);
}

}  // namespace

void Ranges::join_neighbours_locked(Segment* segment) {
  Segment* const left = page_map.segment_of(segment->start - 1);
  if (left != nullptr && can_join(*left, *segment)) segment = join_locked(left, segment);
  Segment* const right = page_map.segment_of(segment->end());
  if (right != nullptr && can_join(*segment, *right)) join_locked(segment, right);
}

Segment* Ranges::join_locked(Segment* left, Segment* right) {
  Range* const last = left->last;
  Range* const next = right->lowest();
  Segment* const kept = left->bytes >= right->bytes ? left : right;
  Segment* const gone = kept == left ? right : left;
  rename_ranges(gone->lowest(), nullptr, kept);
  const Address start = left->start;
  const uint64_t bytes = left->bytes + right->bytes;
  Range* const first = left->lowest();
  Range* const end = right->last;
  page_map.set_segment(kept, gone->start, gone->bytes);
  kept->start = start;
  kept->bytes = bytes;
  kept->first.store(first, std::memory_order_relaxed);
  kept->last = end;
  last->after = next;
  next->before = last;
  unlist_locked(gone);
  segment_store_.give(gone);
  if (last->use == Use::kFree && next->use == Use::kFree) {
    bins_.remove(last);
    bins_.remove(next);
    absorb_next_locked(last);
    bins_.insert(last);
  }
  return kept;
}

// `at`, which is not the first range, begins a segment of its own with all that follows. False: no host
// memory, and nothing has changed.
bool Ranges::split_locked(Segment* segment, Range* at) {
  Segment* const made = segment_store_.take();
  if (made == nullptr) return false;
  if (made->pool == nullptr) made->pool = pool_;
  made->number = allocator::next_life();
  made->mapped = true;
  const uint64_t below = at->start - segment->start;
  const uint64_t above = segment->bytes - below;
  Range* const low_last = at->before;
  Segment* const low = below < above ? made : segment;
  Segment* const high = below < above ? segment : made;
  Range* const first = segment->lowest();
  Range* const last = segment->last;
  rename_ranges(made == low ? first : at, made == low ? at : nullptr, made);
  const Address start = segment->start;
  low->start = start;
  low->bytes = below;
  low->first.store(first, std::memory_order_relaxed);
  low->last = low_last;
  high->start = at->start;
  high->bytes = above;
  high->first.store(at, std::memory_order_relaxed);
  high->last = last;
  low_last->after = nullptr;
  at->before = nullptr;
  page_map.set_segment(made, made->start, made->bytes);
  list_locked(made);
  return true;
}

// Cuts a free or pending range at an address inside it; returns the upper part, or null without host memory.
Range* Ranges::cut_free_locked(Range* range, Address at) {
  if (range->use == Use::kPending) {
    Range* const rest = cut_locked(range, at - range->start);
    if (rest == nullptr) return nullptr;
    rest->use = Use::kPending;
    rest->insert_after(range);
    return rest;
  }
  bins_.remove(range);
  Range* const rest = cut_locked(range, at - range->start);
  bins_.insert(range);
  if (rest != nullptr) bins_.insert(rest);
  return rest;
}

// Makes these ranges of one segment a segment of their own; null: no host memory.
Segment* Ranges::isolate_locked(Range* low, Range* high) {
  if (high->after != nullptr && !split_locked(high->segment, high->after)) return nullptr;
  if (low->before != nullptr && !split_locked(low->segment, low)) return nullptr;
  return low->segment;
}

// Roughly the smallest free range of those that `accept` wants in which whole chunks lie.
template <typename Accept>
Ranges::Found Ranges::find_chunks_locked(uint64_t enough, mapped::Space& space, Accept&& accept) {
  Found found;
  bins_.visit(driver::kMappingStep, [&](Range* range) {
    if (range->chunkless || !range->segment.load()->mapped || !accept(*range)) return false;
    found.chunks = space.chunks_in(range->start, range->bytes, enough);
    range->chunkless = found.chunks.bytes == 0;
    if (!range->chunkless) found.range = range;
    return found.range != nullptr;
  });
  return found;
}

// The same among pending ranges, of a single lane if one is given: the one freed first.
Ranges::Found Ranges::find_pending_chunks_locked(uint64_t enough, mapped::Space& space, Epoch limit,
                                                 order::LaneName sole) {
  for (RangeLink* link = pending_.next; link != &pending_; link = link->next) {
    Range* const range = static_cast<Range*>(link);
    if (range->stamp > limit) break;
    if (range->chunkless || !range->segment.load()->mapped) continue;
    if (sole != order::LaneName::kNone && range->sole != sole) continue;
    const mapped::Part chunks = space.chunks_in(range->start, range->bytes, enough);
    range->chunkless = chunks.bytes == 0;
    if (!range->chunkless) return {range, chunks};
  }
  return {};
}

Segment* Ranges::part(const Leaving& which, mapped::Space& space, const order::Timeline& order) {
  Guard hold(lock_);
  // Unmapping waits for nothing: memory with unfinished work, or work that is only sealed, would be taken
  // away under a kernel. Read under the lock, as in take().
  const Epoch limit = order.done();
  drain_locked(limit);
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
  drain_locked(cheap);
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
  if (found.range != nullptr && is_done) found.range->stamp = 0;
  return part_locked(found);
}

Segment* Ranges::part_locked(const Found& found) {
  Range* range = found.range;
  if (range == nullptr) return nullptr;
  const Address end = found.chunks.start + found.chunks.bytes;
  if (range->start < found.chunks.start) range = cut_free_locked(range, found.chunks.start);
  if (range == nullptr || (range->end() > end && cut_free_locked(range, end) == nullptr)) return nullptr;
  Segment* const segment = isolate_locked(range, range);
  if (segment == nullptr) return nullptr;
  if (range->use == Use::kPending) {
    range->unlink();
  } else {
    bins_.remove(range);
  }
  free_.store(free_bytes() - segment->bytes, std::memory_order_relaxed);
  return detach_locked(segment);
}

Range* Ranges::take_tail(uint64_t bytes, mapped::Space& space, const order::Timeline& order) {
  Guard hold(lock_);
  const Epoch limit = order.cheap();
  drain_locked(limit);
  Range* best = nullptr;
  for (const Segment* segment = segments_; segment != nullptr; segment = segment->next) {
    Range* const tail = segment->last;
    if (!segment->mapped || segment->tainted || tail->use != Use::kFree || tail->stamp > limit) continue;
    if (tail->bytes >= bytes || (best != nullptr && best->bytes >= tail->bytes)) continue;
    if (space.is_vacant(tail->end(), round_up(bytes - tail->bytes, kPageBytes))) best = tail;
  }
  if (best == nullptr) return nullptr;
  if (limit == kAnyStamp) best->stamp = 0;
  bins_.remove(best);
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
  page_map.set_segment(segment, range->end(), more);
  segment->bytes += more;
  range->bytes += more;
  range->chunkless = false;
  reserved_.store(reserved() + more, std::memory_order_relaxed);
  if (segment->tainted) tainted_.fetch_add(more, std::memory_order_relaxed);
  Range* const rest = cut_locked(range, bytes);
  if (rest != nullptr && !segment->tainted) {
    free_.store(free_bytes() + rest->bytes, std::memory_order_relaxed);
    bins_.insert(rest);
  }
  join_neighbours_locked(segment);
}

// The chunks around a block as a segment of their own. A live neighbour that reaches across the border of a
// chunk comes along; a free one is cut there, if there is host memory.
Segment* Ranges::isolate_block_locked(Range* range, mapped::Space& space) {
  const mapped::Part around = space.chunks_around(range->start, range->bytes);
  Range* low = range;
  for (Address begin = around.start; low->start != begin;) {
    while (low->start > begin) low = low->before;
    if (low->start == begin) break;
    Range* const cut = low->use == Use::kFree ? cut_free_locked(low, begin) : nullptr;
    if (cut != nullptr) low = cut;
    if (cut == nullptr) begin = space.chunks_around(low->start, 1).start;
  }
  Range* high = range;
  for (Address end = around.start + around.bytes; high->end() != end;) {
    while (high->end() < end) high = high->after;
    if (high->end() == end || (high->use == Use::kFree && cut_free_locked(high, end) != nullptr)) break;
    const mapped::Part next = space.chunks_around(high->end() - 1, 1);
    end = next.start + next.bytes;
  }
  Segment* const alone = isolate_locked(low, high);
  return alone != nullptr ? alone : range->segment.load();
}

}  // namespace cupool::pool
