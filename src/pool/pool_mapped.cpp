// How a pool grows in mapped memory: by runs of chunks, as few bytes as the block needs, made of memory that
// lies free elsewhere before the driver is asked for more. No pool lock is held across a call of the driver.
#include <algorithm>
#include <array>

#include "base/log.hpp"
#include "pool/page_map.hpp"
#include "pool/pool.hpp"

namespace cupool::pool {

using driver::kOutOfMemory;
using driver::kSuccess;

// A small share of what is reserved: a chunk goes back only when all of it is free, and making one costs
// about as much as a hundred launches of kernels cost the host.
uint64_t Pool::chunk_bytes() const {
  constexpr uint64_t kShare = 256;
  return std::clamp(ranges_.usable() / kShare & ~(kPageBytes - 1), kPageBytes, settings_.chunk);
}

bool Pool::device_seems_to_have(uint64_t bytes) const {
  size_t free = 0;
  size_t total = 0;
  return upstream_.driver().memory(&free, &total) != kSuccess || bytes <= free;
}

// The chunks of a large block's run come and go together as long as it is not cut. Where the device seems to
// have too little, the run is one chunk: the driver then gives all of it, from what its own pools keep, too,
// or refuses at once. Chunk by chunk it would take all there is first, and others would be refused meanwhile.
uint64_t Pool::most_of_chunk(uint64_t run) const {
  constexpr uint64_t kFewChunks = 16;
  if (run > settings_.chunk && !device_seems_to_have(run)) return run;
  return std::clamp(round_up(run / kFewChunks, kPageBytes), chunk_bytes(), settings_.chunk);
}

// A large block gets what it needs; smaller ones share a chunk, unless the last one was lost to a taint.
uint64_t Pool::run_bytes(uint64_t need) const {
  const uint64_t exact = round_up(need, kPageBytes);
  return is_newly_tainted() ? exact : std::max(exact, std::min(chunk_bytes(), largest_split(need)));
}

// Whether so many bytes more stay within a small share of the most that was handed out at once, or within
// what was needed before memory went back. Then streams need not wait for each other's memory.
bool Pool::may_exceed(uint64_t bytes) const {
  constexpr uint64_t kShare = 32;
  const uint64_t peak = ranges_.peak_taken();
  return ranges_.reserved() + bytes <= peak + peak / kShare ||
         needed() + bytes <= needed_once_.load(std::memory_order_relaxed);
}

// A program that repeats itself would move the same memory again and again. If moves go on while the most
// that was handed out at once stays the same, the largest block they were made for gets new memory instead,
// if it comes again soon and may have it; else any. One thread at a time.
bool Pool::should_grow(uint64_t bytes) {
  const uint64_t few = few_moves_.load(std::memory_order_relaxed);
  uint64_t moved = moved_.load(std::memory_order_relaxed);
  const uint64_t largest = largest_moved_.load(std::memory_order_relaxed);
  if (moved <= few || !may_grow(bytes)) return false;
  if (bytes < largest && moved <= 2 * few && may_grow(largest)) return false;
  return moved_.compare_exchange_strong(moved, 0, std::memory_order_relaxed);
}

// Within a small share of that most. Where streams take turns, a larger one: they have it with the driver's
// segments, too, and a very large block counts as what is taken so that they need not wait.
bool Pool::may_grow(uint64_t bytes) const {
  // Where the user limits what is kept, it would go back soon.
  if (max_cached_.load(std::memory_order_relaxed) < device_bytes_) return false;
  constexpr uint64_t kShare = 24;
  constexpr uint64_t kShareOfTurns = 14;
  constexpr uint64_t kShareOfVeryLarge = 6;
  const uint64_t peak = ranges_.peak_taken();
  const bool are_turns = order().lanes_in_turns() > 1;
  if (are_turns && bytes >= kVeryLarge)
    return spread_.load(std::memory_order_relaxed) + bytes <= peak / kShareOfVeryLarge;
  return ranges_.reserved() + bytes <= peak + peak / (are_turns ? kShareOfTurns : kShare);
}

void Pool::note_moved(size_t chunks, uint64_t bytes) {
  const uint64_t peak = ranges_.peak_taken();
  if (peak_at_move_.exchange(peak, std::memory_order_relaxed) != peak) forget_moves();
  moved_.fetch_add(chunks, std::memory_order_relaxed);
  if (bytes > largest_moved_.load(std::memory_order_relaxed))
    largest_moved_.store(bytes, std::memory_order_relaxed);
}

void Pool::forget_moves() {
  moved_.store(0, std::memory_order_relaxed);
  largest_moved_.store(0, std::memory_order_relaxed);
  few_moves_.store(kFewMoves, std::memory_order_relaxed);
}

// Free memory on its way to another place: out of all records, mapped where it was.
struct Pool::Moving {
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

struct Pool::Run {
  Address start = 0;
  uint64_t bytes = 0;
  // Of the last work on it.
  Epoch stamp = 0;
  order::LaneName sole = order::LaneName::kNone;
};

// Whole chunks that lie free and may be handed out: `enough` bytes, or all there are. Those that the
// expected lane has to itself are as good as done; for those that lanes must wait for, see
// make_range_for_lane().
void Pool::gather(uint64_t enough, const Search& search, Moving* out) {
  const bool leans = order().is_spread() && order().reuse() == order::Reuse::kLean;
  const order::LaneName lane = leans ? search.lane : order::LaneName::kNone;
  order::Reach reach = lane == order::LaneName::kNone ? order::Reach::kCheap : order::Reach::kOwn;
  if (leans && search.reach == order::Reach::kAll) reach = order::Reach::kAll;
  out->sole = lane;
  while (out->bytes < enough && out->count < Moving::kMost) {
    const order::Reach now = may_exceed(enough) ? order::Reach::kCheap : reach;
    Segment* const segment = ranges_.part_to_move(enough - out->bytes, now, lane, space_, order());
    out->is_all = segment == nullptr;
    if (out->is_all) return;
    const mapped::Part part{segment->start, segment->bytes};
    const size_t chunks = space_.count_chunks(part);
    if (!space_.may_move(out->chunks + chunks)) {
      put_back(segment);
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
Status Pool::map_run(Search* search, Run* run) {
  Moving moving{.is_all = search->wants_new};
  if (search->wants_new) return map_run_of(&moving, search, run);
  if (should_grow(run->bytes) && grow_run(search, run)) return kSuccess;
  gather(run->bytes, *search, &moving);
  const Status status = map_run_of(&moving, search, run);
  if (status == kSuccess && moving.chunks != 0) note_moved(moving.chunks, run->bytes);
  return status;
}

// Of new memory, if the device has it to spare: a refusal would come when all there is was taken, and others
// would be refused meanwhile. After one, more moves come first, twice as many each time.
bool Pool::grow_run(Search* search, Run* run) {
  const Run asked = *run;
  const bool counts = order().lanes_in_turns() > 1 && asked.bytes >= kVeryLarge;
  if (counts) spread_.fetch_add(asked.bytes, std::memory_order_relaxed);
  Moving none{.is_all = true};
  size_t free = 0;
  size_t total = 0;
  if (upstream_.driver().memory(&free, &total) == kSuccess && free >= 2 * asked.bytes &&
      map_run_of(&none, search, run) == kSuccess) {
    forget_moves();
    return true;
  }
  *run = asked;
  if (counts) spread_.fetch_sub(asked.bytes, std::memory_order_relaxed);
  const uint64_t few = few_moves_.load(std::memory_order_relaxed);
  few_moves_.store(std::min(2 * few, uint64_t{1} << 30), std::memory_order_relaxed);
  return false;
}

// Of what moves there and, for the rest, new memory. What else is free goes back to the driver for it.
Status Pool::map_run_of(Moving* moving, Search* search, Run* run) {
  const uint64_t more = run->bytes - std::min(run->bytes, moving->bytes);
  if (more != 0 && !moving->is_all) release_chunks({.enough = more});
  const uint64_t most = more == 0 ? 0 : most_of_chunk(more);
  const Status status =
      space_.map({moving->parts.data(), moving->count, moving->stamp, more, most}, &run->start);
  for (size_t i = 0; i < moving->count; ++i) {
    if (status == kSuccess) {
      ranges_.forget(moving->segments[i]);
    } else {
      put_back(moving->segments[i]);
      note_returned(search);
    }
  }
  if (status != kSuccess) return status;
  run->bytes = moving->bytes + more;
  run->stamp = order::kMoves ? moving->stamp : 0;
  run->sole = moving->sole;
  allocated_segments_.fetch_add(1, std::memory_order_relaxed);
  newly_tainted_.store(false, std::memory_order_relaxed);
  unmap_left();
  return status;
}

// A run that nobody has seen, and for which there is no record.
void Pool::drop_run(const Run& run) {
  const bool is_done = run.stamp <= order().done();
  if (!is_done || !space_.unmap(run.start, run.bytes)) lost_.fetch_add(run.bytes, std::memory_order_relaxed);
}

// Memory that was on its way comes back: another thread may have missed it, and looks again (grow()).
void Pool::note_returned(Search* search) {
  ++search->returned;
  ranges_.note_give();
}

// Nothing that may be handed out fits. Who is out of memory waits meanwhile, because what is on its way here
// may come back. pre: no stream captures.
Range* Pool::add_run(uint64_t bytes, uint64_t taken, Search* search) {
  const InFlight::Call call(in_flight_, context(), InFlight::Kind::kRelease, device_);
  order().advance();
  unmap_left();
  if (Range* const range = extend_tail(bytes, taken, search)) return range;
  Run run{.bytes = bytes};
  search->status = map_run(search, &run);
  if (search->status != kSuccess) {
    // (For more than the device has there may be no addresses, either.)
    if (search->status != kOutOfMemory && !device_seems_to_have(bytes)) search->status = kOutOfMemory;
    if (search->status == kOutOfMemory) return nullptr;
    // It can, and does not: the driver's own allocations serve from now on.
    space_.stop();
    static constinit log::Once once;
    if (once.first())
      log::line("the driver refuses to map memory (error {}); from now on segments are its own allocations",
                search->status);
    return nullptr;
  }
  if (enter_pages(run.start, run.bytes)) {
    if (Range* range = ranges_.add(run.start, run.bytes, taken, Ranges::From::kMapped, run.stamp, run.sole))
      return range;
    page_map.remove(run.start, run.bytes);
  }
  drop_run(run);
  search->status = kOutOfMemory;
  return nullptr;
}

// Maps only what a free range at the end of a segment lacks.
Range* Pool::extend_tail(uint64_t bytes, uint64_t taken, Search* search) {
  Range* const tail = ranges_.take_tail(bytes, space_, order());
  if (tail == nullptr) return nullptr;
  Run run{.start = tail->end(), .bytes = round_up(bytes - tail->bytes, kPageBytes)};
  search->status = map_run(search, &run);
  if (search->status == kSuccess) {
    if (enter_pages(run.start, run.bytes)) {
      ranges_.extend(tail, run.bytes, taken, run.stamp, run.sole);
      return tail;
    }
    drop_run(run);
  }
  ranges_.put_back(tail, order());
  note_returned(search);
  return nullptr;
}

}  // namespace cupool::pool
