// Cut memory of the process: one pool per context, one cache per thread and pool. This is the slow path
// behind memory/hot_path.hpp. The table of pools grows under `lock_` and is read without it. A context's end
// closes its pool; the same handle seen again gets another.
#pragma once

#include <array>
#include <atomic>
#include <utility>
#include <vector>

#include "allocator/allocator.hpp"
#include "driver/driver.hpp"
#include "order/timelines.hpp"
#include "pool/pool.hpp"
#include "pool/this_thread.hpp"

namespace cupool::pool {

using allocator::Freed;
using allocator::Waits;

class Pools final : public allocator::Allocator {
 public:
  constexpr Pools(driver::Driver* driver, order::Timelines& order, InFlight& in_flight)
      : driver_(driver), order_(order), in_flight_(in_flight) {}

  Status allocate(driver::Context context, uint64_t bytes, Address* out) override {
    return allocate(context, bytes, out, Short::kMakeRoom);
  }
  Status allocate(driver::Context context, uint64_t bytes, Address* out, Short when_short);
  // The same where the fast path found nothing. pre: the thread's last cache is the context's.
  Status allocate_missed(uint64_t bytes, Address* out, Short when_short = Short::kMakeRoom);
  bool may_take(driver::Context context, uint64_t bytes) override;
  void note_failure(driver::Context context, uint64_t bytes) override;
  Freed free(Address address, Waits waits) override;
  // The rest of a free after the fast path, which left `why`.
  Freed finish_free(Address address, Unkept why, uint64_t asked);
  // A free in stream order; `elsewhere`: the timeline of the stream's context, if it is not the block's.
  Freed free_on(Address address, driver::Stream stream, order::Timeline* elsewhere);
  // Instead of finish_free(): the free is refused and the application still holds the block.
  static void refuse_free(Address address, Unkept why, uint64_t asked);

  bool owns(Address address) override;
  bool find(Address address, Held* out) override;
  bool taint(Address address, uint64_t bytes, Taint reason) override;
  bool device_of(driver::Context context, int* device) override;
  uint64_t trim(uint64_t keep) override;
  uint64_t release_everything(int device, allocator::Effort effort) override;
  uint64_t most_releasable(int device, uint64_t wanted) override;
  uint64_t release_idle(const allocator::Idle& which) override;
  void set_max_cached(uint64_t bytes) override;
  uint64_t releasable_bytes(int device) override;
  uint64_t largest_free(int device, bool wait) override;
  void begin_end(driver::Context context, uint64_t ending) override;
  void ended(uint64_t ending, bool gone) override;

  // Segments are mapped from now on, where the device can do that.
  void use_mapped(driver::Mapping* mapping) { mapping_.store(mapping, std::memory_order_release); }
  // New segments are allocations of the driver again; what is mapped stays.
  void stop_mapping();
  // A context of another device may access the mapped memory of a context, now and in future, or no longer.
  // Returns whether that device may: it has one such context or more.
  struct Guest {
    driver::Context context;
    int device;
  };
  bool set_access(driver::Context owner, const Guest& guest, bool allowed);
  // After ended(): the access of an ended context ends with it. Returns the devices that have lost theirs, by
  // the context that owns the memory.
  using Lost = std::vector<std::pair<driver::Context, int>>;
  Lost end_access(driver::Context context, uint64_t ending, bool gone);

  // Before begin_end(): no thread enters the context's pool from now on; whether one is still in it.
  void shut(driver::Context context);
  bool is_in_use(driver::Context context);
  // The context has failed, but the program still holds it.
  void fail(driver::Context context);

  // The chunk of mapped memory at an address; none: there is none of ours.
  mapped::Part chunk_at(Address address);
  // The devices that have access to a context's memory besides its own.
  std::vector<int> peers_of(driver::Context context);

  // The pool of a context, or null.
  Pool* pool_of(driver::Context context);
  // The calling thread ends: gives up its caches.
  static void end_thread();
  void forget_after_fork();

 private:
  static constexpr size_t kMostPools = 256;
  // A thread may still be inside a call on a closed pool and must not find another context's memory there, so
  // the most recently closed pools are not reopened.
  static constexpr size_t kResting = 8;
  static constexpr uint64_t kFromOptions = ~uint64_t{0} - 1;

  template <typename F>
  void for_each(F&& f) {
    for (auto& slot : pools_) {
      Pool* pool = slot.load(std::memory_order_acquire);
      if (pool != nullptr && pool->context() != nullptr) f(*pool);
    }
  }

  bool visit_mark(Address address, void (*visit)(Mark&, void*), void* data) override;
  Freed free_unkept(Address address, uint64_t asked);
  static void end_free(Pool& pool, ThreadCache& cache, uint64_t bytes);
  // A closed pool of a device that may be reopened: the one closed first.
  Pool* rested_pool_locked(int device) const CUPOOL_REQUIRES(lock_);
  ThreadCache* cache_of(driver::Context context);
  static ThreadCache* find_cache(Pool* pool);
  Pool* open(driver::Context context);

  driver::Mapping* mapping_for(int device);
  void let_peers_in_locked(Pool& pool) CUPOOL_REQUIRES(lock_);

  driver::Driver* driver_;
  std::atomic<driver::Mapping*> mapping_{nullptr};
  order::Timelines& order_;
  InFlight& in_flight_;
  Lock lock_;
  std::array<std::atomic<Pool*>, kMostPools> pools_{};
  std::atomic<uint64_t> max_cached_{kFromOptions};
  // Contexts that have access to another's memory.
  struct Peer {
    driver::Context owner;
    Guest guest;
    uint64_t ending;  // the number of the end of either; 0: both live
  };
  bool apply_access(driver::Context owner, int device);
  bool has_peer_locked(driver::Context owner, int device) const CUPOOL_REQUIRES(lock_);
  std::vector<Peer> peers_ CUPOOL_GUARDED_BY(lock_);
};

}  // namespace cupool::pool
