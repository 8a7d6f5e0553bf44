// Dedicated blocks of one source, each an allocation of the driver, cached and never cut: managed memory,
// where advice on one block's pages must not affect a neighbour, all device memory with CUPOOL_SPLIT=no, and
// what spills to host memory. A block is one driver allocation, reused in its context: managed and spilled
// memory for requests up to an eighth smaller, device memory for the same size alone, so that handles,
// address ranges and the checks of debugging tools stay exact. admission.hpp says which are kept. One table,
// ordered by address, under one lock that is never held across a call of the driver: cheap beside the
// driver's microseconds.
#pragma once

#include <atomic>
#include <map>
#include <utility>
#include <vector>

#include "allocator/allocator.hpp"
#include "allocator/settings.hpp"
#include "base/clock.hpp"
#include "base/lock.hpp"
#include "context/in_flight.hpp"
#include "dedicated/admission.hpp"
#include "driver/driver.hpp"
#include "driver/source.hpp"
#include "order/cross_context_wait.hpp"
#include "order/timelines.hpp"
#include "stats/device.hpp"
#include "upstream/upstream.hpp"

namespace cupool::dedicated {

using allocator::Address;
using allocator::BlockInfo;
using allocator::Freed;
using allocator::Mark;
using allocator::Status;
using allocator::Taint;
using allocator::Waits;
using context::InFlight;
using order::Epoch;

class DedicatedBlocks final : public allocator::Allocator {
 public:
  DedicatedBlocks(driver::Driver& driver, driver::Source& source, order::Timelines& order,
                  InFlight& in_flight)
      : driver_(driver), source_(source), order_(order), in_flight_(in_flight) {}

  const driver::Source& source() const { return source_; }
  bool is_host_visible() const { return source_.is_host_visible(); }
  bool is_on_device() const { return source_.is_on_device(); }

  Status allocate(driver::Context context, uint64_t bytes, Address* out) override {
    return allocate(context, bytes, out, allocator::Short::kMakeRoom);
  }
  Status allocate(driver::Context context, uint64_t bytes, Address* out, allocator::Short when_short);
  // Whether a block of this size lies idle.
  bool has_idle(driver::Context context, uint64_t bytes) CUPOOL_EXCLUDES(lock_);
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
  driver::Context context_at(Address address) CUPOOL_EXCLUDES(lock_);
  bool find(Address address, BlockInfo* out) override;
  bool taint(Address address, uint64_t bytes, Taint reason) override;
  bool device_of(driver::Context context, int* device) override;
  uint64_t trim(uint64_t keep) override;
  uint64_t release_everything(int device, allocator::Effort effort, driver::Context asking) override;
  uint64_t most_releasable(int device, uint64_t wanted) override;
  uint64_t release_idle(const allocator::Idle& which) override;
  void set_max_cached(uint64_t bytes) override { max_cached_.store(bytes, std::memory_order_relaxed); }
  uint64_t releasable_bytes(int device) override;
  uint64_t largest_free(int device, bool wait) override;
  void begin_end(driver::Context context, uint64_t ending) override;
  void ended(uint64_t ending, bool gone) override;

  // The driver has reused these addresses: drops the stale entries.
  void forget(Address start, uint64_t bytes) {
    Guard hold(lock_);
    forget_range(start, bytes);
  }
  // Releases idle blocks of a context, oldest first, until at most `keep` bytes are left; returns the bytes
  // released.
  uint64_t release_of(driver::Context context, uint64_t keep);
  // The same as long as nothing is pending there: nobody waits.
  uint64_t release_idle_of(driver::Context context, uint64_t keep);

 private:
  using Size = std::pair<uint64_t, uint64_t>;  // of an idle block: its bytes, then its age
  // The memory of one context.
  struct Account {
    Account(driver::Source& source, int device_number, uint64_t device_total, order::Timeline& timeline)
        : order(timeline),
          device_bytes(device_total),
          settings(allocator::Settings::from(config::options(), device_total)),
          upstream(source, device_number, settings.limit) {}

    order::Timeline& order;
    const uint64_t device_bytes;
    const allocator::Settings settings;
    upstream::Upstream upstream;
    stats::ThreadTally* tally = nullptr;  // of its device; null for managed memory
    uint64_t reserved = 0;
    uint64_t idle = 0;
    std::map<uint64_t, Address> by_age;  // idle blocks, oldest free first
    std::map<Size, Address> by_size;     // the same without those that are never reused
    Admission admission;
    uint64_t newcomers = 0;  // bytes of idle blocks whose size has not come again, in steps of the driver
  };
  struct Block {
    uint64_t bytes = 0;  // of the driver's allocation
    uint64_t asked = 0;  // 0: idle
    driver::Context context = nullptr;
    Account* account = nullptr;
    Epoch stamp = 0;
    uint64_t age = 0;           // idle blocks: lower is older
    uint64_t idle_since = 0;    // in milliseconds
    uint64_t missed_at = 0;     // idle blocks: Admission::missed() at the free
    bool comes_again = false;   // its size did, so it is kept
    bool free_pending = false;  // free_after() has it, and it is not idle yet
    Mark mark;                  // idle and tainted: waits to go back to the driver
  };
  struct PendingFree {
    Address start;
    uint64_t age;  // of the block: another one may start there by now
    order::CrossContextWait until;
  };
  using Table = std::map<Address, Block>;
  // Selects the idle blocks to release: of one context or all, of one device or all.
  struct Choice {
    driver::Context context = nullptr;
    int device = allocator::kEveryDevice;
    uint64_t keep = 0;                           // bytes to keep
    const allocator::Idle* only_idle = nullptr;  // only blocks that nobody needs
    bool only_done = false;                      // only blocks whose work is done, without a wait
    bool only_stale = false;                     // only blocks that outlasted Admission::patience()

    bool covers(driver::Context one, const Account& account) const {
      return (context == nullptr || one == context) &&
             (device == allocator::kEveryDevice || account.upstream.device() == device);
    }
  };
  static constexpr uint64_t kDriverStep = 2 << 20;  // the driver's granularity for large blocks
  static constexpr uint64_t kFromOptions = ~uint64_t{0} - 1;

  bool visit_mark(Address address, void (*visit)(Mark&, void*), void* data) override;
  static uint64_t now_ms() { return now_ns() / 1'000'000; }
  // The account of the current context, made if there is none. Null: the driver does not name the device.
  Account* open(driver::Context context);
  Account* find_account(driver::Context context);
  bool take(Account& account, uint64_t bytes, order::Reach reach, stats::DeviceCounter how, Address* out);
  bool take_when_short(Account& account, uint64_t bytes, Address* out);
  bool take_after_wait(Account& account, uint64_t bytes, Address* out);
  Status allocate_from_driver(Account& account, driver::Context context, uint64_t bytes, Address* out,
                              bool* is_asked);
  bool has_idle(const Account& account, uint64_t bytes) CUPOOL_EXCLUDES(lock_);
  // The largest block that may serve a request.
  uint64_t largest_for(uint64_t bytes) const { return is_on_device() ? bytes : bytes + bytes / 8; }
  // What a small block may cost: the driver need not put two of them into one step.
  static uint64_t steps(uint64_t bytes) { return round_up(bytes, kDriverStep); }
  bool is_stale(const Block& block) const {
    return block.account->admission.missed() - block.missed_at > block.account->admission.patience();
  }
  Epoch limit(const Account& account, order::Reach reach) const;
  void add_idle(Address start, const Block& block) CUPOOL_REQUIRES(lock_);
  void remove_idle(Address start, const Block& block) CUPOOL_REQUIRES(lock_);
  // Releases as much idle memory as needed, and waits for releases of other threads. False: nothing has gone
  // back since gone_ was `seen`, and nothing is idle: no point in asking again.
  bool may_have(const Account& account, uint64_t bytes);
  uint64_t most_idle(int device, uint64_t wanted);
  bool release_enough(const Account& account, uint64_t bytes, uint64_t seen, uint64_t others_ns);
  uint64_t max_cached(const Account& account) const;
  uint64_t idle_bytes(const Choice& choice) CUPOOL_EXCLUDES(lock_);
  uint64_t idle_bytes_locked(const Choice& choice) const CUPOOL_REQUIRES(lock_);
  Table::iterator containing(Address address) CUPOOL_REQUIRES(lock_);
  Block* held_at(Address address) CUPOOL_REQUIRES(lock_);
  uint64_t release(const Choice& choice);
  uint64_t release_waiting(const Choice& choice, driver::Context asking);
  std::vector<driver::Context> contexts_of(const Choice& choice) CUPOOL_EXCLUDES(lock_);
  driver::Context context_of_oldest(const Choice& choice, int* device) CUPOOL_EXCLUDES(lock_);
  // False: there is none, or none as old as age `newest`.
  bool remove_oldest(const Choice& choice, uint64_t newest, Address* start, Block* out);
  // Releases a block to the driver: after a wait for all work, or if its own is done without one. False: it
  // refused, or must not be called (kNot); the block is kept.
  enum class Call { kNot, kWait, kAtOnce };
  bool give_back(Address start, const Block& block, Call call);
  // Makes those idle whose streams have come to the free.
  void admit_left();
  // Out of all records before the driver has it, whose next block may start there; and back if it refused.
  bool take_out(Address start, Block* out);
  void end_free_by(Address start, const Block& block, bool is_gone);
  bool is_done(const Block& block) const { return block.stamp <= block.account->order.done(); }
  // Looks which work is done; unless kDone it first waits for what the driver's frees would have waited for.
  void look(const Choice& choice, allocator::Effort effort, driver::Context asking, uint64_t others_ns = 0);
  // Drops entries of memory that the driver has taken back by itself.
  void forget_range(Address start, uint64_t bytes) CUPOOL_REQUIRES(lock_);
  Table::iterator forget(Table::iterator entry) CUPOOL_REQUIRES(lock_);

  driver::Driver& driver_;
  // The calling thread's last free.
  struct LastFree {
    const order::Timeline* order = nullptr;
    Epoch epoch = 0;
  };
  [[gnu::visibility("hidden")]] static constinit thread_local LastFree last_free_;

  driver::Source& source_;
  order::Timelines& order_;
  InFlight& in_flight_;
  Lock lock_{Rank::kDedicated};
  Table table_ CUPOOL_GUARDED_BY(lock_);
  std::map<int, stats::ThreadTally*> tally_ CUPOOL_GUARDED_BY(lock_);
  std::map<driver::Context, Account> accounts_ CUPOOL_GUARDED_BY(lock_);  // until the context ends
  // Blocks of ending contexts that do not end with them, by the number of the end.
  std::multimap<uint64_t, Address> left_ CUPOOL_GUARDED_BY(lock_);
  std::vector<PendingFree> pending_frees_ CUPOOL_GUARDED_BY(lock_);
  uint64_t ages_ CUPOOL_GUARDED_BY(lock_) = 0;
  std::atomic<bool> has_pending_frees_{false};
  std::atomic<uint64_t> gone_{0};  // blocks released to the driver
  std::atomic<uint64_t> max_cached_{kFromOptions};
};

}  // namespace cupool::dedicated
