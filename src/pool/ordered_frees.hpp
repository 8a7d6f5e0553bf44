// Blocks that were freed in stream order (cuMemFreeAsync) and whose stream has not come to the free yet. Such
// a free says nothing of other streams, and the driver waits for none of them: so each block has an event of
// its own, on its stream, and goes back to the pool when that is done, without any work of its last life. A
// stream of another context can have no event of ours: there the block waits for all work of that context.
// Under `lock_`, which is held across queries, never across a record on a stream: that may wait for room in
// its queue. (A seal of another context is made under it where the free could make none.)
#pragma once

#include <atomic>
#include <deque>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "base/host_memory.hpp"
#include "base/lock.hpp"
#include "driver/driver.hpp"
#include "pool/slabs.hpp"
#include "upstream/elsewhere.hpp"

namespace cupool::pool {

class OrderedFrees {
 public:
  struct Waiting {
    Entry entry;
    uint64_t asked;  // by its owner
    unsigned size_class;
    driver::Event event;                           // null: see `elsewhere`
    std::optional<upstream::Elsewhere> elsewhere;  // for a stream of another context
  };

  // An event of the block's context; null: the driver has none.
  driver::Event take_event(driver::Driver& driver, driver::Context context) {
    if (host::is_short()) return nullptr;
    const driver::Event idle = take_idle();
    return idle != nullptr ? idle : make_events(driver, context);
  }
  // Sees to it that there are some. The driver makes none while a launch of another thread's stands in a full
  // queue, and a stream-ordered free must not wait for that: so this is called before memory is asked for,
  // which waits there, too.
  void keep_events(driver::Driver& driver, driver::Context context) {
    if (host::is_short()) return;
    driver::Event event = take_idle();
    if (event == nullptr) event = make_events(driver, context);
    if (event != nullptr) give_event(event);
  }
  void give_event(driver::Event event) {
    Guard hold(lock_);
    idle_.push_back(event);
  }

  // After the record of `event` on the stream.
  void put(driver::Stream stream, driver::Event event, unsigned size_class, const Entry& entry,
           uint64_t asked) {
    put_last({stream, &thread_}, {entry, asked, size_class, event, {}});
  }
  // The block is free when that work is done.
  void put_after(const upstream::Elsewhere& elsewhere, unsigned size_class, const Entry& entry,
                 uint64_t asked) {
    put_last({elsewhere.timeline, nullptr}, {entry, asked, size_class, nullptr, elsewhere});
  }

  bool any() const { return count_.load(std::memory_order_relaxed) != 0; }
  // How many bytes the owner of the block that starts there had asked for; 0: none waits there.
  uint64_t asked_at(Address start) {
    Guard hold(lock_);
    for (const auto& [line, blocks] : queues_) {
      for (const Waiting& block : blocks) {
        if (block.entry.address == start) return block.asked;
      }
    }
    return 0;
  }
  // Calls `give(Waiting)` for the blocks whose streams have come to the free. `has_come(Waiting)` is asked
  // `most` times at most, each time about other streams. pre: no stream captures.
  template <typename HasCome, typename Give>
  void take_reached(size_t most, HasCome&& has_come, Give&& give) {
    Guard hold(lock_);
    auto queue = queues_.upper_bound(last_);
    for (size_t left = queues_.size(); left != 0 && most != 0; --left) {
      if (queue == queues_.end()) queue = queues_.begin();
      last_ = queue->first;
      std::deque<Waiting>& line = queue->second;
      while (!line.empty() && most != 0) {
        --most;
        const Waiting first = line.front();
        if (!has_come(first)) break;
        line.pop_front();
        count_.fetch_sub(1, std::memory_order_relaxed);
        if (first.event != nullptr) idle_.push_back(first.event);
        give(first);
      }
      queue = line.empty() ? queues_.erase(queue) : std::next(queue);
    }
  }
  // The context is gone, and its events with it. Calls `drop(Waiting)` for each block.
  template <typename Drop>
  void drop_all(Drop&& drop) {
    Guard hold(lock_);
    for (const auto& [line, blocks] : queues_) {
      for (const Waiting& block : blocks) drop(block);
    }
    queues_.clear();
    idle_.clear();
    count_.store(0, std::memory_order_relaxed);
  }

 private:
  // A stream and the thread that frees on it: the default stream of each thread has the same handle. Or a
  // timeline.
  using Line = std::pair<const void*, const void*>;

  driver::Event take_idle() {
    Guard hold(lock_);
    if (idle_.empty()) return nullptr;
    const driver::Event event = idle_.back();
    idle_.pop_back();
    return event;
  }
  // Several at a time, one of which is the caller's.
  driver::Event make_events(driver::Driver& driver, driver::Context context) {
    constexpr int kAtATime = 16;
    driver::Event event = nullptr;
    driver::Event made = nullptr;
    for (int i = 0; i < kAtATime && driver.create_event(context, &made) == driver::kSuccess; ++i) {
      if (event != nullptr) give_event(event);
      event = made;
    }
    return event;
  }
  void put_last(const Line& line, const Waiting& block) {
    Guard hold(lock_);
    queues_[line].push_back(block);
    count_.fetch_add(1, std::memory_order_relaxed);
  }

  Lock lock_{Rank::kOrderedFrees};
  std::atomic<size_t> count_{0};  // changes under the lock
  // In the order of the frees. (Two streams that had one handle after the other share a line: the later one's
  // blocks wait longer.)
  std::map<Line, std::deque<Waiting>> queues_ CUPOOL_GUARDED_BY(lock_);
  Line last_ CUPOOL_GUARDED_BY(lock_);  // that was asked last
  std::vector<driver::Event> idle_ CUPOOL_GUARDED_BY(lock_);
  static inline constinit thread_local char thread_ = 0;
};

}  // namespace cupool::pool
