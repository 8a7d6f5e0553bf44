// See block_marks.hpp.
#include "pool/block_marks.hpp"

#include "base/host_memory.hpp"
#include "pool/page_map.hpp"
#include "stats/counters.hpp"

namespace cupool::pool {

namespace {

// A marked block carries a bit in its tag, so that its free takes the slow path.
bool set_mark_bit_at(Address start) {
  BlockRecord* const record = page_map.find(start);
  if (record == nullptr) return false;
  const uint32_t index = record->index_of(start);
  return index < record->blocks && set_mark_bit(record->tags[index]);
}

}  // namespace

Mark* BlockMarks::mark_locked(Address address) {
  allocator::BlockInfo held;
  if (!inventory_.find(address, &held) || held.free_pending) return nullptr;
  if (host::is_short() && !marks_.contains(held.start)) return nullptr;
  if (!set_mark_bit_at(held.start)) return nullptr;
  Mark& mark = marks_[held.start];
  if (mark.life == 0) mark.life = allocator::next_life();
  return &mark;
}

bool BlockMarks::taint(Address address, Taint reason) {
  const uint32_t bit = 1u << static_cast<unsigned>(reason);
  {
    Guard hold(lock_);
    Mark* mark = mark_locked(address);
    if (mark == nullptr) return false;
    if ((mark->taints & bit) != 0) return true;
    mark->taints |= bit;
  }
  stats::count(allocator::counter_of(reason));
  // Blocks of it in thread caches go back to the segment, which no longer serves any.
  if (segments_.taint(address)) caches_.empty_all();
  return true;
}

}  // namespace cupool::pool
