// How a pool grows in mapped memory: by runs of chunks, as few bytes as the block needs, made of memory that
// lies idle and done elsewhere before the driver is asked for more. No pool lock is held across a call of the
// driver.
#include <algorithm>

#include "base/log.hpp"
#include "pool/page_map.hpp"
#include "pool/pool.hpp"

namespace cupool::pool {

using driver::kOutOfMemory;
using driver::kSuccess;

// A small share of what is reserved: a chunk goes back only when all of it is free, and making one costs
// about as much as a hundred launches of kernels cost the host.
uint64_t Pool::chunk_bytes() const {
  constexpr uint64_t kShare = 64;
  return std::clamp(ranges_.usable() / kShare & ~(kPageBytes - 1), kPageBytes, settings_.chunk);
}

// The chunks of a large block's run come and go together as long as it is not cut. Where the device seems to
// have too little, the run is one chunk: the driver then gives all of it, from what its own pools keep, too,
// or refuses at once. Chunk by chunk it would take all there is first, and others would be refused meanwhile.
uint64_t Pool::most_of_chunk(uint64_t run) const {
  constexpr uint64_t kFewChunks = 8;
  size_t free = 0;
  size_t total = 0;
  if (run > settings_.chunk && upstream_.driver().memory(&free, &total) == kSuccess && free < run) return run;
  return std::clamp(round_up(run / kFewChunks, kPageBytes), chunk_bytes(), settings_.chunk);
}

// A large block gets what it needs; smaller ones share a chunk, unless the last one was lost to a taint.
uint64_t Pool::run_bytes(uint64_t need) const {
  const uint64_t exact = round_up(need, kPageBytes);
  return is_newly_tainted() ? exact : std::max(exact, std::min(chunk_bytes(), largest_split(need)));
}

// Nothing that may be handed out fits. What is free and done serves nobody where it is, so it goes first, as
// much as is needed now. pre: no stream captures.
Range* Pool::add_run(uint64_t bytes, uint64_t taken, Search* search) {
  order().advance();
  if (Range* const range = extend_tail(bytes, taken, search)) return range;
  release_chunks({.enough = bytes});
  Address start = 0;
  search->status = space_.map(bytes, most_of_chunk(bytes), &start);
  if (search->status != kSuccess) {
    if (search->status == kOutOfMemory) return nullptr;
    // It can, and does not: the driver's own allocations serve from now on.
    space_.stop();
    static constinit log::Once once;
    if (once.first())
      log::line("the driver refuses to map memory (error {}); from now on segments are its own allocations",
                search->status);
    return nullptr;
  }
  allocated_segments_.fetch_add(1, std::memory_order_relaxed);
  newly_tainted_.store(false, std::memory_order_relaxed);
  if (enter_pages(start, bytes)) {
    if (Range* range = ranges_.add(start, bytes, taken, Ranges::From::kMapped)) return range;
    page_map.remove(start, bytes);
  }
  // Nobody has seen it.
  space_.unmap(start, bytes);
  search->status = kOutOfMemory;
  return nullptr;
}

// Maps only what a free range at the end of a segment lacks.
Range* Pool::extend_tail(uint64_t bytes, uint64_t taken, Search* search) {
  Range* const tail = ranges_.take_tail(bytes, space_, order());
  if (tail == nullptr) return nullptr;
  const uint64_t more = round_up(bytes - tail->bytes, kPageBytes);
  release_chunks({.enough = more});
  const Address end = tail->end();
  search->status = space_.map_at(end, more, most_of_chunk(more));
  if (search->status == kSuccess && enter_pages(end, more)) {
    allocated_segments_.fetch_add(1, std::memory_order_relaxed);
    ranges_.extend(tail, more, taken);
    return tail;
  }
  if (search->status == kSuccess) space_.unmap(end, more);
  ranges_.put_back(tail, order());
  return nullptr;
}

}  // namespace cupool::pool
