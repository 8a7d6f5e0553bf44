// The allocators of the process, and which of them serves first: the pools of cut memory, dedicated blocks of
// each source, the driver's own pool. Read without a lock; `lock_` is held only while a DedicatedBlocks is
// made. Does not decide what is tried when one of them has no memory: shortage.hpp does.
#pragma once

#include <array>
#include <atomic>

#include "allocator/allocator.hpp"
#include "base/lock.hpp"
#include "context/in_flight.hpp"
#include "dedicated/dedicated_blocks.hpp"
#include "driver/driver.hpp"
#include "driver/source.hpp"
#include "native/native_pool.hpp"
#include "order/timelines.hpp"
#include "pool/pools.hpp"

namespace cupool::memory {

using allocator::Address;
using allocator::Allocator;
using allocator::Status;
using dedicated::DedicatedBlocks;
using native::NativePool;

class Allocators {
 public:
  constexpr Allocators(driver::Driver* driver, driver::Source* device_memory, order::Timelines& order,
                       context::InFlight& in_flight)
      : driver_(driver),
        order_(order),
        in_flight_(in_flight),
        pools_(driver, device_memory, order, in_flight) {}

  pool::Pools& pools() { return pools_; }
  // The driver's stream-ordered pool; null: it is not in use.
  NativePool* native() const { return native_.load(std::memory_order_acquire); }
  void set_native(NativePool* native, bool is_first) {
    native_.store(native, std::memory_order_release);
    native_first_.store(native != nullptr && is_first, std::memory_order_relaxed);
  }
  // The dedicated blocks of a source; null: there are none yet.
  DedicatedBlocks* find_dedicated(const driver::Source& source);
  // The same, made if there are none. Null: no host memory, or too many sources.
  DedicatedBlocks* dedicated_of(driver::Source& source);
  // Whether there may be blocks that are not in the page map.
  bool has_dedicated() const { return dedicated_[0].load(std::memory_order_relaxed) != nullptr; }

  // Which serves an allocation of device memory first: the driver's pool, else dedicated blocks, else pools.
  bool is_native_first() const { return native_first_.load(std::memory_order_relaxed); }
  void stop_native_first() { native_first_.store(false, std::memory_order_relaxed); }
  bool is_dedicated_only() const { return dedicated_only_.load(std::memory_order_relaxed); }
  void use_dedicated_only() { dedicated_only_.store(true, std::memory_order_relaxed); }

  // A block of `owner` has come from its source. If another source still records this address, its context
  // ended without our noticing.
  void forget_stale(const DedicatedBlocks& owner, Address start, uint64_t bytes);
  // Overrides CUPOOL_MAX_CACHED, for future contexts and sources too.
  void set_max_cached(uint64_t bytes);

  template <typename F>
  void for_each(F&& f) {
    f(static_cast<Allocator&>(pools_));
    for_each_dedicated(f);
    if (NativePool* const one = native()) f(static_cast<Allocator&>(*one));
  }
  template <typename F>
  void for_each_dedicated(F&& f) {
    for (auto& slot : dedicated_) {
      if (DedicatedBlocks* const blocks = slot.load(std::memory_order_acquire)) f(*blocks);
    }
  }
  // Whether `f` returns true for an allocator; stops at the first.
  template <typename F>
  bool any(F&& f) {
    bool found = false;
    for_each([&](Allocator& one) { found = found || f(one); });
    return found;
  }

  void forget_after_fork();

 private:
  // Device memory that is not cut, managed memory by how it is attached, and what spilled.
  static constexpr size_t kMostDedicated = 5;
  static constexpr uint64_t kFromOptions = ~uint64_t{0} - 1;

  driver::Driver* driver_;
  order::Timelines& order_;
  context::InFlight& in_flight_;
  pool::Pools pools_;
  Lock lock_{Rank::kMemory};
  std::atomic<bool> dedicated_only_{false};
  std::atomic<bool> native_first_{false};
  std::atomic<NativePool*> native_{nullptr};
  // Each is made for its first block, in this order, and never destroyed.
  std::array<std::atomic<DedicatedBlocks*>, kMostDedicated> dedicated_{};
  std::atomic<uint64_t> max_cached_{kFromOptions};
};

}  // namespace cupool::memory
