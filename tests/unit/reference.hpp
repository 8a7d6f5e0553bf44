// What the pool is compared with: a GPU whose streams are clocks, and the plainest allocator there is, a map
// of what is held. Together they know when two blocks overlap, and when work on a block is not ordered after
// the work of its former owners. Safe to use from several threads; nothing here shares code or ideas with the
// pool.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <map>
#include <mutex>
#include <set>
#include <vector>

#include "fake_driver.hpp"
#include "order/lane.hpp"

namespace cupool::test {

inline constexpr size_t kStreams = 4;
using Clock = std::array<uint64_t, kStreams>;  // for each stream, how much of its work

inline Clock later(const Clock& a, const Clock& b) {
  Clock both;
  for (size_t i = 0; i < kStreams; ++i) both[i] = std::max(a[i], b[i]);
  return both;
}
inline bool covers(const Clock& a, const Clock& b) { return later(a, b) == a; }
inline order::Lane lane_of_stream(size_t stream) { return order::lane_of_handle(0x1000 * (stream + 1)); }

// From allocation to free.
struct Life {
  driver::Address start = 0;
  uint64_t bytes = 0;
  Clock used{};     // its own work
  Clock follows{};  // the work of all former lives of its bytes
};

class ClockedDriver final : public FakeDriver {
 public:
  driver::Status allocate(size_t bytes, driver::Address* out) override {
    const std::lock_guard hold(mutex_);
    return FakeDriver::allocate(bytes, out);
  }
  driver::Status release(driver::Address start) override {
    const std::lock_guard hold(mutex_);
    done_ = submitted_;
    return FakeDriver::release(start);
  }
  driver::Status release_in(driver::Context, driver::Address start) override { return release(start); }
  driver::Status create_event(driver::Context, driver::Event* out) override {
    const std::lock_guard hold(mutex_);
    recorded_.emplace_back();
    *out = reinterpret_cast<driver::Event>(recorded_.size());
    return driver::kSuccess;
  }
  driver::Status record(driver::Context, driver::Event event) override {
    const std::lock_guard hold(mutex_);
    if (fail_record != driver::kSuccess) return fail_record;
    at(event) = submitted_;
    if (is_in_free) {
      recorded_outside_.erase(event);
    } else {
      recorded_outside_.insert(event);
    }
    ++records;
    return driver::kSuccess;
  }
  driver::Status query(driver::Event event) override {
    const std::lock_guard hold(mutex_);
    for (size_t i = 0; ends_when_asked && i < kStreams; ++i) done_[i] = std::min(submitted_[i], done_[i] + 1);
    return covers(done_, at(event)) ? driver::kSuccess : driver::kNotReady;
  }
  driver::Status order_after(driver::Context, driver::Event event) override {
    const std::lock_guard hold(mutex_);
    ordered_ = later(ordered_, at(event));
    strays += recorded_outside_.count(event);
    ++orders;
    return driver::kSuccess;
  }
  driver::Status wait_on(driver::Stream stream, driver::Event event) override {
    const std::lock_guard hold(mutex_);
    Clock& known = waited_[index_of(stream)];
    known = later(known, at(event));
    strays += recorded_outside_.count(event);
    ++waits;
    return driver::kSuccess;
  }
  driver::Status synchronize(driver::Context) override {
    const std::lock_guard hold(mutex_);
    done_ = submitted_;
    ++synchronisations;
    return driver::kSuccess;
  }

  // Set by a test around every free of its own thread: what is recorded elsewhere, nothing may wait for.
  static inline thread_local bool is_in_free = false;
  // How often something did.
  uint64_t strays = 0;
  // Some of the work ends whenever an event is asked about, so that waits on the host end.
  std::atomic<bool> ends_when_asked{false};

  // The real call of a launch. False: the work may run beside that of a former life.
  bool submit(size_t stream, Life& life) {
    const std::lock_guard hold(mutex_);
    Clock known = later(later(ordered_, waited_[stream]), done_);
    // A stream orders its own work, not that of another one that had its handle.
    if (life.follows[stream] > former_[stream]) known[stream] = submitted_[stream];
    life.used[stream] = ++submitted_[stream];
    return covers(known, life.follows);
  }
  // The stream is destroyed, its work runs on, and its handle comes back for another.
  void replace(size_t stream) {
    const std::lock_guard hold(mutex_);
    former_[stream] = submitted_[stream];
    waited_[stream] = {};
  }
  // Whether work is over, so that the host or another process may write where it did.
  bool is_over(const Clock& work) {
    const std::lock_guard hold(mutex_);
    return covers(done_, work);
  }
  // Some of the work ends: in one stream, up to a part of what was submitted.
  void progress(size_t stream, uint64_t amount) {
    const std::lock_guard hold(mutex_);
    done_[stream] = std::min(submitted_[stream], done_[stream] + amount);
  }
  // The host waits for one stream, and so for all that its work had to wait for: barriers came before it.
  void wait_for(size_t stream) {
    const std::lock_guard hold(mutex_);
    done_[stream] = submitted_[stream];
  }

 private:
  Clock& at(driver::Event event) { return recorded_[reinterpret_cast<uintptr_t>(event) - 1]; }

  static size_t index_of(driver::Stream stream) { return reinterpret_cast<uintptr_t>(stream) / 0x1000 - 1; }

  std::mutex mutex_;
  Clock submitted_{}, done_{}, ordered_{};
  Clock former_{};                        // of each handle: the work of streams that had it before
  std::array<Clock, kStreams> waited_{};  // what each stream was told to wait for
  std::vector<Clock> recorded_;
  std::set<driver::Event> recorded_outside_;  // of a free
};

class Reference {
 public:
  // False: it overlaps a block that is held.
  bool add(Life& life) {
    const std::lock_guard hold(mutex_);
    const auto above = held_.lower_bound(life.start);
    if (above != held_.end() && above->first < life.start + life.bytes) return false;
    if (above != held_.begin() && std::prev(above)->first + std::prev(above)->second > life.start)
      return false;
    held_[life.start] = life.bytes;
    total_ += life.bytes;
    // Whatever was done to any byte of it concerns all of it.
    auto former = former_.upper_bound(life.start);
    if (former != former_.begin()) --former;
    while (former != former_.end() && former->first < life.start + life.bytes) {
      if (former->second.end <= life.start) {
        ++former;
        continue;
      }
      const Former was = former->second;
      const driver::Address start = former->first;
      life.follows = later(life.follows, was.work);
      former = former_.erase(former);
      if (start < life.start) former_[start] = {life.start, was.work};
      if (was.end > life.start + life.bytes) former = former_.insert({life.start + life.bytes, was}).first;
    }
    return true;
  }
  // Before the block goes back to the pool: another thread may have it at once.
  void remove(const Life& life) {
    const std::lock_guard hold(mutex_);
    held_.erase(life.start);
    total_ -= life.bytes;
    const Clock work = later(life.used, life.follows);
    if (work != Clock{}) former_[life.start] = {life.start + life.bytes, work};
  }
  uint64_t total() const { return total_; }

 private:
  struct Former {
    driver::Address end;
    Clock work;
  };
  std::mutex mutex_;
  std::map<driver::Address, uint64_t> held_;
  std::map<driver::Address, Former> former_;
  uint64_t total_ = 0;
};

}  // namespace cupool::test
