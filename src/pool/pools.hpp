// Cut memory of the process: one pool per context (pool_table.hpp), one cache per thread and pool
// (this_thread.hpp). This is the slow path behind memory/hot_path.hpp, and the allocator of memory/. Has no
// lock of its own.
#pragma once

#include <vector>

#include "allocator/allocator.hpp"
#include "driver/driver.hpp"
#include "driver/source.hpp"
#include "order/timelines.hpp"
#include "pool/peers.hpp"
#include "pool/pool_table.hpp"
#include "pool/this_thread.hpp"

namespace cupool::pool {

using allocator::Freed;
using allocator::Waits;

class Pools final : public allocator::Allocator {
 public:
  constexpr Pools(driver::Driver* driver, driver::Source* source, order::Timelines& order,
                  InFlight& in_flight)
      : in_flight_(in_flight), table_(driver, source, order, in_flight) {}

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
  bool find(Address address, BlockInfo* out) override;
  bool taint(Address address, uint64_t bytes, Taint reason) override;
  bool device_of(driver::Context context, int* device) override;
  uint64_t trim(uint64_t keep) override;
  uint64_t release_everything(int device, allocator::Effort effort, driver::Context asking) override;
  uint64_t most_releasable(int device, uint64_t wanted) override;
  uint64_t release_idle(const allocator::Idle& which) override;
  void set_max_cached(uint64_t bytes) override { table_.set_max_cached(bytes); }
  uint64_t releasable_bytes(int device) override;
  uint64_t largest_free(int device, bool wait) override;
  void shut(driver::Context context) override { table_.shut(context); }
  bool is_in_use(driver::Context context) override { return table_.is_in_use(context); }
  void begin_end(driver::Context context, uint64_t ending) override { table_.begin_end(context, ending); }
  void ended(uint64_t ending, bool gone) override { table_.ended(ending, gone); }

  // Segments are mapped from now on, where the device can do that.
  void use_mapped(driver::Mapping* mapping) { table_.use_mapped(mapping); }
  // New segments are allocations of the driver again; what is mapped stays.
  void stop_mapping() { table_.stop_mapping(); }
  // A context of another device may access the mapped memory of a context, now and in future, or no longer.
  // Returns whether that device may: it has one such context or more.
  using Guest = Peers::Guest;
  bool set_access(driver::Context owner, const Guest& guest, bool allowed);
  // After ended(): the access of an ended context ends with it. Returns the devices that have lost theirs, by
  // the context that owns the memory.
  using Lost = Peers::Lost;
  Lost end_access(driver::Context context, uint64_t ending, bool gone);

  // The context has failed, but the program still holds it.
  void fail(driver::Context context) { table_.fail(context); }

  // The chunk of mapped memory at an address; none: there is none of ours.
  mapped::Part chunk_at(Address address);
  // The devices that have access to a context's memory besides its own.
  std::vector<int> peers_of(driver::Context context);

  // The pool of a context, or null.
  Pool* pool_of(driver::Context context) { return table_.find(context); }
  void forget_after_fork();

 private:
  void visit_live(allocator::VisitLive visit, void* data) override;
  bool visit_mark(Address address, void (*visit)(Mark&, void*), void* data) override;
  Freed free_unkept(Address address, uint64_t asked);
  static void end_free(Pool& pool, ThreadCache& cache, uint64_t bytes);
  bool apply_access(driver::Context owner, int device);

  InFlight& in_flight_;
  PoolTable table_;
};

}  // namespace cupool::pool
