// How chunks move: they are mapped at their new place too, and their old addresses are left, mapped, until
// the caller says that the work there is done. See space.hpp.
#include <algorithm>

#include "mapped/space.hpp"

namespace cupool::mapped {

using driver::Chunk;
using driver::kMappingStep;
using driver::kOutOfMemory;
using driver::kSuccess;
using stats::DeviceCounter;

bool Space::enlist(const Left& left) {
  Guard hold(lock_);
  for (Left& one : left_) {
    if (one.bytes != 0) continue;
    one = left;
    left_count_.fetch_add(1, std::memory_order_relaxed);
    return true;
  }
  return false;
}

void Space::drop_locked(Left& left) {
  left = {};
  left_count_.fetch_sub(1, std::memory_order_relaxed);
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

// The parts' old addresses are left, or stay what they were.
void Space::end_move(const Run& run, bool is_made) {
  if (run.count == 0) return;
  Guard hold(lock_);
  for (size_t i = 0; i < run.count; ++i) {
    const Part& part = run.parts[i];
    for (Left& left : left_) {
      if (left.bytes == 0 || left.is_left || left.at < part.start || left.at >= part.start + part.bytes)
        continue;
      left.is_left = true;
      if (!is_made) drop_locked(left);
      if (is_made) stats::device(upstream_.device()).count(DeviceCounter::chunks_moved);
    }
    if (is_made) addresses_.mark(part.start, part.bytes, Addresses::kClaimedPage);
  }
}

template <typename Which>
void Space::unmap_where(Which&& which) {
  for (;;) {
    Left found;
    {
      Guard hold(lock_);
      const auto one = std::find_if(left_.begin(), left_.end(), [&](const Left& left) {
        return left.bytes != 0 && left.is_left && which(left);
      });
      if (one == left_.end()) return;
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

void Space::unmap_left(order::Epoch done) {
  if (has_left()) unmap_where([done](const Left& left) { return left.until <= done; });
}

void Space::unmap_left_of(Chunk chunk) {
  unmap_where([chunk](const Left& left) { return left.chunk == chunk; });
}

size_t Space::count_chunks(const Part& part) {
  size_t count = 0;
  for_each_chunk(part, [&](Address, const Page&) { ++count; });
  return count;
}

}  // namespace cupool::mapped
