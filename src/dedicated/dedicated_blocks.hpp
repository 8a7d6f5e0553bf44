// Dedicated blocks of one source, each an allocation of the driver, cached and never cut: managed memory,
// where advice on one block's pages must not affect a neighbour, all device memory with CUPOOL_SPLIT=no, and
// what spills to host memory. A block is one driver allocation, reused in its context: managed and spilled
// memory for requests up to an eighth smaller, device memory for the same size alone, so that handles,
// address ranges and the checks of debugging tools stay exact. Its parts: the records of blocks, with the one
// lock of all parts (block_table.hpp), which of them are kept (admission.hpp), what a context's memory is
// besides (account.hpp), frees that wait for another context (pending_frees.hpp), and how idle blocks go back
// to the driver (releases.hpp). The lock is never held across a call of the driver.
#pragma once

#include <atomic>
#include <map>

#include "allocator/allocator.hpp"
#include "context/in_flight.hpp"
#include "dedicated/account.hpp"
#include "dedicated/block_table.hpp"
#include "dedicated/pending_frees.hpp"
#include "dedicated/releases.hpp"
#include "driver/driver.hpp"
#include "driver/source.hpp"
#include "order/timelines.hpp"
#include "stats/device.hpp"

namespace cupool::dedicated {

using allocator::BlockInfo;
using allocator::Freed;
using allocator::Status;
using allocator::Taint;
using allocator::Waits;

class DedicatedBlocks final : public allocator::Allocator {
 public:
  DedicatedBlocks(driver::Driver& driver, driver::Source& source, order::Timelines& order,
                  InFlight& in_flight)
      : driver_(driver),
        source_(source),
        order_(order),
        in_flight_(in_flight),
        accounts_(driver, source, order, table_),
        pending_(order, in_flight, table_),
        releases_(source, order, in_flight, table_, pending_) {}

  const driver::Source& source() const { return source_; }
  bool is_host_visible() const { return source_.is_host_visible(); }
  bool is_on_device() const { return source_.is_on_device(); }

  Status allocate(driver::Context context, uint64_t bytes, Address* out) override {
    return allocate(context, bytes, out, allocator::Short::kMakeRoom);
  }
  Status allocate(driver::Context context, uint64_t bytes, Address* out, allocator::Short when_short);
  // Whether a block of this size lies idle.
  bool has_idle(driver::Context context, uint64_t bytes) CUPOOL_EXCLUDES(table_.lock());
  // An idle block of this size, if one may be handed out now: nothing is released or waited for.
  bool take_done(driver::Context context, uint64_t bytes, Address* out);
  bool may_take(driver::Context context, uint64_t bytes) override;
  void note_failure(driver::Context context, uint64_t bytes) override;
  Freed free(Address address, Waits waits) override;
  // The same by a call of the driver's, which `call` makes in the order of a stream of context `streams`: its
  // answer. kDeclined: no live block starts there, or it belongs to another context.
  template <typename Call>
  Status free_by(Address start, driver::Context streams, Call&& call) {
    if (!is_host_visible() && context_at(start) != streams) return allocator::kDeclined;
    const InFlight::Call use(in_flight_, context_at(start), InFlight::Kind::kUse);
    Block block;
    if (!use.is_open() || !take_out(start, &block)) return allocator::kDeclined;
    const Status status = call();
    end_free_by(start, block, status == driver::kSuccess);
    return status;
  }
  // A free in the order of a stream of another context, whose timeline is `elsewhere`: the block is idle when
  // all work there is done.
  Freed free_after(Address address, order::Timeline& elsewhere);
  bool owns(Address address) override;
  // Whose memory it is; null: not ours.
  driver::Context context_at(Address address) CUPOOL_EXCLUDES(table_.lock());
  bool find(Address address, BlockInfo* out) override;
  bool taint(Address address, uint64_t bytes, Taint reason) override;
  bool device_of(driver::Context context, int* device) override;
  uint64_t trim(uint64_t keep) override;
  uint64_t release_everything(int device, allocator::Effort effort, driver::Context asking) override {
    return releases_.release_everything(device, effort, asking);
  }
  uint64_t most_releasable(int device, uint64_t wanted) override;
  uint64_t release_idle(const allocator::Idle& which) override;
  void set_max_cached(uint64_t bytes) override { max_cached_.store(bytes, std::memory_order_relaxed); }
  uint64_t releasable_bytes(int device) override;
  uint64_t largest_free(int device, bool wait) override;
  void begin_end(driver::Context context, uint64_t ending) override;
  void ended(uint64_t ending, bool gone) override;

  // The driver has reused these addresses: drops the stale entries.
  void forget(Address start, uint64_t bytes) {
    Guard hold(table_.lock());
    forget_range(start, bytes);
  }
  // Releases idle blocks of a context until at most `keep` bytes are left, as long as nothing is pending
  // there: nobody waits. Returns the bytes released.
  uint64_t release_idle_of(driver::Context context, uint64_t keep);

 private:
  static constexpr uint64_t kFromOptions = ~uint64_t{0} - 1;

  void visit_live(allocator::VisitLive visit, void* data) override;
  bool visit_mark(Address address, void (*visit)(Mark&, void*), void* data) override;
  bool take(Account& account, uint64_t bytes, order::Reach reach, stats::DeviceCounter how, Address* out);
  bool take_when_short(Account& account, uint64_t bytes, Address* out);
  bool take_after_wait(Account& account, uint64_t bytes, Address* out);
  void make_way(Account& account, uint64_t bytes);
  Status allocate_from_driver(Account& account, uint64_t bytes, Address* out, bool* is_asked);
  bool has_idle(const Account& account, uint64_t bytes) CUPOOL_EXCLUDES(table_.lock());
  // Out of all records before the driver has it, whose next block may start there; and back if it refused.
  bool take_out(Address start, Block* out);
  void end_free_by(Address start, const Block& block, bool is_gone);
  // The driver has taken this memory back by itself: drops a record of it, or all records in a range.
  void forget_block(Address start) CUPOOL_REQUIRES(table_.lock());
  void forget_range(Address start, uint64_t bytes) CUPOOL_REQUIRES(table_.lock());

  driver::Driver& driver_;
  driver::Source& source_;
  order::Timelines& order_;
  InFlight& in_flight_;
  BlockTable table_;
  Accounts accounts_;
  PendingFrees pending_;
  Releases releases_;
  // Blocks of ending contexts that do not end with them, by the number of the end.
  std::multimap<uint64_t, Address> left_ CUPOOL_GUARDED_BY(table_.lock());
  std::atomic<uint64_t> max_cached_{kFromOptions};
};

}  // namespace cupool::dedicated
