// Marked blocks, tainted segments and their way back to the driver. See marks.hpp. A tainted segment gives
// out nothing new and goes back whole with its last block: somebody beyond our sight may still reach any byte
// of it.
#include "pool/marks.hpp"

#include "base/host_memory.hpp"
#include "pool/page_map.hpp"
#include "pool/pool.hpp"

namespace cupool::pool {

namespace {

// The driver counts from one; these are far from anything it will reach.
constexpr uint64_t kFirstLife = uint64_t{1} << 62;
constinit std::atomic<uint64_t> lives{kFirstLife};

bool set_mark_bit_at(Address start) {
  Holder* const holder = page_map.find(start);
  if (holder == nullptr) return false;
  const uint32_t index = holder->index_of(start);
  return index < holder->blocks && set_mark_bit(holder->tags[index]);
}

}  // namespace

stats::Event counter_of(Taint reason) {
  return static_cast<stats::Event>(static_cast<unsigned>(stats::Event::tainted_by_export) +
                                   static_cast<unsigned>(reason));
}

uint64_t next_life() { return lives.fetch_add(1, std::memory_order_relaxed); }

Mark* Pool::mark_locked(Address address) {
  Held held;
  if (!find_held(address, &held)) return nullptr;
  if (host::is_short() && !marks_.contains(held.start)) return nullptr;
  if (!set_mark_bit_at(held.start)) return nullptr;
  Mark& mark = marks_[held.start];
  if (mark.life == 0) mark.life = next_life();
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
  stats::count(counter_of(reason));
  if (ranges_.taint(address, slabs_)) {
    tainted_segments_.fetch_add(1, std::memory_order_relaxed);
    // What threads keep of it goes back where it is not given out from any more.
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

void Pool::release_tainted() {
  if (tainted_segments_.load(std::memory_order_relaxed) == 0 || order().is_capturing() || !begin_release())
    return;
  while (Segment* segment = ranges_.detach_tainted()) {
    tainted_segments_.fetch_sub(1, std::memory_order_relaxed);
    // One that the driver refuses is left alone: somebody may reach it, so nobody else ever gets it.
    give_back(segment);
    ranges_.forget(segment);
  }
  end_release();
}

// Under the lock of the ranges, so that none of them comes or goes. Blocks on their way from a thread's cache
// to the application are missed: they are given out once more.
bool Ranges::taint(Address address, Slabs& slabs) {
  Guard hold(lock_);
  if (page_map.pool_of(address) != pool_) return false;
  Segment* segment = page_map.find_containing(address)->segment;
  if (segment->tainted.exchange(true, std::memory_order_seq_cst)) return false;
  for (Range* range = segment->first; range != nullptr; range = range->after) {
    if (range->use == Use::kTaken) {
      set_mark_bit(range->tag);
      slabs.close(range);
      continue;
    }
    if (range->use == Use::kPending) range->unlink();
    if (range->use == Use::kFree) bins_.remove(range);
    range->use = Use::kFree;
    free_.store(free_bytes() - range->bytes, std::memory_order_relaxed);
    if (range->before != nullptr && range->before->use == Use::kFree) {
      range = range->before;
      absorb_next_locked(range);
    }
  }
  return true;
}

void Slabs::close(Range* range) {
  // After the segment was marked as tainted: add() looks in the other order.
  Slab* slab = range->slab.load(std::memory_order_seq_cst);
  if (slab == nullptr) return;
  Class& c = classes_state_[slab->class_of_blocks()];
  Guard hold(c.lock);
  if (range->slab.load(std::memory_order_relaxed) != slab || slab->closed) return;
  if (slab->free_blocks != 0) unlist(c, slab);
  slab->closed = true;
  for (uint32_t i = 0; i < slab->blocks; ++i) set_mark_bit(slab->tags[i]);
}

}  // namespace cupool::pool
