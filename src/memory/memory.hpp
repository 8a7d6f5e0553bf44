// The front end that hooks call: allocation and free, questions about addresses, and who hears of the end of
// a context. Its parts: the allocators, and which serves (allocators.hpp), what becomes of idle memory
// (idle_memory.hpp), what is tried when memory is short (shortage.hpp). The hot path of allocation and free
// is in hot_path.hpp. Has no lock.
#pragma once

#include "allocator/allocator.hpp"
#include "context/endings.hpp"
#include "context/in_flight.hpp"
#include "driver/driver.hpp"
#include "driver/source.hpp"
#include "mapped/space.hpp"
#include "memory/allocators.hpp"
#include "memory/idle_memory.hpp"
#include "memory/shortage.hpp"
#include "order/timelines.hpp"
#include "pool/pools.hpp"

namespace cupool::memory {

using allocator::BlockInfo;
using allocator::Freed;
using allocator::Mark;
using allocator::Taint;
using allocator::Waits;
using pool::Kept;
using pool::Unkept;

class Memory {
 public:
  // `device_memory`: what blocks are made of, unless another source is named.
  constexpr Memory(driver::Driver* driver, driver::Source* device_memory)
      : driver_(driver),
        device_memory_(device_memory),
        order_(driver),
        allocators_(driver, device_memory, order_, in_flight_),
        ladder_(driver, device_memory, allocators_, idle_, order_, in_flight_) {}

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
  // the address is no such allocation, or not that context's.
  template <typename Call>
  Status free_dedicated(Address address, driver::Context streams, Call&& call) {
    Status status = allocator::kDeclined;
    allocators_.for_each_dedicated([&](DedicatedBlocks& blocks) {
      if (status == allocator::kDeclined && !blocks.source().is_mapped())
        status = blocks.free_by(address, streams, call);
    });
    return status;
  }
  // The same in two steps: unless the thread kept the block, finish_free() must follow with the answers.
  static Unkept free_kept(Address address, uint64_t* asked);
  Freed finish_free(Address address, Unkept why, uint64_t asked);
  // Instead of finish_free(): the free is refused and the application still holds the block.
  static void refuse_free(Address address, Unkept why, uint64_t asked) {
    pool::Pools::refuse_free(address, why, asked);
  }

  // From now on no block is cut from a segment: each is one driver allocation.
  void use_dedicated_allocations() { allocators_.use_dedicated_only(); }
  // The driver's stream-ordered pool: as the first source of blocks, or only when the others run out.
  enum class NativeUse { kFirst, kLast };
  void use_native(NativePool* native, NativeUse use) {
    allocators_.set_native(native, use == NativeUse::kFirst);
  }
  bool serves_native() const { return allocators_.is_native_first(); }
  // Null when it is not in use.
  NativePool* native() const { return allocators_.native(); }

  // The chunk of mapped or spilled memory at an address; no bytes: there is none.
  mapped::Part chunk_at(Address address);
  // A context of another device may access the memory of a context, or no longer; whether that device may.
  bool set_access(driver::Context owner, const pool::Pools::Guest& guest, bool allowed);

  // The block that contains an address; false: not ours, or not live.
  bool find(Address address, BlockInfo* out);
  // Runs `f(Mark&)` for the block that contains an address; false: no live block does.
  template <typename F>
  bool with_mark(Address address, F&& f) {
    return allocators_.any([&](Allocator& one) { return one.with_mark(address, f); });
  }
  // The block that contains an address, or every block in a range of addresses, is not reused.
  bool taint(Address address, Taint reason, uint64_t bytes = 1);
  // Whether an address lies in memory that an allocator of ours got from the driver.
  bool owns(Address address);
  // Whether the address may be another allocation's by now: it lay in memory of a context that is just
  // ending. To be asked before anything else about it.
  bool may_be_gone(Address address);
  // Whether there may be blocks that are not in the page map.
  bool has_dedicated() const { return allocators_.has_dedicated(); }
  // Before a block leaves the process or stream order: the work of its previous life is done when this
  // returns.
  void drain_before_export(Address address);

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

  // The timelines of all contexts in which we have memory.
  order::Timelines& order() { return order_; }
  driver::Driver& driver() { return *driver_; }
  context::InFlight& in_flight() { return in_flight_; }
  pool::Pools& pools() { return allocators_.pools(); }
  // Runs `f(allocator)` for each: pools, dedicated blocks, the driver's pool.
  template <typename F>
  void for_each_allocator(F&& f) {
    f(allocators_.pools());
    allocators_.for_each_dedicated(f);
    if (NativePool* const one = allocators_.native()) f(*one);
  }
  IdleMemory& idle() { return idle_; }
  ShortageLadder& shortage() { return ladder_; }

  void forget_after_fork();

 private:
  // All that have something of a context; the timelines are told first.
  template <typename F>
  void for_each_resident(F&& f) {
    f(static_cast<context::Resident&>(order_));
    allocators_.for_each(f);
  }

  Freed free_elsewhere(Address address, Waits waits);
  Status allocate_from_driver(driver::Source& source, uint64_t bytes, Address* out);
  Status finish_allocation(Allocator& first, driver::Source& source, driver::Context context, uint64_t bytes,
                           Address* out, Status status);

  driver::Driver* driver_;
  driver::Source* device_memory_;
  order::Timelines order_;
  context::InFlight in_flight_;
  context::Endings endings_{in_flight_};
  Allocators allocators_;
  IdleMemory idle_{allocators_, order_};
  ShortageLadder ladder_;
};

}  // namespace cupool::memory
