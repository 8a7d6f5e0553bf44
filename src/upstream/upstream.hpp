// What every allocator puts between itself and a source (driver/source.hpp): memory is taken within
// CUPOOL_LIMIT, timed and counted. One for each source and context. A new source needs nothing for that:
// dedicated/ puts this before whatever source it is given, and an allocator with a policy of its own has one
// as a member and asks it instead of the source. Only a source that is_on_device() is counted: from any other
// memory is taken without limit and without figures of the device. No lock.
#pragma once

#include "base/bytes.hpp"
#include "base/clock.hpp"
#include "driver/source.hpp"
#include "order/timeline.hpp"
#include "stats/device.hpp"
#include "upstream/limit.hpp"

namespace cupool::upstream {

class Upstream {
 public:
  Upstream(driver::Source& source, int device, uint64_t limit)
      : source_(source), device_(device), stats_(stats::device(device)), limit_(limit) {}

  // In the current context. kOutOfMemory: the driver has none, or the limit is reached; then it is not asked.
  driver::Status allocate(uint64_t bytes, driver::Address* out, bool* is_asked = nullptr);
  // Waits for all work of the context, as the driver's free does. False: the driver refused.
  bool release(order::Timeline& order, driver::Address start, uint64_t bytes);
  // The same for memory on which no work is pending: waits for none. False: the driver refused, or cannot.
  bool release_done(order::Timeline& order, driver::Address start, uint64_t bytes);
  // The same account around other ways to ask for memory (`ask`, a status) and to give it back (`give`,
  // whether the driver took it). pre: is_counted().
  // `where`: the memory's address, once it is there; null: it is told apart.
  template <typename Ask>
  driver::Status take(uint64_t bytes, Ask&& ask, const driver::Address* where = nullptr) {
    if (!Limit::book(device_, charge(bytes), limit_)) {
      tell_limit(bytes);
      return driver::kOutOfMemory;
    }
    const uint64_t before = now_ns();
    const driver::Status status = ask();
    note_taken(bytes, status, now_ns() - before, where);
    return status;
  }
  template <typename Give>
  bool give(uint64_t bytes, Give&& give, driver::Address where = 0) {
    const uint64_t before = now_ns();
    if (!give()) return false;
    note_given(bytes, now_ns() - before, where);
    return true;
  }
  // Returns memory that was just allocated but cannot be used.
  void give_up(driver::Address start, uint64_t bytes);
  // The driver has taken the memory back with its context.
  void forget(uint64_t bytes);

  driver::Source& source() const { return source_; }
  int device() const { return device_; }
  uint64_t limit() const { return limit_; }
  bool is_counted() const { return source_.is_on_device(); }
  // By how much `bytes` more would exceed the limit.
  uint64_t excess(uint64_t bytes) const;

  // What the driver takes for an allocation: whole steps, or its part of one that such as it share. Of
  // several, if each is whole steps.
  static uint64_t charge(uint64_t bytes) {
    if (bytes == 0) return 0;
    return bytes > kStep / 2 ? round_up(bytes, kStep) : kStep / (kStep / bytes);
  }

 private:
  static constexpr uint64_t kStep = 2 << 20;
  void tell_limit(uint64_t bytes) const;
  void tell_uncounted(const char* what, uint64_t bytes) const;
  void return_to_account(uint64_t bytes);
  void note_taken(uint64_t bytes, driver::Status status, uint64_t took_ns, const driver::Address* where);
  void note_given(uint64_t bytes, uint64_t took_ns, driver::Address where);

  driver::Source& source_;
  const int device_;
  stats::Device& stats_;
  const uint64_t limit_;
};

}  // namespace cupool::upstream
