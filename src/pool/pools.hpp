// The process's memory: one timeline, one pool per context, one cache per thread and pool. What hooks call. The hot path of
// an allocation and of a free is in pools.cpp, a page long. A context that ends takes its pool out of the table; the same
// handle seen again gets a new pool.
#pragma once

#include <atomic>

#include "driver/driver.hpp"
#include "order/timeline.hpp"
#include "pool/pool.hpp"

namespace cupool::pool {

// What free() found. kNotOurs: the driver's own memory, ask the driver. kNobodys: inside our memory, but not a block
// that the application holds (freed twice, or not where it starts).
enum class Freed { kDone, kNotOurs, kNobodys };

class Pools {
 public:
  constexpr explicit Pools(driver::Driver* driver) : driver_(driver), order_(driver) {}

  // `bytes` > 0 in the current context, which is `context`. The driver's status.
  Status allocate(driver::Context context, uint64_t bytes, Address* out);
  Freed free(Address address);

  // The block that holds an address; false: not ours, or held by nobody.
  bool find(Address address, Pool::Held* out) const;
  // Whether an address lies in memory that the pool got from the driver.
  static bool owns(Address address);

  // Before a context goes away.
  void close(driver::Context context);
  // The context is of no use any more, but the program still holds it: all its memory is the driver's business from now on.
  void fail(driver::Context context);
  // The pool of a context, or null.
  Pool* pool_of(driver::Context context);
  // Gives back all that can be: somebody else needs the memory. How many bytes went back.
  uint64_t release_everything();
  // What the driver would have more of after that, for the current context's device.
  uint64_t releasable_bytes(driver::Context context);

  order::Timeline& order() { return order_; }
  driver::Driver& driver() { return *driver_; }

  // The calling thread ends: what it kept goes back.
  static void end_thread();
  void forget_after_fork();

  template <typename F>
  void for_each(F&& f) {
    for (auto& slot : pools_) {
      Pool* pool = slot.load(std::memory_order_acquire);
      if (pool != nullptr && pool->context() != nullptr) f(*pool);
    }
  }

 private:
  static constexpr size_t kMostPools = 256;

  ThreadCache* cache_of(driver::Context context);
  ThreadCache* find_cache(Pool* pool);
  Pool* open(driver::Context context);

  driver::Driver* driver_;
  order::Timeline order_;
  Lock lock_;
  std::array<std::atomic<Pool*>, kMostPools> pools_{};
  std::vector<driver::Context> failed_ CUPOOL_GUARDED_BY(lock_);
};

}  // namespace cupool::pool
