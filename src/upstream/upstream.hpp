// How an allocator takes memory of one kind from the driver in one context, and gives it back: within the
// limit, timed, counted. A kind is a driver::Driver: device or managed memory. Managed memory is not counted
// as the device's: no limit, no device figures. No lock.
#pragma once

#include "base/clock.hpp"
#include "driver/driver.hpp"
#include "order/timeline.hpp"
#include "stats/device.hpp"
#include "upstream/limit.hpp"

namespace cupool::upstream {

class Upstream {
 public:
  Upstream(driver::Driver& driver, int device, uint64_t limit)
      : driver_(driver), device_(device), stats_(stats::device(device)), limit_(limit) {}

  // In the current context. kOutOfMemory: the driver has none, or the limit is reached; then it is not asked.
  driver::Status allocate(uint64_t bytes, driver::Address* out, bool* is_asked = nullptr);
  // Waits for all work of the context, as the driver's free does. False: the driver refused.
  bool release(order::Timeline& order, driver::Address start, uint64_t bytes);
  // The same for memory on which no work is pending: waits for none. False: the driver refused, or cannot.
  bool release_done(order::Timeline& order, driver::Address start, uint64_t bytes);
  // The same account around other ways to ask for memory (`ask`, a status) and to give it back (`give`,
  // whether the driver took it). pre: is_counted().
  template <typename Ask>
  driver::Status take(uint64_t bytes, Ask&& ask, uint64_t* took = nullptr) {
    if (!Limit::book(device_, bytes, limit_)) return driver::kOutOfMemory;
    const uint64_t before = now_ns();
    const driver::Status status = ask();
    const uint64_t ns = now_ns() - before;
    note_taken(bytes, status, ns);
    if (took != nullptr) *took = ns;
    return status;
  }
  template <typename Give>
  bool give(uint64_t bytes, Give&& give, uint64_t* took = nullptr) {
    const uint64_t before = now_ns();
    if (!give()) return false;
    const uint64_t ns = now_ns() - before;
    note_given(bytes, ns);
    if (took != nullptr) *took = ns;
    return true;
  }
  // Returns memory that was just allocated but cannot be used.
  void give_up(driver::Address start, uint64_t bytes);
  // The driver has taken the memory back with its context.
  void forget(uint64_t bytes);

  driver::Driver& driver() const { return driver_; }
  int device() const { return device_; }
  uint64_t limit() const { return limit_; }
  bool is_counted() const { return driver_.is_on_device(); }
  // By how much `bytes` more would exceed the limit.
  uint64_t excess(uint64_t bytes) const;

 private:
  void note_taken(uint64_t bytes, driver::Status status, uint64_t took_ns);
  void note_given(uint64_t bytes, uint64_t took_ns);

  driver::Driver& driver_;
  const int device_;
  stats::Device& stats_;
  const uint64_t limit_;
};

}  // namespace cupool::upstream
