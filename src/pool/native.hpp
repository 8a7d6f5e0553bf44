// The driver's own stream-ordered pool as a source of blocks for programs that name no stream: one private
// pool and two private streams per context. A block is allocated on one stream and made visible to all later
// work by a context event; a free is ordered after all work so far by another and made on the second stream,
// so an allocation never waits for the work before a free. No host waits. Owns the list of its blocks, under
// a lock that is never held across a driver call.
#pragma once

#include <atomic>
#include <deque>
#include <map>
#include <vector>

#include "base/lock.hpp"
#include "driver/native_driver.hpp"
#include "order/timelines.hpp"
#include "stats/device.hpp"

namespace cupool::pool {

using driver::Address;
using driver::Status;

class Native {
 public:
  Native(driver::Driver& driver, driver::NativeDriver& native, order::Timelines& order)
      : driver_(driver), native_(native), order_(order) {}

  // In the current context, which is `context`. kNotSupported: this driver cannot, and that was said once.
  Status allocate(driver::Context context, uint64_t bytes, Address* out);
  // Makes what a context needs, which is current, before the first allocation: while a stream that was
  // destroyed still has work, the driver makes the creation of another one wait for it.
  void prepare(driver::Context context) {
    if (context != nullptr) open(context);
  }
  // It found no memory, and nobody else has any: counts it, and explains it if the user wants that.
  void note_failure(driver::Context context, uint64_t bytes);
  // False: not a block of this pool.
  bool free(Address address);
  // The same when `stream` reaches the free.
  bool free_on(Address address, driver::Stream stream);
  bool owns(Address address);
  // The context of a block of this pool; null: it is none.
  driver::Context owner(Address address);
  // Bytes in blocks that the application holds, of all contexts.
  uint64_t live() const { return live_.load(std::memory_order_relaxed); }

  // Before a context goes away: its handle means nothing here from now on, but its memory stays. What to tell
  // closed(), for by then the handle may be another context's; 0: nothing.
  uint64_t close(driver::Context context);
  // The call that was to end it has returned. `gone`: nobody uses its memory any more. Else the driver
  // refused, and all is as it was before close().
  void closed(uint64_t ending, bool gone);
  // Gives back what is free and done, down to `keep` bytes in each pool; how many bytes went.
  uint64_t trim(uint64_t keep);
  // Whether the lock can be had within a moment: not if a signal handler interrupted its holder on this
  // thread.
  bool can_be_asked() CUPOOL_EXCLUDES(lock_) {
    if (!lock_.try_lock_for_a_moment()) return false;
    lock_.unlock();
    return true;
  }
  // Of all contexts of a device.
  driver::NativeUsage usage(int device);
  void reset_peaks();

  // ---- Sharing with another process.

  Status export_pool(driver::Context context, int* descriptor);
  Status import_pool(int descriptor, driver::MemoryPool* out);
  Status export_pointer(Address address, void* data);
  Status import_pointer(driver::MemoryPool pool, const void* data, Address* out);

 private:
  struct Source {
    driver::Context context = nullptr;
    int device = 0;
    driver::MemoryPool pool = nullptr;
    driver::Stream allocates = nullptr;
    driver::Stream frees = nullptr;
    driver::Event allocated = nullptr;
    driver::Event freed = nullptr;
    uint64_t max_bytes = 0;
    std::atomic<uint64_t> live{0};
    std::atomic<uint64_t> frees_made{0};
    std::atomic<int> freeing{0};  // threads that make deferred frees, trim, or ask how much is used
    stats::Holdings* holdings = nullptr;
    driver::NativeUsage seen;  // what the driver last said
  };
  struct Block {
    Source* source;
    uint64_t bytes;
  };
  // What a context that ends leaves behind; freed when it is gone and the device gets its next source.
  struct Orphans {
    uint64_t ending;
    Source* source;
    std::vector<std::pair<Address, uint64_t>> blocks;  // and their bytes
    std::vector<Address> deferred;                     // freed by the program, while something captured
    bool gone = false;
  };

  Source* source_of(driver::Context context) CUPOOL_EXCLUDES(lock_);
  Source* open(driver::Context context);
  Source* find_source(driver::Context context) const CUPOOL_REQUIRES(lock_);
  // All sources, each with one more in `freeing`: its context does not end until the caller takes that back.
  std::vector<Source*> pinned_sources() CUPOOL_EXCLUDES(lock_);
  bool fill(Source* source);
  Status allocate_after_frees(Source& source, uint64_t bytes, Address* out);
  Status allocate_visible(Source& source, uint64_t bytes, Address* out);
  Source* take_out_locked(Address address) CUPOOL_REQUIRES(lock_);
  void free_ordered(Source& source, Address address);
  void free_deferred();
  void restore(const Orphans& orphans) CUPOOL_REQUIRES(lock_);
  void remember(const Source& source);
  void retire(const Source& source);
  void free_orphans(Source& source);

  driver::Driver& driver_;
  driver::NativeDriver& native_;
  order::Timelines& order_;
  Lock lock_;
  std::vector<Source*> sources_ CUPOOL_GUARDED_BY(lock_);  // records stay when their context ends
  std::map<Address, Block> blocks_ CUPOOL_GUARDED_BY(lock_);
  std::vector<Orphans> orphans_ CUPOOL_GUARDED_BY(lock_);
  uint64_t endings_ CUPOOL_GUARDED_BY(lock_) = 0;
  std::map<int, driver::NativeUsage> past_ CUPOOL_GUARDED_BY(lock_);  // peaks of contexts that ended
  std::deque<std::pair<Address, Source*>> deferred_
      CUPOOL_GUARDED_BY(lock_);  // freed while something captured
  std::atomic<bool> has_deferred_{false};
  std::atomic<uint64_t> live_{0};
};

}  // namespace cupool::pool
