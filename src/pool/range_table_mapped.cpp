// What only segments of mapped memory do: they become one with a neighbour, and are parted where a range
// ends, page by page. See range_table.hpp.
#include <algorithm>

#include "allocator/marks.hpp"
#include "pool/page_map.hpp"
#include "pool/range_table.hpp"

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

void RangeTable::join_neighbours(Segment* segment) {
  Segment* const left = page_map.segment_of(segment->start - 1);
  if (left != nullptr && can_join(*left, *segment)) segment = join(left, segment);
  Segment* const right = page_map.segment_of(segment->end());
  if (right != nullptr && can_join(*segment, *right)) join(segment, right);
}

Segment* RangeTable::join(Segment* left, Segment* right) {
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
  unlist(gone);
  segment_store_.give(gone);
  if (last->use == Use::kFree && next->use == Use::kFree) {
    unlist(last);
    unlist(next);
    absorb_next(last);
    list_again(last);
  }
  return kept;
}

// `at`, which is not the first range, begins a segment of its own with all that follows. False: no host
// memory, and nothing has changed.
bool RangeTable::split(Segment* segment, Range* at) {
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
  list(made);
  return true;
}

Range* RangeTable::cut_free(Range* range, Address at) {
  unlist(range);
  Range* const rest = cut(range, at - range->start);
  list_again(range);
  if (rest == nullptr) return nullptr;
  rest->use = range->use;
  list_again(rest);
  return rest;
}

Segment* RangeTable::isolate(Range* low, Range* high) {
  if (high->after != nullptr && !split(high->segment, high->after)) return nullptr;
  if (low->before != nullptr && !split(low->segment, low)) return nullptr;
  return low->segment;
}

// A live neighbour that reaches across the border of a
// chunk comes along; a free one is cut there, if there is host memory.
Segment* RangeTable::isolate_block(Range* range, mapped::Space& space) {
  const mapped::Part around = space.chunks_around(range->start, range->bytes);
  Range* low = range;
  for (Address begin = around.start; low->start != begin;) {
    while (low->start > begin) low = low->before;
    if (low->start == begin) break;
    Range* const cut = low->use == Use::kFree ? cut_free(low, begin) : nullptr;
    if (cut != nullptr) low = cut;
    if (cut == nullptr) begin = space.chunks_around(low->start, 1).start;
  }
  Range* high = range;
  for (Address end = around.start + around.bytes; high->end() != end;) {
    while (high->end() < end) high = high->after;
    if (high->end() == end || (high->use == Use::kFree && cut_free(high, end) != nullptr)) break;
    const mapped::Part next = space.chunks_around(high->end() - 1, 1);
    end = next.start + next.bytes;
  }
  Segment* const alone = isolate(low, high);
  return alone != nullptr ? alone : range->segment.load();
}

}  // namespace cupool::pool
