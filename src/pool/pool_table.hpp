// The pools of the process, one per context. The table grows under `lock_` and is read without it. A
// context's end closes its pool; the same handle seen again gets another.
#pragma once

#include <array>
#include <atomic>

#include "base/lock.hpp"
#include "driver/driver.hpp"
#include "driver/source.hpp"
#include "order/timelines.hpp"
#include "pool/peers.hpp"
#include "pool/pool.hpp"

namespace cupool::pool {

class PoolTable {
 public:
  constexpr PoolTable(driver::Driver* driver, driver::Source* source, order::Timelines& order,
                      InFlight& in_flight)
      : driver_(driver), source_(source), order_(order), in_flight_(in_flight) {}

  // The pool of a context, or null.
  Pool* find(driver::Context context);
  // The same, made if there is none; null: the context is ending, has failed, or there is no host memory.
  Pool* open(driver::Context context);
  // Every pool that serves a context.
  template <typename F>
  void for_each(F&& f) {
    for (auto& slot : pools_) {
      Pool* pool = slot.load(std::memory_order_acquire);
      if (pool != nullptr && pool->context() != nullptr) f(*pool);
    }
  }

  // Segments are mapped from now on, where the device can do that; or allocations of the driver again, and
  // what is mapped stays.
  void use_mapped(driver::Mapping* mapping) { mapping_.store(mapping, std::memory_order_release); }
  void stop_mapping();
  // For all pools and those to come.
  void set_max_cached(uint64_t bytes);

  // The context has failed, but the program still holds it.
  void fail(driver::Context context);
  // Before a context ends: no thread enters its pool from now on; whether one is still in it.
  void shut(driver::Context context);
  bool is_in_use(driver::Context context);
  // Its pool drops its memory; after the driver's call it has ended, or lives on.
  void begin_end(driver::Context context, uint64_t ending);
  void ended(uint64_t ending, bool gone);
  void forget_after_fork();

  // Which devices may access the memory of which context.
  Lock& lock() CUPOOL_RETURN_CAPABILITY(lock_) { return lock_; }
  Peers& peers() CUPOOL_REQUIRES(lock_) { return peers_; }

 private:
  static constexpr size_t kMostPools = 256;
  // A thread may still be inside a call on a closed pool and must not find another context's memory there, so
  // the most recently closed pools are not reopened.
  static constexpr size_t kResting = 8;
  static constexpr uint64_t kFromOptions = ~uint64_t{0} - 1;

  // A closed pool of a device that may be reopened: the one closed first.
  Pool* rested_pool_locked(int device) const CUPOOL_REQUIRES(lock_);
  driver::Mapping* mapping_for(int device);
  void let_peers_in_locked(Pool& pool) CUPOOL_REQUIRES(lock_);

  driver::Driver* driver_;
  driver::Source* source_;
  std::atomic<driver::Mapping*> mapping_{nullptr};
  order::Timelines& order_;
  InFlight& in_flight_;
  Lock lock_{Rank::kPools};
  std::array<std::atomic<Pool*>, kMostPools> pools_{};
  std::atomic<uint64_t> max_cached_{kFromOptions};
  Peers peers_ CUPOOL_GUARDED_BY(lock_);
};

}  // namespace cupool::pool
