// The driver's own stream-ordered pool as a source of blocks for programs that name no stream: one private
// pool and two private streams per context. A block is allocated on one stream and made visible to all later
// work by a context event; a free is ordered after all work so far by another and made on the second stream,
// so an allocation never waits for the work before a free. No host waits. Owns the list of its blocks, under
// a lock that is held across a driver call only to read how much is used.
#pragma once

#include <atomic>
#include <unordered_map>
#include <vector>

#include "base/lock.hpp"
#include "driver/native_driver.hpp"
#include "order/timeline.hpp"
#include "stats/device.hpp"

namespace cupool::pool {

using driver::Address;
using driver::Status;

class Native {
 public:
  Native(driver::Driver& driver, driver::NativeDriver& native, order::Timeline& order)
      : driver_(driver), native_(native), order_(order) {}

  // In the current context, which is `context`. kNotSupported: this driver cannot, and that was said once.
  Status allocate(driver::Context context, uint64_t bytes, Address* out);
  // False: not a block of this pool.
  bool free(Address address);
  bool owns(Address address);
  // Bytes in blocks that the application holds, of all contexts.
  uint64_t live() const { return live_.load(std::memory_order_relaxed); }

  // Before a context goes away.
  void close(driver::Context context);
  // Gives back what is free and done, down to `keep` bytes in each pool; how many bytes went.
  uint64_t trim(uint64_t keep);
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
    stats::Holdings* holdings = nullptr;
  };
  // What an ended context left behind; freed when the device gets its next source.
  struct Orphans {
    int device;
    driver::MemoryPool pool;
    std::vector<Address> blocks;
  };
  struct Block {
    Source* source;
    uint64_t bytes;
  };

  Source* source_of(driver::Context context) CUPOOL_EXCLUDES(lock_);
  Source* open(driver::Context context);
  bool fill(Source* source);
  Status allocate_visible(Source& source, uint64_t bytes, Address* out);
  void report_shortage(const Source& source, uint64_t bytes);
  void free_ordered(Source& source, Address address);
  void free_deferred();
  void free_orphans(Source& source);

  driver::Driver& driver_;
  driver::NativeDriver& native_;
  order::Timeline& order_;
  Lock lock_;
  std::vector<Source*> sources_ CUPOOL_GUARDED_BY(lock_);  // records stay when their context ends
  std::unordered_map<Address, Block> blocks_ CUPOOL_GUARDED_BY(lock_);
  std::vector<Orphans> orphans_ CUPOOL_GUARDED_BY(lock_);
  std::unordered_map<int, driver::NativeUsage> past_
      CUPOOL_GUARDED_BY(lock_);  // peaks of contexts that ended
  std::vector<std::pair<Address, Source*>> deferred_
      CUPOOL_GUARDED_BY(lock_);  // freed while something captured
  std::atomic<bool> has_deferred_{false};
  std::atomic<uint64_t> live_{0};
};

}  // namespace cupool::pool
