// The books of the native pool: which contexts have a pool, which blocks live in which, which frees wait for
// the end of a capture, what an ended context has left behind, and how much there was at most. Owns them
// under one lock, which is never held across a driver call: it calls none.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <utility>
#include <vector>

#include "allocator/allocator.hpp"
#include "base/lock.hpp"
#include "driver/native_driver.hpp"
#include "native/context_pool.hpp"

namespace cupool::native {

using allocator::Address;

// What a context had when it ended; freed once it is gone and the device has a new context.
struct Orphans {
  uint64_t ending = 0;
  ContextPool* pool = nullptr;
  std::vector<std::pair<Address, uint64_t>> blocks;  // and their bytes
  std::vector<Address> deferred;                     // freed by the program during a capture
  bool gone = false;

  bool is_empty() const { return blocks.empty() && deferred.empty(); }
};

class Ledger {
 public:
  // ---- Pools of contexts.

  ContextPool* find(driver::Context context) CUPOOL_EXCLUDES(lock_);
  // Enters `made` and its account. Not null: another thread entered one for the context first.
  ContextPool* enter(ContextPool* made) CUPOOL_EXCLUDES(lock_);
  std::vector<ContextPool*> pools() CUPOOL_EXCLUDES(lock_);

  // ---- Live blocks.

  void enter_block(ContextPool& pool, Address address, uint64_t bytes) CUPOOL_EXCLUDES(lock_);
  // Whose block starts at an address; null: none. A pool found has not ended before the call.
  ContextPool* pool_of(Address address, driver::Context* context = nullptr) CUPOOL_EXCLUDES(lock_);
  // See Allocator::for_each_live().
  void visit_live(allocator::VisitLive visit, void* data) CUPOOL_EXCLUDES(lock_);
  // Takes a block out, and its bytes off every account.
  ContextPool* take_out(Address address, driver::Context* context) CUPOOL_EXCLUDES(lock_);

  // ---- Frees that wait for the end of a capture.

  void defer(ContextPool& pool, Address address) CUPOOL_EXCLUDES(lock_);
  bool has_deferred() const { return has_deferred_.load(std::memory_order_relaxed); }
  std::vector<Address> take_deferred(ContextPool& pool) CUPOOL_EXCLUDES(lock_);

  // ---- The end of a context.

  // Its handle is unknown from now on; what it has is set aside. Null: it had no pool.
  ContextPool* begin_end(driver::Context context, uint64_t ending) CUPOOL_EXCLUDES(lock_);
  // Gone: the blocks stay aside until somebody takes them. Else all is as before. Null: nothing was aside.
  // `*is_empty`: it is gone and left nothing.
  ContextPool* end(uint64_t ending, bool gone, bool* is_empty) CUPOOL_EXCLUDES(lock_);
  // What contexts that are gone have left on a device.
  std::vector<Orphans> take_orphans(int device) CUPOOL_EXCLUDES(lock_);

  // ---- Peaks.

  // `answer`: the driver's, or null if it did not answer; then its last one counts.
  driver::NativeUsage usage(ContextPool& pool, const driver::NativeUsage* answer) CUPOOL_EXCLUDES(lock_);
  // Keeps the peaks of a context that ends.
  void keep_peaks(const ContextPool& pool, const driver::NativeUsage* answer) CUPOOL_EXCLUDES(lock_);
  // Raises the peaks in `sum` to those of contexts that ended.
  void add_past_peaks(int device, driver::NativeUsage* sum) CUPOOL_EXCLUDES(lock_);
  void forget_past_peaks() CUPOOL_EXCLUDES(lock_);

  // Whether the lock becomes free within a moment: not if a signal handler interrupted its holder on this
  // thread.
  bool can_be_asked() CUPOOL_EXCLUDES(lock_) {
    if (!lock_.try_lock_for_a_moment()) return false;
    lock_.unlock();
    return true;
  }

 private:
  struct LiveBlock {
    ContextPool* pool;
    uint64_t bytes;
  };

  ContextPool* find_locked(driver::Context context) const CUPOOL_REQUIRES(lock_);
  void restore_locked(const Orphans& orphans) CUPOOL_REQUIRES(lock_);

  Lock lock_{Rank::kNativePool};
  std::vector<ContextPool*> pools_ CUPOOL_GUARDED_BY(lock_);  // of contexts that have not ended
  std::map<Address, LiveBlock> blocks_ CUPOOL_GUARDED_BY(lock_);
  std::deque<std::pair<Address, ContextPool*>> deferred_ CUPOOL_GUARDED_BY(lock_);
  std::vector<Orphans> orphans_ CUPOOL_GUARDED_BY(lock_);
  std::map<int, driver::NativeUsage> past_ CUPOOL_GUARDED_BY(lock_);  // peaks of contexts that ended
  std::atomic<bool> has_deferred_{false};
};

}  // namespace cupool::native
