// Blocks that were freed in stream order (cuMemFreeAsync) and whose stream has not come to the free yet. Such
// a free says nothing of other streams, and the driver waits for none of them: so each block has an event of
// its own, on its stream, and goes back to the pool when that is done, without any work of its last life.
// Under `lock_`, which is held across queries, never across a record: that may wait for room in the stream's
// queue.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>

#include "base/lock.hpp"
#include "driver/driver.hpp"
#include "pool/slabs.hpp"

namespace cupool::pool {

class OrderedFrees {
 public:
  // False: the driver records no such event, or too many blocks wait already.
  bool put(driver::Driver& driver, driver::Context context, driver::Stream stream, unsigned size_class,
           const Entry& entry) {
    const driver::Event event = take_event(driver, context);
    const bool is_recorded = event != nullptr && driver.record_on(stream, event) == driver::kSuccess;
    Guard hold(lock_);
    if (is_recorded && count() < kMost) {
      waiting_[count()] = {entry, event, size_class};
      count_.store(count() + 1, std::memory_order_relaxed);
      return true;
    }
    give_event_locked(event);
    return false;
  }

  bool any() const { return count() != 0; }
  // Calls `give(size_class, entry)` for the blocks whose streams have come to the free; asks for `most` of
  // them at most, each time for others. pre: no stream captures.
  template <typename Give>
  void take_reached(driver::Driver& driver, size_t most, Give&& give) {
    Guard hold(lock_);
    for (size_t left = std::min(most, count()); left != 0; --left) {
      if (next_ >= count()) next_ = 0;
      Waiting& one = waiting_[next_];
      if (driver.query(one.event) != driver::kSuccess) {
        ++next_;
        continue;
      }
      give(one.size_class, one.entry);
      give_event_locked(one.event);
      one = waiting_[count() - 1];
      count_.store(count() - 1, std::memory_order_relaxed);
    }
  }
  // The context is gone, and its events with it.
  void drop_all() {
    Guard hold(lock_);
    count_.store(0, std::memory_order_relaxed);
    idle_count_ = 0;
  }

  static constexpr size_t kMost = 256;

 private:
  struct Waiting {
    Entry entry;
    driver::Event event;
    unsigned size_class;
  };

  size_t count() const { return count_.load(std::memory_order_relaxed); }
  driver::Event take_event(driver::Driver& driver, driver::Context context) {
    {
      Guard hold(lock_);
      if (idle_count_ != 0) return idle_[--idle_count_];
    }
    driver::Event made = nullptr;
    return driver.create_event(context, &made) == driver::kSuccess ? made : nullptr;
  }
  // (More than fit were made by threads at the same time, and stay unused.)
  void give_event_locked(driver::Event event) CUPOOL_REQUIRES(lock_) {
    if (event != nullptr && idle_count_ < kMost) idle_[idle_count_++] = event;
  }

  Lock lock_;
  std::atomic<size_t> count_{0};  // changes under the lock
  size_t next_ CUPOOL_GUARDED_BY(lock_) = 0;
  size_t idle_count_ CUPOOL_GUARDED_BY(lock_) = 0;
  std::array<Waiting, kMost> waiting_ CUPOOL_GUARDED_BY(lock_);
  std::array<driver::Event, kMost> idle_ CUPOOL_GUARDED_BY(lock_);
};

}  // namespace cupool::pool
