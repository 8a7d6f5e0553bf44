// What a context's dedicated memory is besides its records (block_table.hpp): its timeline, the way to the
// driver, the user's settings and the counters of its device. An account lasts until its context ends: who
// uses one without the table's lock has a call in flight there.
#pragma once

#include <map>

#include "allocator/settings.hpp"
#include "dedicated/block_table.hpp"
#include "driver/driver.hpp"
#include "driver/source.hpp"
#include "order/timelines.hpp"
#include "stats/device.hpp"
#include "stats/service.hpp"
#include "upstream/upstream.hpp"

namespace cupool::dedicated {

struct Account final : Holdings {
  Account(driver::Context owner, driver::Source& source, int device_number, uint64_t device_total,
          order::Timeline& timeline)
      : Holdings(owner, device_number),
        order(timeline),
        device_bytes(device_total),
        settings(allocator::Settings::from(config::options(), device_total)),
        upstream(source, device_number, settings.limit) {}
  // All holdings are accounts' but those of unit tests of the table.
  static Account& of(Holdings& holdings) { return static_cast<Account&>(holdings); }
  static Account& of(const Block& block) { return of(*block.owner); }

  // The largest block that may serve a request.
  uint64_t largest_for(uint64_t bytes) const {
    return upstream.source().is_on_device() ? bytes : bytes + bytes / 8;
  }
  // The newest stamp that may be handed out. Memory the host may touch needs completed work; while no work is
  // pending, all of it is.
  Epoch limit(order::Reach reach) const {
    return upstream.source().is_host_visible() && !order.is_idle() ? order.completed() : order.limit(reach);
  }
  bool is_done(const Block& block) const { return block.stamp <= order.done(); }

  // Counts a live block that was handed out, was freed, or is gone with its context.
  void count_given(const Block& block, stats::DeviceCounter how) const {
    note_service(how);
    if (tally == nullptr) return;
    tally->add(how);
    if (how == stats::DeviceCounter::misses) tally->add(stats::DeviceCounter::first_uses);
    tally->give(block.asked, block.bytes);
  }
  void note_service(stats::DeviceCounter how) const {
    using enum stats::DeviceCounter;
    using Service = stats::Service;
    const driver::Source& source = upstream.source();
    stats::last_service = {how == misses            ? Service::How::kMiss
                           : how == hits_after_wait ? Service::How::kAfterWait
                                                    : Service::How::kRange,
                           source.is_host_visible() ? Service::By::kManaged
                           : source.is_on_device()  ? Service::By::kWhole
                                                    : Service::By::kSpilled};
  }
  void count_freed(const Block& block) const;
  void count_dropped(const Block& block) const {
    if (tally != nullptr) tally->drop(block.asked, block.bytes);
  }

  order::Timeline& order;
  const uint64_t device_bytes;
  const allocator::Settings settings;
  upstream::Upstream upstream;
  stats::ThreadTally* tally = nullptr;  // of its device; null for memory that the host may touch
};

// The accounts of one source.
class Accounts {
 public:
  Accounts(driver::Driver& driver, driver::Source& source, order::Timelines& order, BlockTable& table)
      : driver_(driver), source_(source), order_(order), table_(table) {}

  // Null: there is none.
  Account* find(driver::Context context) CUPOOL_EXCLUDES(table_.lock());
  // The account of the current context, made if there is none. Null: the driver does not name the device.
  Account* open(driver::Context context) CUPOOL_EXCLUDES(table_.lock());
  // The context ends. pre: its blocks are out of the table.
  void close(driver::Context context) CUPOOL_EXCLUDES(table_.lock());

 private:
  driver::Driver& driver_;
  driver::Source& source_;
  order::Timelines& order_;
  BlockTable& table_;
  std::map<driver::Context, Account> all_ CUPOOL_GUARDED_BY(table_.lock());
  std::map<int, stats::ThreadTally*> tallies_ CUPOOL_GUARDED_BY(table_.lock());
};

}  // namespace cupool::dedicated
