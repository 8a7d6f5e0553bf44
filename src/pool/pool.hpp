// The cut memory of one context, put together from its parts: whose memory it is (tenancy.hpp), free blocks,
// thread caches, segments, marks. Here is when memory goes back to the driver, how a free ends, and how a
// pool is closed with its context and reopened for another. Asks the timeline when a block may be reused,
// never an event. No pool lock is held across a call of the driver. A pool record is never freed: when its
// context ends it is closed, and its memory leaves the page map.
#pragma once

#include <atomic>

#include "allocator/allocator.hpp"
#include "driver/driver.hpp"
#include "driver/source.hpp"
#include "pool/block_marks.hpp"
#include "pool/free_blocks.hpp"
#include "pool/growth_history.hpp"
#include "pool/inventory.hpp"
#include "pool/search_memory.hpp"
#include "pool/segments.hpp"
#include "pool/stream_frees.hpp"
#include "pool/tenancy.hpp"
#include "pool/thread_caches.hpp"

namespace cupool::pool {

using allocator::Short;
using allocator::Status;

class Pool {
 public:
  // `mapping`: segments are mapped; null: they are allocations of the driver.
  Pool(driver::Context context, int device, uint64_t device_bytes, driver::Driver& driver,
       driver::Source& source, driver::Mapping* mapping, order::Timeline& order, InFlight& in_flight);

  // ---- Its parts.

  Tenancy& tenancy() { return tenancy_; }
  FreeBlocks& blocks() { return blocks_; }
  ThreadCaches& caches() { return caches_; }
  Segments& segments() { return segments_; }
  GrowthHistory& growth() { return growth_; }
  Inventory& inventory() { return inventory_; }
  BlockMarks& marks() { return marks_; }
  SearchMemory& search_memory() { return search_memory_; }
  Ranges& ranges() { return blocks_.ranges(); }
  const SizeClasses& sizes() const { return blocks_.sizes(); }

  // The context this pool serves; null once it is closed.
  driver::Context context() const { return tenancy_.context(); }
  int device() const { return tenancy_.device(); }
  const Settings& settings() const { return tenancy_.settings(); }
  order::Timeline& order() const { return tenancy_.order(); }
  // Whether frees must take the slow path: the context has ended, or the user wants every free to wait.
  bool frees_specially() const { return context() == nullptr || settings().free_waits; }
  uint64_t most_kept_large() const { return tenancy_.most_kept_large(); }

  // ---- Allocation and free.

  // See Inventory.
  bool may_take(uint64_t bytes) { return inventory_.may_take(bytes); }
  // The end of a free of `bytes` while work is pending. The driver's free would have waited for all of it, so
  // this is the place to make seals and to release surplus memory. Whether this free waited as well.
  bool finish_free(ThreadCache& cache, uint64_t bytes);
  // How much a thread may have freed without a seal before one is due, if the last block had so many bytes.
  uint64_t most_unsealed(uint64_t bytes) const;
  // Takes back a marked block: past the thread caches.
  void take_back_marked(unsigned size_class, const Entry& entry);
  // Takes back a block that is freed in stream order; see StreamFrees.
  void take_back_on(driver::Stream stream, order::Timeline* elsewhere, unsigned size_class,
                    const Entry& entry, uint64_t asked);
  // Looks which streams have come to such a free.
  void give_reached(size_t most = ~size_t{0}) {
    if (frees_.any()) frees_.give_reached(most);
  }

  // ---- Giving memory back.

  // Gives free memory back to the driver until at most `keep` free bytes are left; returns the bytes
  // released. Wholly free segments of the driver's, each of which costs a device synchronisation, and mapped
  // chunks whose work is done, which cost nobody anything.
  uint64_t release_free_segments(uint64_t keep);
  // The same after emptying the threads' caches.
  uint64_t trim(uint64_t keep);
  // After a free: trims to CUPOOL_MAX_CACHED. Whether it waited, as the driver's free of a segment does.
  bool trim_to_limit();
  // Releases all free memory on which no work is pending, and waits for none. What the driver takes back only
  // after a wait stays.
  uint64_t release_done(Segments::From from = Segments::From::kInside);
  // Makes all the room it can with such an effort: empties thread caches, releases tainted and free segments.
  uint64_t release_everything(allocator::Effort effort = allocator::Effort::kAll);
  // The same for a request of another context: waits (kFrees) for frees up to epoch
  // `own`, which the calling thread made, for others a moment, and for nothing else.
  uint64_t release_for_other_context(allocator::Effort effort, order::Epoch own);
  uint64_t release_idle(const allocator::Idle& which);

  // ---- The end of a context.

  // Drops all records; the driver frees the memory itself, but for what is mapped: ended() must follow.
  // `number` rises with every closed pool.
  void close(uint64_t number);
  // The context is gone: unmaps its memory. `gone` false: it lives on, and the program may use its blocks.
  void ended(bool gone);
  // Reuses the closed record for another context of the same device. False: not closed, or another device.
  bool reopen(driver::Context context, int device, order::Timeline& order);

 private:
  bool is_above_budget(uint64_t bytes);

  // First what every call reads: between two calls of ours a program may use all of the processor's caches.
  // The large tables come last.
  Tenancy tenancy_;
  std::atomic<uint64_t> unfinished_{0};  // bytes freed since a free last waited, where reuse is exact
  FreeBlocks blocks_;
  GrowthHistory growth_;
  StreamFrees frees_;
  ThreadCaches caches_;
  SearchMemory search_memory_;
  Segments segments_;
  Inventory inventory_;
  BlockMarks marks_;
};

}  // namespace cupool::pool
