// Marked blocks, tainted segments and their way back to the driver. See marks.hpp. A tainted segment serves
// no new block and goes back whole after its last one: another process or device may still reach any byte of
// it.
#include "base/host_memory.hpp"
#include "pool/page_map.hpp"
#include "pool/pool.hpp"

namespace cupool::pool {

namespace {

// A marked block carries a bit in its tag, so that its free takes the slow path.
bool set_mark_bit_at(Address start) {
  Holder* const holder = page_map.find(start);
  if (holder == nullptr) return false;
  const uint32_t index = holder->index_of(start);
  return index < holder->blocks && set_mark_bit(holder->tags[index]);
}

}  // namespace

Mark* Pool::mark_locked(Address address) {
  Held held;
  if (!find_held(address, &held) || held.leaving) return nullptr;
  if (host::is_short() && !marks_.contains(held.start)) return nullptr;
  if (!set_mark_bit_at(held.start)) return nullptr;
  Mark& mark = marks_[held.start];
  if (mark.life == 0) mark.life = allocator::next_life();
  return &mark;
}

bool Pool::taint(Address address, Taint reason) {
  const uint32_t bit = 1u << static_cast<unsigned>(reason);
  {
    Guard hold(marks_lock_);
    Mark* mark = mark_locked(address);
    if (mark == nullptr) return false;
    if ((mark->taints & bit) != 0) return true;
    mark->taints |= bit;
  }
  stats::count(allocator::counter_of(reason));
  if (ranges_.taint(address, slabs_, space_)) {
    tainted_segments_.fetch_add(1, std::memory_order_relaxed);
    newly_tainted_.store(true, std::memory_order_relaxed);
    // Blocks of it in thread caches go back to the segment, which no longer serves any.
    empty_thread_caches();
  }
  return true;
}

void Pool::take_back_marked(unsigned size_class, const Entry& entry) {
  {
    Guard hold(marks_lock_);
    marks_.erase(entry.address);
  }
  give_blocks(size_class, &entry, 1);
}

}  // namespace cupool::pool
