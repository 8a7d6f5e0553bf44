// Whole allocations of a driver, kept for reuse and never cut: managed memory, whose pages are told things
// that must not reach a neighbour, and all device memory with CUPOOL_SPLIT=0. A block is one allocation; it
// serves again only for its own size, in its own context. One table for the process, ordered by address,
// under one lock that is never held across a call of a driver. Fast enough beside a driver's microseconds;
// the pool proper never comes here.
#pragma once

#include <atomic>
#include <deque>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "base/lock.hpp"
#include "driver/driver.hpp"
#include "order/timelines.hpp"
#include "pool/marks.hpp"
#include "pool/settings.hpp"
#include "stats/device.hpp"

namespace cupool::pool {

using driver::Status;

// What a free found. kNotOurs: the driver's own memory, ask the driver. kNobodys: inside our memory, but not
// a block that the application holds (freed twice, or not where it starts).
enum class Freed { kDone, kNotOurs, kNobodys };

class Wholes {
 public:
  explicit Wholes(order::Timelines& order) : order_(order) {}

  // Before the first allocation from `source` in the current context, which is `context`. False: the driver
  // does not say where the memory would be.
  bool open(driver::Context context, driver::Driver& source);
  // `bytes` > 0 of `source` in the current context, which is `context` and was opened.
  Status allocate(driver::Context context, driver::Driver& source, uint64_t bytes, Address* out);
  // Whether `bytes` more could be had: they are neither more than the device has, nor more than the user
  // allows.
  bool may_take(driver::Context context, driver::Driver& source, uint64_t bytes);
  // It found no memory, and nobody else has any: counts it, and explains it if the user wants that.
  void note_failure(driver::Context context, driver::Driver& source, uint64_t bytes);
  // `may_wait` false: a stream-ordered free, for which the driver would not wait either.
  Freed free(Address address, bool may_wait);

  bool owns(Address address);
  // The block that holds an address.
  bool find(Address address, Address* start, uint64_t* bytes, driver::Context* context);
  template <typename F>
  bool with_mark(Address address, F&& f) {
    Guard hold(lock_);
    Whole* whole = held_at(address);
    if (whole == nullptr) return false;
    if (whole->mark.life == 0) whole->mark.life = next_life();
    f(whole->mark);
    return true;
  }
  // All blocks in a range of addresses that somebody holds; whether there was one.
  bool taint(Address address, uint64_t bytes, Taint reason);

  // The device of a context that was opened.
  bool device_of(driver::Context context, int* device);

  // ---- Giving back (wholes_room.cpp).

  // To the driver, oldest first, until at most `keep` idle bytes of this kind are left; how many went.
  uint64_t release(bool host_visible, uint64_t keep);
  uint64_t release_of(driver::Context context, bool host_visible, uint64_t keep);
  // The same for each context's memory of each kind.
  uint64_t trim(uint64_t keep);
  // In place of CUPOOL_MAX_CACHED.
  void set_max_cached(uint64_t bytes) { max_cached_.store(bytes, std::memory_order_relaxed); }
  // At a quiet moment: blocks that nobody used for CUPOOL_DECAY_MS go back. Or, if the application frees
  // memory of a context now, those of this one.
  void decay(driver::Context freeing = nullptr);
  // Idle bytes of device memory of a context.
  uint64_t releasable_bytes(driver::Context context);
  // The largest idle block of a device's memory; 0 when somebody holds the lock, with `wait` for more than a
  // moment.
  uint64_t largest_idle(int device, bool wait);
  void close(driver::Context context);

 private:
  // What there is of one context's memory, of one kind.
  struct Account {
    driver::Context context = nullptr;
    order::Timeline* order = nullptr;
    bool host_visible = false;
    int device = 0;
    uint64_t device_bytes = 0;
    Settings settings;
    stats::Holdings* holdings = nullptr;  // of its device, if it is device memory
    uint64_t reserved = 0;                // what the driver is just being asked for included
    uint64_t idle = 0;
    std::map<uint64_t, Address> by_age;  // idle blocks in the order in which they were freed
  };
  struct Whole {
    uint64_t bytes = 0;  // of the driver's allocation
    uint64_t asked = 0;  // 0: nobody holds it
    Account* account = nullptr;
    driver::Driver* source = nullptr;
    Epoch stamp = 0;
    uint64_t age = 0;         // idle blocks: lower is older
    uint64_t idle_since = 0;  // in milliseconds
    Mark mark;                // with a taint and held by nobody: waits to go back to the driver
  };
  using Key = std::tuple<driver::Context, driver::Driver*, uint64_t>;
  using Table = std::map<Address, Whole>;
  // Idle blocks of one kind that may go back: of one context or of all, of one device or of all.
  struct Choice {
    static constexpr int kEveryDevice = -1;
    bool host_visible = false;
    driver::Context context = nullptr;
    int device = kEveryDevice;
    uint64_t keep = 0;      // bytes that stay
    bool only_old = false;  // only those that are ready, and idle since this moment
    uint64_t idle_since = 0;

    bool covers(const Account& account) const {
      return account.host_visible == host_visible && (context == nullptr || account.context == context) &&
             (device == kEveryDevice || account.device == device);
    }
  };
  static constexpr uint64_t kFromOptions = ~uint64_t{0} - 1;

  static uint64_t now_ms() { return stats::now_ns() / 1'000'000; }
  Account& account_of(driver::Context context, driver::Driver& source) CUPOOL_EXCLUDES(lock_);
  bool take(const Key& key, uint64_t bytes, order::Reach reach, stats::DeviceCounter how, Address* out);
  bool take_after_wait(Account& account, const Key& key, uint64_t bytes, Address* out);
  Status ask(Account& account, driver::Driver& source, uint64_t bytes, Address* out);
  bool has_idle(const Key& key) CUPOOL_EXCLUDES(lock_);
  static Epoch limit(const Account& account, order::Reach reach);
  enum class Place { kOldest, kNewest };
  void add_idle(Address start, const Whole& whole, Place place) CUPOOL_REQUIRES(lock_);
  void remove_idle(Address start, const Whole& whole) CUPOOL_REQUIRES(lock_);
  // Within CUPOOL_LIMIT, for a call of the driver that is about to be made.
  bool book(Account& account, uint64_t bytes) CUPOOL_EXCLUDES(lock_);
  uint64_t taken_locked(int device) const CUPOOL_REQUIRES(lock_);
  bool may_take_locked(const Account& account, uint64_t bytes) const CUPOOL_REQUIRES(lock_);
  // Idle memory goes back, as much as stands in the way, and what other threads are giving back. False: none
  // has gone since `seen` was read of gone_, and none has come.
  bool make_room(const Account& account, uint64_t bytes, uint64_t seen);
  void wait_for_others(bool asking);
  uint64_t max_cached(const Account& account) const;
  uint64_t idle_bytes(const Choice& choice);
  uint64_t idle_bytes_locked(const Choice& choice) const CUPOOL_REQUIRES(lock_);
  Table::iterator containing(Address address) CUPOOL_REQUIRES(lock_);
  Whole* held_at(Address address) CUPOOL_REQUIRES(lock_);
  uint64_t release(const Choice& choice);
  bool remove_oldest(const Choice& choice, Address* start, Whole* out);
  // False: the driver refused, and the block must not be lost.
  bool give_back(Address start, const Whole& whole);
  // After it. `gone` false: the driver refused.
  void settle(Address start, const Whole& whole, bool gone);
  // What the table still says of memory that the driver has taken back by itself.
  void forget_range(Address start, uint64_t bytes) CUPOOL_REQUIRES(lock_);
  Table::iterator forget(Table::iterator entry) CUPOOL_REQUIRES(lock_);

  // How often memory is looked for while other threads give and take it under our hands.
  static constexpr int kMostTries = 16;

  order::Timelines& order_;
  Lock lock_;
  Table table_ CUPOOL_GUARDED_BY(lock_);
  std::map<int, stats::Holdings*> holdings_ CUPOOL_GUARDED_BY(lock_);
  // By context and whether the memory is host-visible; there until the context ends.
  std::map<std::pair<driver::Context, bool>, Account> accounts_ CUPOOL_GUARDED_BY(lock_);
  std::map<Key, std::deque<Address>> idle_ CUPOOL_GUARDED_BY(lock_);  // oldest first
  std::vector<driver::Context> leaving_ CUPOOL_GUARDED_BY(lock_);  // of blocks between give_back and settle
  uint64_t asking_ CUPOOL_GUARDED_BY(lock_) = 0;  // calls of the driver for a block, under way
  uint64_t ages_ CUPOOL_GUARDED_BY(lock_) = 0;
  std::atomic<uint64_t> gone_{0};  // blocks that went back to the driver
  std::atomic<uint64_t> max_cached_{kFromOptions};
  std::atomic<uint64_t> decayed_at_{0};
};

}  // namespace cupool::pool
