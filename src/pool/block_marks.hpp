// Marks of one pool's blocks, and what a taint does: the segment serves no new block and goes back whole
// after its last one, for another process or device may still reach any byte of it. See allocator/marks.hpp.
// The table is under `lock_`.
#pragma once

#include <map>

#include "allocator/allocator.hpp"
#include "base/lock.hpp"
#include "pool/inventory.hpp"
#include "pool/segments.hpp"
#include "pool/thread_caches.hpp"

namespace cupool::pool {

using allocator::Mark;
using allocator::Taint;

class BlockMarks {
 public:
  BlockMarks(Inventory& inventory, Segments& segments, ThreadCaches& caches)
      : inventory_(inventory), segments_(segments), caches_(caches) {}

  // Calls `visit` with the mark of the block that contains `address`, whose free takes the slow path from
  // then on.
  bool visit(Address address, void (*visit)(Mark&, void*), void* data) {
    Guard hold(lock_);
    Mark* mark = mark_locked(address);
    if (mark == nullptr) return false;
    visit(*mark, data);
    return true;
  }
  // The block is never reused. False: no live block contains `address`.
  bool taint(Address address, Taint reason);
  // The block that starts there is freed.
  void drop(Address start) {
    Guard hold(lock_);
    marks_.erase(start);
  }
  void drop_all() {
    Guard hold(lock_);
    marks_.clear();
  }

 private:
  Mark* mark_locked(Address address) CUPOOL_REQUIRES(lock_);

  Inventory& inventory_;
  Segments& segments_;
  ThreadCaches& caches_;
  Lock lock_{Rank::kMarks};
  std::map<Address, Mark> marks_ CUPOOL_GUARDED_BY(lock_);  // small nodes: the host may be short of memory
};

}  // namespace cupool::pool
