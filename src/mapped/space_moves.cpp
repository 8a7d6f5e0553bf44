// How chunks move: they are mapped at their new place too, and their old addresses are vacated, mapped, until
// the caller says that the work there is done. See space.hpp.
#include <algorithm>

#include "mapped/space.hpp"
#include "trace/dealings.hpp"

namespace cupool::mapped {

using driver::Chunk;
using driver::kMappingStep;
using driver::kOutOfMemory;
using driver::kSuccess;
using stats::DeviceCounter;

bool Space::enlist(const Vacated& place) {
  Guard hold(lock_);
  for (Vacated& one : vacated_) {
    if (one.bytes != 0) continue;
    one = place;
    vacated_count_.fetch_add(1, std::memory_order_relaxed);
    return true;
  }
  return false;
}

void Space::drop_locked(Vacated& place) {
  place = {};
  vacated_count_.fetch_sub(1, std::memory_order_relaxed);
}

// Maps the chunks of all parts at claimed addresses too; if that fails, none.
Status Space::move_in(const Run& run, Address start, bool* is_clear) {
  Status status = kSuccess;
  Address at = start;
  for (size_t i = 0; i < run.count; ++i) {
    for_each_chunk(run.parts[i], [&](Address from, const Page& page) {
      if (status != kSuccess) return;
      const uint64_t bytes = page.pages * kMappingStep;
      status =
          enlist({from, bytes, page.chunk, run.until}) ? mapping_->map(at, bytes, page.chunk) : kOutOfMemory;
      if (status != kSuccess) return;
      mark(at, bytes, page);
      at += bytes;
    });
  }
  if (status == kSuccess) return status;
  if (at != start) *is_clear = mapping_->unmap(start, at - start) == kSuccess;
  end_move(run, false);
  return status;
}

// The parts' old addresses are vacated, or stay what they were.
void Space::end_move(const Run& run, bool is_made) {
  if (run.count == 0) return;
  Guard hold(lock_);
  for (size_t i = 0; i < run.count; ++i) {
    const Part& part = run.parts[i];
    for (Vacated& place : vacated_) {
      if (place.bytes == 0 || place.is_vacated || place.at < part.start ||
          place.at >= part.start + part.bytes)
        continue;
      place.is_vacated = true;
      if (!is_made) drop_locked(place);
      if (!is_made) continue;
      stats::device(upstream_.device()).count(DeviceCounter::chunks_moved);
      trace::tell_segment(trace::Dealing::kMoved, upstream_.device(), place.at, place.bytes);
    }
    if (is_made) addresses_.mark(part.start, part.bytes, Addresses::kClaimedPage);
  }
}

template <typename Which>
void Space::unmap_where(Which&& which) {
  for (;;) {
    Vacated found;
    {
      Guard hold(lock_);
      const auto one = std::find_if(vacated_.begin(), vacated_.end(), [&](const Vacated& place) {
        return place.bytes != 0 && place.is_vacated && which(place);
      });
      if (one == vacated_.end()) return;
      found = *one;
      drop_locked(*one);
    }
    if (mapping_->unmap(found.at, found.bytes) != kSuccess) {
      // Tried again the next time.
      enlist(found);
      return;
    }
    mark(found.at, found.bytes, {});
  }
}

void Space::unmap_vacated(order::Epoch done) {
  if (has_vacated()) unmap_where([done](const Vacated& place) { return place.until <= done; });
}

void Space::unmap_vacated_of(Chunk chunk) {
  unmap_where([chunk](const Vacated& place) { return place.chunk == chunk; });
}

size_t Space::count_chunks(const Part& part) {
  size_t count = 0;
  for_each_chunk(part, [&](Address, const Page&) { ++count; });
  return count;
}

}  // namespace cupool::mapped
