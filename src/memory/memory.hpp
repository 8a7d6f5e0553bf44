// The front end that hooks call: chooses the allocator that serves a block, makes room when memory is short,
// and says who hears of the end of a context. The hot path of allocation and free is in hot_path.hpp. Holds
// no lock across a call of the driver.
#pragma once

#include <array>
#include <atomic>

#include "allocator/allocator.hpp"
#include "context/endings.hpp"
#include "context/in_flight.hpp"
#include "dedicated/dedicated_blocks.hpp"
#include "driver/driver.hpp"
#include "driver/source.hpp"
#include "mapped/spill.hpp"
#include "native/native_pool.hpp"
#include "order/timelines.hpp"
#include "pool/pools.hpp"

namespace cupool::memory {

using allocator::Address;
using allocator::BlockInfo;
using allocator::Freed;
using allocator::kEveryDevice;
using allocator::Mark;
using allocator::Short;
using allocator::Status;
using allocator::Taint;
using allocator::Waits;
using native::NativePool;
using pool::Kept;
using pool::Unkept;

class Memory {
 public:
  // `device_memory`: what blocks are made of, unless another source is named.
  constexpr Memory(driver::Driver* driver, driver::Source* device_memory)
      : driver_(driver),
        device_memory_(device_memory),
        order_(driver),
        pools_(driver, device_memory, order_, in_flight_) {}

  // Allocates `bytes` > 0 in `context`, which is the current one; returns the driver's status.
  Status allocate(driver::Context context, uint64_t bytes, Address* out);
  // The same in two steps: the fast path takes a block that this thread keeps; unless it did, allocate_slow()
  // must follow with its answer. `out` is an address.
  template <typename Word>
  static Kept allocate_kept(driver::Context context, uint64_t bytes, Word* out);
  Status allocate_slow(driver::Context context, uint64_t bytes, Address* out, Kept kept = Kept::kUnknown);
  // Memory from a source other than the device's own, or device memory that is not cut.
  Status allocate_dedicated(driver::Context context, driver::Source& source, uint64_t bytes, Address* out);

  Freed free(Address address);
  // A free in stream order, if free_dedicated() has declined it. `elsewhere`: the timeline of the stream's
  // context, if it is not the block's.
  Freed free_on(Address address, driver::Stream stream, order::Timeline* elsewhere);
  // An allocation of the driver's: `call` frees it, on a stream of context `streams`. Its answer; kDeclined:
  // it is none, or not that context's.
  template <typename Call>
  Status free_dedicated(Address address, driver::Context streams, Call&& call) {
    for (auto& slot : dedicated_) {
      dedicated::DedicatedBlocks* const blocks = slot.load(std::memory_order_acquire);
      const Status status = blocks == nullptr || blocks->source().is_mapped()
                                ? allocator::kDeclined
                                : blocks->free_by(address, streams, call);
      if (status != allocator::kDeclined) return status;
    }
    return allocator::kDeclined;
  }
  // The same in two steps: unless the thread kept the block, finish_free() must follow with the answers.
  static Unkept free_kept(Address address, uint64_t* asked);
  Freed finish_free(Address address, Unkept why, uint64_t asked);
  // Instead of finish_free(): the free is refused and the application still holds the block.
  static void refuse_free(Address address, Unkept why, uint64_t asked) {
    pool::Pools::refuse_free(address, why, asked);
  }

  // From now on no block is cut from a segment: each is one driver allocation.
  void use_dedicated_allocations() { dedicated_only_.store(true, std::memory_order_relaxed); }
  // The driver's stream-ordered pool: as the first source of blocks, or only when the others run out.
  enum class NativeUse { kFirst, kLast };
  void use_native(NativePool* native, NativeUse use);
  bool serves_native() const { return native_first_.load(std::memory_order_relaxed); }
  // Null when it is not in use.
  NativePool* native() const { return native_.load(std::memory_order_acquire); }

  // Where blocks go when a device has no memory left.
  void use_spill(mapped::Spill* source) { spill_.store(source, std::memory_order_release); }
  // The chunk of mapped or spilled memory at an address; no bytes: there is none.
  mapped::Part chunk_at(Address address);
  // A context of another device may access the memory of a context, or no longer; whether that device may.
  bool set_access(driver::Context owner, const pool::Pools::Guest& guest, bool allowed);

  // The block that contains an address; false: not ours, or not live.
  bool find(Address address, BlockInfo* out);
  // Runs `f(Mark&)` for the block that contains an address; false: no live block does.
  template <typename F>
  bool with_mark(Address address, F&& f) {
    return any([&](allocator::Allocator& one) { return one.with_mark(address, f); });
  }
  // The block that contains an address, or every block in a range of addresses, is not reused.
  bool taint(Address address, Taint reason, uint64_t bytes = 1);
  // Whether an address lies in memory that an allocator of ours got from the driver.
  bool owns(Address address);
  // Whether the address may be another allocation's by now: it lay in memory of a context that is just
  // ending. To be asked before anything else about it.
  bool may_be_gone(Address address);
  // Whether there may be blocks that are not in the page map.
  bool has_dedicated() const { return dedicated_[0].load(std::memory_order_relaxed) != nullptr; }
  // Before a block leaves the process or stream order: the work of its previous life is done when this
  // returns.
  void settle(Address address);

  // Before a context ends: drops its memory; until closed(), allocations of other threads in it go to the
  // driver. Returns the `ending` to pass to closed() after the driver's call; `gone` false: the driver
  // refused, and the context lives on.
  uint64_t begin_end(driver::Context context);
  // Returns the devices that thereby lose access to memory of other contexts.
  pool::Pools::Lost closed(driver::Context context, uint64_t ending, bool gone);
  // The same for a context that has ended already, or is part of another.
  void close(driver::Context context);
  // The context has failed, but the program still holds it: from now on the driver handles all its memory.
  void fail(driver::Context context);
  // The device of a context in which we have memory; false: we have none.
  bool device_of(driver::Context context, int* device);

  // The driver has refused a call of the program's for want of memory of a device: releases what is idle
  // there, as far as the effort goes. With kAll it also waits for other threads that release, and asks other
  // processes. False: nothing has changed; asking the driver again is of no use.
  bool release_for_call(int device, allocator::Effort effort, uint64_t bytes = 0);
  // How other processes are asked for idle memory of a device; true: some came back.
  void set_neighbours(bool (*ask)(int device, uint64_t bytes)) {
    ask_neighbours_.store(ask, std::memory_order_release);
  }
  // Releases everything idle that such an effort reaches, because memory is needed elsewhere. Returns the
  // bytes released.
  uint64_t release_everything(int device = kEveryDevice, allocator::Effort effort = allocator::Effort::kAll);
  // How many bytes that would free on a device.
  uint64_t releasable_bytes(int device);
  // Keeps at most `keep` free bytes of each kind in each context; returns the bytes released.
  uint64_t trim(uint64_t keep);
  // Overrides CUPOOL_MAX_CACHED, for future contexts too.
  void set_max_cached(uint64_t bytes);
  // The program has just waited for all its work: a good moment to release memory unused for CUPOOL_DECAY_MS.
  void decay();
  // The same, called now and then by a thread of ours, for a program that makes no call any more.
  void decay_quiet();
  // Releases what it can of a device without making anybody wait, because another process needs `bytes`;
  // returns the bytes released.
  uint64_t release_for_others(int device, uint64_t bytes);
  // Idle managed memory may occupy an unknown part of the device: before a question about free memory, keep
  // little of it.
  void release_idle_managed(driver::Context context);
  // The largest free range or block of a device; 0 when the lock is taken (with `wait`: for more than a
  // moment).
  uint64_t largest_free(int device, bool wait);

  order::Timelines& order() { return order_; }
  // The timeline of a context's memory; null: it has none.
  order::Timeline* timeline_of(driver::Context context) { return order_.find(context); }
  driver::Driver& driver() { return *driver_; }
  context::InFlight& in_flight() { return in_flight_; }
  pool::Pools& pools() { return pools_; }

  void forget_after_fork();

 private:
  // Device memory that is not cut, managed memory by how it is attached, and what spilled.
  static constexpr size_t kMostDedicated = 5;
  static constexpr uint64_t kFromOptions = ~uint64_t{0} - 1;

  template <typename F>
  void for_each(F&& f) {
    f(static_cast<allocator::Allocator&>(pools_));
    for (auto& slot : dedicated_) {
      if (dedicated::DedicatedBlocks* const blocks = slot.load(std::memory_order_acquire)) f(*blocks);
    }
    if (NativePool* const one = native()) f(*one);
  }
  // All that have something of a context; the timelines are told first.
  template <typename F>
  void for_each_resident(F&& f) {
    f(static_cast<context::Resident&>(order_));
    for_each(f);
  }
  // Whether `f` returns true for an allocator; stops at the first.
  template <typename F>
  bool any(F&& f) {
    bool found = false;
    for_each([&](allocator::Allocator& one) { found = found || f(one); });
    return found;
  }

  bool may_have(int device, uint64_t bytes);
  Freed free_elsewhere(Address address, Waits waits);
  bool release_here(int device, uint64_t bytes, allocator::Effort effort = allocator::Effort::kAll);
  static bool catch_up_on_returns();
  bool ask_others(int device, uint64_t bytes);
  uint64_t release_idle(const allocator::Idle& which);
  dedicated::DedicatedBlocks* find_dedicated(const driver::Source& source);
  dedicated::DedicatedBlocks* dedicated_of(driver::Source& source);
  Status allocate_from_driver(driver::Source& source, uint64_t bytes, Address* out);
  Status allocate_when_short(allocator::Allocator& first, driver::Source& source, driver::Context context,
                             uint64_t bytes, Address* out);
  bool allocate_at_once(mapped::Spill& spill, driver::Context context, uint64_t bytes, Address* out);
  Status allocate_spilled(driver::Context context, uint64_t bytes, int device, Address* out);
  void forget_stale(const dedicated::DedicatedBlocks& owner, Address start, uint64_t bytes);
  Status finish_allocation(allocator::Allocator& first, driver::Source& source, driver::Context context,
                           uint64_t bytes, Address* out, Status status);

  driver::Driver* driver_;
  driver::Source* device_memory_;
  order::Timelines order_;
  context::InFlight in_flight_;
  context::Endings endings_{in_flight_};
  pool::Pools pools_;
  Lock lock_{Rank::kMemory};
  std::atomic<bool> dedicated_only_{false};
  std::atomic<bool> native_first_{false};
  std::atomic<NativePool*> native_{nullptr};
  std::atomic<mapped::Spill*> spill_{nullptr};
  // Each is made for its first block, in this order, and never destroyed.
  std::array<std::atomic<dedicated::DedicatedBlocks*>, kMostDedicated> dedicated_{};
  std::atomic<uint64_t> max_cached_{kFromOptions};
  std::atomic<uint64_t> decayed_at_{0};  // milliseconds
  std::atomic<bool (*)(int, uint64_t)> ask_neighbours_{nullptr};
};

}  // namespace cupool::memory
