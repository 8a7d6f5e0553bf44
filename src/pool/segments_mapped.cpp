// See segments_mapped.hpp.
#include "pool/segments_mapped.hpp"

#include <algorithm>
#include <array>

#include "base/log.hpp"
#include "pool/page_map.hpp"
#include "stats/device.hpp"

namespace cupool::pool {

using driver::kOutOfMemory;
using driver::kSuccess;

// ---- Coming.

bool MappedSegments::device_seems_to_have(uint64_t bytes) const {
  size_t free = 0;
  size_t total = 0;
  return records_.tenancy.driver().memory(&free, &total) != kSuccess || bytes <= free;
}

// Where the device seems to have too little, the run is one chunk: the driver then gives all of it, from what
// its own pools keep, too, or refuses at once. Chunk by chunk it would take all there is first, and others
// would be refused meanwhile; and what moves would move in vain. (To ask costs more than a small run.)
uint64_t MappedSegments::most_of_chunk(uint64_t run, bool moves_more) const {
  const Settings& settings = records_.tenancy.settings();
  if ((run > settings.chunk || moves_more) && !device_seems_to_have(run)) return run;
  return growth::most_of_chunk(settings, run);
}

// Free memory on its way to another place: out of all records, mapped where it was.
struct MappedSegments::Moving {
  static constexpr size_t kMost = 64;
  std::array<Segment*, kMost> segments = {};
  std::array<mapped::Part, kMost> parts = {};
  size_t count = 0;
  size_t chunks = 0;
  uint64_t bytes = 0;
  bool is_all = false;  // there is no more
  // Of its last work.
  Epoch stamp = 0;
  order::LaneName sole = order::LaneName::kNone;
};

struct MappedSegments::Run {
  Address start = 0;
  uint64_t bytes = 0;
  // Of the last work on it.
  Epoch stamp = 0;
  order::LaneName sole = order::LaneName::kNone;
};

// Whole chunks that lie free and may be handed out: `enough` bytes, or all there are. Those that the
// expected lane has to itself are as good as done; for those that lanes must wait for, see
// Search::make_range_for_lane().
void MappedSegments::gather(uint64_t enough, const SegmentRequest& request, Moving* out) {
  const bool leans = order().is_spread() && order().reuse() == order::Reuse::kLean;
  const order::LaneName lane = leans ? request.lane : order::LaneName::kNone;
  order::Reach reach = lane == order::LaneName::kNone ? order::Reach::kCheap : order::Reach::kOwn;
  if (leans && request.reach == order::Reach::kAll) reach = order::Reach::kAll;
  out->sole = lane;
  while (out->bytes < enough && out->count < Moving::kMost) {
    const order::Reach now =
        growth::may_exceed(records_.growth.figures(), enough) ? order::Reach::kCheap : reach;
    Segment* const segment = records_.ranges.part_to_move(enough - out->bytes, now, lane, space_, order());
    out->is_all = segment == nullptr;
    if (out->is_all) return;
    const mapped::Part part{segment->start, segment->bytes};
    const size_t chunks = space_.count_chunks(part);
    if (!space_.may_move(out->chunks + chunks)) {
      records_.put_back(segment);
      return;
    }
    out->segments[out->count] = segment;
    out->parts[out->count++] = part;
    out->chunks += chunks;
    out->bytes += part.bytes;
    const Range& range = *segment->lowest();
    if (range.stamp > order().done() && range.sole != lane) out->sole = order::LaneName::kNone;
    out->stamp = std::max(out->stamp, range.stamp);
  }
}

// Maps a run of at least so many bytes, there or anywhere (0). What is free serves nobody where it is, so it
// moves here first, unless new memory is better and the driver gives it.
// pre: no stream captures.
driver::Status MappedSegments::map_run(SegmentRequest* request, Run* run) {
  Moving moving{.is_all = request->wants_new};
  if (request->wants_new) return map_run_of(&moving, request, run);
  if (records_.growth.should_grow(run->bytes) && grow_run(request, run)) return kSuccess;
  gather(run->bytes, *request, &moving);
  const driver::Status status = map_run_of(&moving, request, run);
  if (status == kSuccess && moving.chunks != 0) records_.growth.note_moved(moving.chunks, run->bytes);
  return status;
}

// Takes new memory only if twice as much is free: the driver refuses when it has handed out all, and refuses
// other threads meanwhile. After a refusal more moves come first, twice as many each time.
bool MappedSegments::grow_run(SegmentRequest* request, Run* run) {
  const Run asked = *run;
  const bool counts = order().lanes_in_turns() > 1 && asked.bytes >= growth::kVeryLarge;
  if (counts) records_.growth.add_spread(asked.bytes);
  Moving none{.is_all = true};
  size_t free = 0;
  size_t total = 0;
  if (records_.tenancy.driver().memory(&free, &total) == kSuccess && free >= 2 * asked.bytes &&
      map_run_of(&none, request, run) == kSuccess) {
    records_.growth.forget_moves();
    return true;
  }
  *run = asked;
  if (counts) records_.growth.remove_spread(asked.bytes);
  records_.growth.note_growth_failed();
  return false;
}

// Of what moves there and, for the rest, new memory. What else is free goes back to the driver for it.
driver::Status MappedSegments::map_run_of(Moving* moving, SegmentRequest* request, Run* run) {
  const uint64_t more = run->bytes - std::min(run->bytes, moving->bytes);
  if (more != 0 && !moving->is_all) release_chunks({.enough = more});
  const uint64_t most = more == 0 ? 0 : most_of_chunk(more, moving->count != 0);
  const driver::Status status =
      space_.map({moving->parts.data(), moving->count, moving->stamp, more, most}, &run->start);
  for (size_t i = 0; i < moving->count; ++i) {
    if (status == kSuccess) {
      records_.ranges.forget(moving->segments[i]);
    } else {
      records_.put_back(moving->segments[i]);
      note_returned(request);
    }
  }
  if (status != kSuccess) return status;
  run->bytes = moving->bytes + more;
  run->stamp = order::kMoves ? moving->stamp : 0;
  run->sole = moving->sole;
  records_.growth.note_added();
  unmap_vacated();
  return status;
}

// A run that nobody has seen, and for which there is no record.
void MappedSegments::drop_run(const Run& run) {
  const bool is_done = run.stamp <= order().done();
  if (!is_done || !space_.unmap(run.start, run.bytes)) records_.add_lost(run.bytes);
}

// Memory that was on its way comes back: another thread may have missed it, and looks again (Search::grow()).
void MappedSegments::note_returned(SegmentRequest* request) {
  ++request->returned;
  records_.ranges.note_give();
}

// Nothing that may be handed out fits. The call counts as a release, so that a retry after out-of-memory
// waits for it: what is on its way here may come back. pre: no stream captures.
Range* MappedSegments::add(uint64_t bytes, uint64_t taken, SegmentRequest* request) {
  const InFlight::Call call(records_.tenancy.in_flight(), records_.tenancy.context(),
                            InFlight::Kind::kRelease, records_.tenancy.device());
  order().advance();
  unmap_vacated();
  const bool may_share = growth::may_share_page(records_.growth.figures(), taken);
  if (Range* const range = extend_tail(bytes, taken, may_share, request)) return range;
  Run run{.bytes = bytes};
  request->status = map_run(request, &run);
  if (request->status != kSuccess) {
    // (For more than the device has there may be no addresses, either.)
    if (request->status != kOutOfMemory && !device_seems_to_have(bytes)) request->status = kOutOfMemory;
    // With the rest of a page it may just fit.
    if (request->status == kOutOfMemory)
      return may_share ? nullptr : extend_tail(taken, taken, true, request);
    // It can, and does not: the driver's own allocations serve from now on.
    space_.stop();
    static constinit log::Once once;
    if (once.first())
      log::line("the driver refuses to map memory (error {}); from now on segments are its own allocations",
                request->status);
    return nullptr;
  }
  if (SegmentRecords::enter_pages(run.start, run.bytes)) {
    if (Range* range =
            records_.ranges.add(run.start, run.bytes, taken, Ranges::From::kMapped, run.stamp, run.sole))
      return range;
    page_map.remove(run.start, run.bytes);
  }
  drop_run(run);
  request->status = kOutOfMemory;
  return nullptr;
}

// Maps only what a free range at the end of a segment lacks.
Range* MappedSegments::extend_tail(uint64_t bytes, uint64_t taken, bool may_share, SegmentRequest* request) {
  Range* const tail = records_.ranges.take_tail(bytes, may_share, space_, order());
  if (tail == nullptr) return nullptr;
  Run run{.start = tail->end(), .bytes = round_up(bytes - tail->bytes, kPageBytes)};
  request->status = map_run(request, &run);
  if (request->status == kSuccess) {
    if (SegmentRecords::enter_pages(run.start, run.bytes)) {
      records_.ranges.extend(tail, run.bytes, taken, run.stamp, run.sole);
      return tail;
    }
    drop_run(run);
  }
  records_.ranges.put_back(tail, order());
  note_returned(request);
  return nullptr;
}

// ---- Going.

// The places that chunks have left go as soon as their work is done: as long as they are mapped there, too,
// the device does not get them back. Another thread may add some while this one unmaps: what is read here
// says nothing of those. So the open epoch is read first: work that begins later belongs to a newer one.
void MappedSegments::unmap_vacated() {
  if (!space_.has_vacated()) return;
  const ReleaseScope release(records_.tenancy);
  const Epoch newest = order().open();
  const Epoch done = std::min(newest, order().done());
  if (release.may_begin()) space_.unmap_vacated(order::kVacated ? done : order::kAnyStamp);
}

uint64_t MappedSegments::release_chunks(const Ranges::ToRelease& which, bool (*goes_on)()) {
  if (!records_.ranges.has_mapped_segments()) return 0;
  unmap_vacated();
  uint64_t released = 0;
  const ReleaseScope release(records_.tenancy);
  while (release.may_begin() && released < which.enough && goes_on()) {
    Ranges::ToRelease more = which;
    more.enough -= released;
    Segment* const segment = records_.ranges.part(more, space_, order());
    const uint64_t bytes = segment == nullptr ? 0 : records_.hand_back(segment, *this);
    if (bytes == 0) break;
    released += bytes;
  }
  return released;
}

uint64_t MappedSegments::release_free(uint64_t keep) {
  const uint64_t free = records_.ranges.bytes().free();
  return free > keep ? release_chunks({.enough = free - keep}) : 0;
}

// At any time, for nobody waits. Where work may be submitted unseen, a capture may begin unseen, too: then
// only at the program's own calls. Thread caches of a program at work are left alone.
uint64_t MappedSegments::release_idle(const allocator::Idle& which, uint64_t now_ms) {
  if (!records_.ranges.has_mapped_segments()) return 0;
  const bool is_quiet = which.only_quiet ? order().was_quiet() : order().is_idle();
  if (!is_quiet && which.on_own_thread && order().reuse() != order::Reuse::kLean) return 0;
  if (is_quiet) caches_.empty_all();
  const uint64_t released =
      release_chunks({.enough = which.enough, .now_ms = now_ms, .idle_ms = which.for_ms}, which.goes_on);
  if (released != 0) records_.tenancy.stats().count(stats::DeviceCounter::decays);
  return released;
}

void MappedSegments::ended(bool gone) {
  if (gone) {
    space_.unmap_all();
  } else {
    space_.forget_all();
  }
}

// ---- How much could go.

// By chunks, wherever nothing is held from end to end of one. A block that is held rules out its last chunk,
// so the walk goes on behind that: it looks at a block for each chunk, not at all. (No running figure:
// threads keep and take blocks without a lock.) What is tainted goes back as a whole.
uint64_t MappedSegments::releasable_locked(const Segment& segment) {
  if (segment.tainted.load(std::memory_order_relaxed)) return SegmentRecords::unheld_bytes(segment);
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

uint64_t MappedSegments::most_of_tail() {
  uint64_t most = 0;
  Guard hold(records_.ranges.lock());
  for (const Segment* segment = records_.ranges.first_segment(); segment != nullptr;
       segment = segment->next) {
    if (!segment->mapped || segment->tainted.load(std::memory_order_relaxed)) continue;
    const Range* range = segment->last;
    while (range != nullptr && !is_held(*range)) range = range->before;
    const Address start = range == nullptr ? segment->start : range->end();
    const uint64_t tail = segment->end() - start;
    if (tail != 0) most = std::max(most, tail - space_.chunks_in(start, tail).bytes);
  }
  return most;
}

}  // namespace cupool::pool
