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
#include <vector>

#include "base/lock.hpp"
#include "driver/driver.hpp"
#include "order/timeline.hpp"
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
  explicit Wholes(order::Timeline& order) : order_(order) {}

  // `bytes` > 0 of `source` in the current context, which is `context`.
  Status allocate(driver::Context context, driver::Driver& source, uint64_t bytes, const Settings& settings,
                  Address* out);
  Freed free(Address address);

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

  // To the driver, oldest first, until at most `keep` idle bytes of this kind are left; how many went.
  uint64_t release(bool host_visible, uint64_t keep);
  // Idle bytes of device memory of a context.
  uint64_t releasable_bytes(driver::Context context);
  void close(driver::Context context);

 private:
  struct Whole {
    uint64_t bytes = 0;  // of the driver's allocation
    uint64_t asked = 0;  // 0: nobody holds it
    driver::Context context = nullptr;
    driver::Driver* source = nullptr;
    Epoch stamp = 0;
    Mark mark;                            // with a taint and held by nobody: waits to go back to the driver
    stats::Holdings* holdings = nullptr;  // of its device, if it is device memory
  };
  using Key = std::tuple<driver::Context, driver::Driver*, uint64_t>;
  using Table = std::map<Address, Whole>;

  stats::Holdings* holdings_of(driver::Driver& source) CUPOOL_REQUIRES(lock_);
  bool take(const Key& key, uint64_t bytes, Address* out);
  bool has_idle(const Key& key);
  // All idle memory goes back, and what other threads are giving back. False: none has
  // gone since `seen` was read of gone_, and none has come.
  bool make_room(uint64_t seen);
  Table::iterator containing(Address address) CUPOOL_REQUIRES(lock_);
  Whole* held_at(Address address) CUPOOL_REQUIRES(lock_);
  bool remove_oldest(bool host_visible, Address* start, Whole* out);
  // False: the driver refused, and the block must not be lost.
  bool give_back(Address start, const Whole& whole);
  // After it. `gone` false: the driver refused.
  void settle(Address start, const Whole& whole, bool gone);
  // What the table still says of memory that the driver has taken back by itself.
  void forget_range(Address start, uint64_t bytes) CUPOOL_REQUIRES(lock_);
  Table::iterator forget(Table::iterator entry) CUPOOL_REQUIRES(lock_);

  // How often memory is looked for while other threads give and take it under our hands.
  static constexpr int kMostTries = 16;

  order::Timeline& order_;
  Lock lock_;
  Table table_ CUPOOL_GUARDED_BY(lock_);
  std::map<int, stats::Holdings*> holdings_ CUPOOL_GUARDED_BY(lock_);
  std::map<Key, std::deque<Address>> idle_ CUPOOL_GUARDED_BY(lock_);  // oldest first
  std::vector<driver::Context> leaving_ CUPOOL_GUARDED_BY(lock_);  // of blocks between give_back and settle
  std::atomic<uint64_t> gone_{0};                                  // blocks that went back to the driver
  std::atomic<uint64_t> idle_bytes_[2] = {};                       // device memory, host-visible memory
};

}  // namespace cupool::pool
