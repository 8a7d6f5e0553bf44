// The driver's own stream-ordered pool as a source of blocks for programs that name no stream: one private
// pool and two private streams per context. A block is allocated on one stream and made visible to all later
// work by a context event; a free is ordered after all earlier work by another and made on the second stream,
// so an allocation never waits for the work before a free. The host never waits. What it keeps of pools and
// blocks is in the ledger; it holds no lock of its own.
#pragma once

#include <cstdint>

#include "allocator/allocator.hpp"
#include "context/in_flight.hpp"
#include "driver/driver.hpp"
#include "driver/native_driver.hpp"
#include "driver/source.hpp"
#include "native/context_pool.hpp"
#include "native/ledger.hpp"
#include "order/timelines.hpp"

namespace cupool::native {

using allocator::BlockInfo;
using allocator::Freed;
using allocator::Mark;
using allocator::Status;
using allocator::Taint;
using allocator::Waits;
using context::InFlight;

class NativePool final : public allocator::Allocator {
 public:
  NativePool(driver::Driver& driver, driver::Source& device_memory, driver::NativeDriver& native,
             order::Timelines& order, InFlight& in_flight)
      : driver_(driver),
        device_memory_(device_memory),
        native_(native),
        order_(order),
        in_flight_(in_flight) {}

  // kNotSupported: this driver has no such pools; logged once.
  Status allocate(driver::Context context, uint64_t bytes, Address* out) override;
  // Creates the streams and pool of `context`, the current one, before its first allocation: while a
  // destroyed stream still has work, the driver makes the creation of another wait for it.
  void prepare(driver::Context context) {
    const InFlight::Call call(in_flight_, context, InFlight::Kind::kUse);
    if (call.is_open()) open(context);
  }
  bool may_take(driver::Context, uint64_t) override { return true; }
  void note_failure(driver::Context context, uint64_t bytes) override;
  Freed free(Address address, Waits waits) override;
  // A free in the order of `stream`. False: not a block of this pool.
  bool free_on(Address address, driver::Stream stream);

  // The driver answers every query about these blocks: they are its own allocations.
  bool owns(Address) override { return false; }
  bool find(Address, BlockInfo*) override { return false; }
  bool taint(Address, uint64_t, Taint) override { return false; }
  bool device_of(driver::Context, int*) override { return false; }
  // Whether a live block starts at an address.
  bool has_block(Address address) { return ledger_.pool_of(address) != nullptr; }

  uint64_t trim(uint64_t keep) override { return trim(keep, allocator::kEveryDevice, nullptr); }
  // (It waits for what frees would have waited for, and for no more.)
  uint64_t release_everything(int device, allocator::Effort effort, driver::Context asking) override {
    return effort == allocator::Effort::kDone ? 0 : trim(0, device, asking);
  }
  uint64_t most_releasable(int device, uint64_t wanted) override;
  uint64_t release_idle(const allocator::Idle& which) override;
  void set_max_cached(uint64_t) override {}
  uint64_t releasable_bytes(int) override { return 0; }
  uint64_t largest_free(int, bool) override { return 0; }
  // From now on the context's handle is unknown here, but its memory stays until ended().
  void begin_end(driver::Context context, uint64_t ending) override;
  void ended(uint64_t ending, bool gone) override;

  // Whether the locks become free within a moment: not if a signal handler interrupted their holder on this
  // thread.
  bool can_be_asked() { return in_flight_.can_be_asked() && ledger_.can_be_asked(); }
  // Sum over all contexts of a device.
  driver::NativeUsage usage(int device);
  void reset_peaks();

  // ---- Sharing with another process.

  Status export_pool(driver::Context context, int* descriptor);
  Status import_pool(int descriptor, driver::MemoryPool* out);
  Status export_pointer(Address address, void* data);
  Status import_pointer(driver::MemoryPool pool, const void* data, Address* out);

 private:
  ContextPool* open(driver::Context context);
  void visit_live(allocator::VisitLive visit, void* data) override { ledger_.visit_live(visit, data); }
  bool visit_mark(Address, void (*)(Mark&, void*), void*) override { return false; }
  // Runs `f(ContextPool&, is_open)` for each. Open: its context does not end meanwhile. Else it is ending or
  // has failed, and the driver must not be called.
  template <typename F>
  void for_each_pool(F&& f);
  uint64_t trim(uint64_t keep, int device, driver::Context asking);
  void wait_for_frees(ContextPool& pool, driver::Context asking);
  Status allocate_from_driver(ContextPool& pool, uint64_t bytes, Address* out);
  Status allocate_visible(ContextPool& pool, uint64_t bytes, Address* out);
  void free_ordered(ContextPool& pool, Address address);
  void free_or_defer(ContextPool& pool, Address address, bool is_open);
  void free_deferred();
  void keep_peaks(const ContextPool& pool);
  void retire(const ContextPool& pool);
  void free_orphans(ContextPool& pool);

  driver::Driver& driver_;
  driver::Source& device_memory_;  // where the pool cannot serve
  driver::NativeDriver& native_;
  order::Timelines& order_;
  InFlight& in_flight_;
  Ledger ledger_;
};

}  // namespace cupool::native
