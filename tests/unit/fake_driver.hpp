// A source of memory and a driver for unit tests, scripted by the test: memory is only numbers, events are
// done when the test says so. They keep account of what they were asked, so that tests can say what a promise
// costs. Memory may be asked for by several threads at once, as a driver's may. Builds that check locks see a
// call under one that forbids it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <vector>

#include "base/held_locks.hpp"
#include "driver/driver.hpp"
#include "driver/source.hpp"

namespace cupool::test {

class FakeSource : public driver::Source {
 public:
  static constexpr uint64_t kStep = 2 << 20;

  uint64_t capacity = uint64_t{1} << 40;
  driver::Status fail_release = driver::kSuccess;
  uint64_t allocations = 0, releases = 0;
  uint64_t ordered_releases = 0;  // given back in stream order
  uint64_t reserved = 0, peak = 0;

  driver::Status allocate(size_t bytes, driver::Address* out) override {
    check_driver_call();
    const std::lock_guard<std::mutex> hold(memory_lock_);
    const uint64_t taken = (bytes + kStep - 1) / kStep * kStep;
    if (bytes > capacity || reserved + taken > capacity) return driver::kOutOfMemory;
    // The lowest gap, so that address space is reused as the real driver does.
    driver::Address at = kBase;
    for (const auto& [start, size] : memory_) {
      if (start - at >= taken) break;
      at = start + size;
    }
    memory_[at] = taken;
    reserved += taken;
    if (reserved > peak) peak = reserved;
    ++allocations;
    *out = at;
    return driver::kSuccess;
  }
  driver::Status release(driver::Address start) override {
    check_driver_call();
    const std::lock_guard<std::mutex> hold(memory_lock_);
    const auto found = memory_.find(start);
    if (found == memory_.end()) return driver::kInvalidValue;
    if (fail_release != driver::kSuccess) return fail_release;
    reserved -= found->second;
    memory_.erase(found);
    ++releases;
    return driver::kSuccess;
  }
  driver::Status release_in(driver::Context, driver::Address start) override { return release(start); }
  driver::Status release_on(driver::Context, driver::Stream, driver::Address start) override {
    const driver::Status status = release(start);
    if (status != driver::kSuccess) return status;
    --releases;
    ++ordered_releases;
    return driver::kSuccess;
  }
  bool might_give(int, uint64_t bytes) override {
    const std::lock_guard<std::mutex> hold(memory_lock_);
    return reserved + bytes / kStep * kStep <= capacity;
  }

  // For memory that is taken in another way, such as chunks. False: there is not as much.
  bool reserve(uint64_t bytes) {
    const std::lock_guard<std::mutex> hold(memory_lock_);
    if (reserved + bytes > capacity) return false;
    reserved += bytes;
    peak = std::max(peak, reserved);
    return true;
  }
  void unreserve(uint64_t bytes) {
    const std::lock_guard<std::mutex> hold(memory_lock_);
    reserved -= bytes;
  }

 protected:
  std::mutex memory_lock_;

 private:
  static constexpr driver::Address kBase = 0x7f0000000000;

  std::map<driver::Address, uint64_t> memory_;
};

// A driver that has device memory, too.
class FakeDriver : public driver::Driver, public FakeSource {
 public:
  uint64_t unreported = 0;  // free, but kept in pools of the driver's own
  bool context_events = true;
  bool done_at_once = true;  // events are done as soon as they are recorded
  driver::Status fail_record = driver::kSuccess;
  driver::Status fail_order = driver::kSuccess;
  driver::Status fail_synchronize = driver::kSuccess;

  driver::Status fail_wait = driver::kSuccess;
  bool ordered_frees = false;  // memory can be freed in stream order
  bool captures = false;       // every stream captures
  // Before the answer to a question: where a test lets work end while somebody waits for it.
  std::function<void()> on_query = [] {};
  std::function<void()> on_order = [] {};
  std::function<void()> on_create_event = [] {};

  uint64_t records = 0, stream_records = 0, orders = 0, waits = 0, queries = 0, synchronisations = 0;
  uint64_t streams = 0;                // asked for
  driver::Event waited_for = nullptr;  // by the last stream that was told to

  driver::Status create_stream(driver::Context, driver::Stream* out) override {
    ++streams;
    if (!ordered_frees) return driver::kNotSupported;
    *out = reinterpret_cast<driver::Stream>(streams);
    return driver::kSuccess;
  }
  driver::Status memory(size_t* free, size_t* total) override {
    check_driver_call();
    const std::lock_guard<std::mutex> hold(memory_lock_);
    *free = capacity - reserved - std::min(unreported, capacity - reserved);
    *total = capacity;
    return driver::kSuccess;
  }

  uint64_t events_made() const { return events_; }
  bool has_context_events() const override { return context_events; }
  driver::Status create_event(driver::Context, driver::Event* out) override {
    check_driver_call();
    on_create_event();
    *out = reinterpret_cast<driver::Event>(++events_);
    return driver::kSuccess;
  }
  driver::Status record(driver::Context, driver::Event event) override {
    check_driver_call();
    if (fail_record != driver::kSuccess) return fail_record;
    ++records;
    if (!done_at_once) pending_.push_back(event);
    return driver::kSuccess;
  }
  driver::Status record_on(driver::Stream stream, driver::Event event) override {
    check_driver_call();
    if (fail_record != driver::kSuccess) return fail_record;
    ++stream_records;
    if (done_at_once) return driver::kSuccess;
    pending_.push_back(event);
    stream_of_[event] = stream;
    return driver::kSuccess;
  }
  driver::Status query(driver::Event event) override {
    check_driver_call();
    on_query();
    ++queries;
    return std::count(pending_.begin(), pending_.end(), event) != 0 ? driver::kNotReady : driver::kSuccess;
  }
  driver::Status order_after(driver::Context, driver::Event) override {
    check_driver_call();
    on_order();
    if (fail_order != driver::kSuccess) return fail_order;
    ++orders;
    return driver::kSuccess;
  }
  driver::Status wait_on(driver::Stream, driver::Event event) override {
    check_driver_call();
    if (fail_wait != driver::kSuccess) return fail_wait;
    const std::lock_guard<std::mutex> hold(memory_lock_);
    ++waits;
    waited_for = event;
    return driver::kSuccess;
  }
  bool is_capturing(driver::Stream) override { return captures; }
  driver::Status synchronize(driver::Context) override {
    check_driver_call();
    const std::lock_guard<std::mutex> hold(memory_lock_);
    if (fail_synchronize != driver::kSuccess) return fail_synchronize;
    ++synchronisations;
    pending_.clear();
    return driver::kSuccess;
  }

  // All recorded work ends when it was asked for a while whether it has.
  void end_work_when_watched() {
    on_query = [this] {
      if (++watched_ % 5 == 0) finish();
    };
  }
  // What was recorded on one stream ends.
  void finish_on(driver::Stream stream) {
    std::erase_if(pending_, [&](driver::Event event) {
      const auto found = stream_of_.find(event);
      return found != stream_of_.end() && found->second == stream;
    });
  }
  // Whether some has not.
  bool is_busy() const { return !pending_.empty(); }
  // All recorded work ends.
  void finish() { pending_.clear(); }
  // The work before the oldest record that is not yet done ends.
  void finish_oldest() { pending_.erase(pending_.begin()); }
  uint64_t calls() const {
    return allocations + releases + records + orders + waits + queries + synchronisations;
  }

 private:
  std::vector<driver::Event> pending_;  // in the order of their records
  std::map<driver::Event, driver::Stream> stream_of_;
  uintptr_t events_ = 0;
  uint64_t watched_ = 0;
};

}  // namespace cupool::test
