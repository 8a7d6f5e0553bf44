// How dedicated blocks make room: which idle ones go back to the driver, when, and what is waited for before.
// A block leaves the table before it is released, and returns to it if the driver refuses; meanwhile a call
// in flight keeps its context, and so its account, alive. Has no lock; the table's is never held across a
// call of the driver.
#pragma once

#include <atomic>

#include "allocator/allocator.hpp"
#include "context/in_flight.hpp"
#include "dedicated/account.hpp"
#include "dedicated/block_table.hpp"
#include "dedicated/pending_frees.hpp"
#include "driver/source.hpp"
#include "order/timelines.hpp"

namespace cupool::dedicated {

class Releases {
 public:
  // Selects the idle blocks to release.
  struct Choice {
    Scope of;
    uint64_t keep = 0;                           // bytes to keep
    const allocator::Idle* only_idle = nullptr;  // only blocks that nobody needs
    bool only_done = false;                      // only blocks whose work is done, without a wait
    bool only_stale = false;                     // only blocks that outlasted Admission::patience()
    bool is_remembered = false;                  // Admission is told of those that go
  };

  Releases(driver::Source& source, order::Timelines& order, InFlight& in_flight, BlockTable& table,
           PendingFrees& pending)
      : source_(source), order_(order), in_flight_(in_flight), table_(table), pending_(pending) {}

  // Releases blocks, oldest first, and returns their bytes.
  uint64_t release(const Choice& choice);
  // The same of a device, with what `effort` allows to wait for. `asking`: see allocator/allocator.hpp.
  uint64_t release_everything(int device, allocator::Effort effort, driver::Context asking);
  // Whether a release may be enough for a request. The driver refuses at once what it does not have: then
  // nobody waits for one.
  bool may_be_enough(const Account& account, uint64_t bytes);
  // Releases as much idle memory as a request needs, and waits for releases of other threads. False: nothing
  // has gone back since gone() was `seen`, and nothing is idle: no point in asking again.
  bool release_enough(const Account& account, uint64_t bytes, uint64_t seen, uint64_t others_ns);
  // Releases one block that is out of the table: after a wait for all work, or if its own is done without
  // one. False: the driver refused, or must not be called (kNot); the block is kept.
  enum class Call { kNot, kWait, kAtOnce };
  bool give_back(Address start, const Block& block, Call call);
  // How many blocks have gone back to the driver so far.
  uint64_t gone() const { return gone_.load(std::memory_order_acquire); }

  uint64_t idle_bytes(const Scope& scope) CUPOOL_EXCLUDES(table_.lock());
  uint64_t most_idle(int device, uint64_t wanted) CUPOOL_EXCLUDES(table_.lock());
  // The calling thread has freed memory of this timeline, when the epochs up to this one had a seal: what it
  // waits for, other threads need not.
  static void note_free(const order::Timeline& order, Epoch epoch) { last_free_ = {&order, epoch}; }

 private:
  struct LastFree {
    const order::Timeline* order = nullptr;
    Epoch epoch = 0;
  };

  uint64_t release_waiting(const Choice& choice, driver::Context asking);
  bool find_oldest(const Choice& choice, Scope* owner) CUPOOL_EXCLUDES(table_.lock());
  // False: there is none, or none as old as age `newest`. pre: `choice` names one context.
  bool remove_oldest(const Choice& choice, uint64_t newest, Address* start, Block* out)
      CUPOOL_EXCLUDES(table_.lock());
  // Looks which work is done; unless kDone it first waits for what the driver's frees would have waited for.
  void look(const Scope& scope, allocator::Effort effort, driver::Context asking, uint64_t others_ns);

  [[gnu::visibility("hidden")]] static constinit thread_local LastFree last_free_;

  driver::Source& source_;
  order::Timelines& order_;
  InFlight& in_flight_;
  BlockTable& table_;
  PendingFrees& pending_;
  std::atomic<uint64_t> gone_{0};
};

}  // namespace cupool::dedicated
