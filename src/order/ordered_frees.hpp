// Rule 16: blocks that were freed in stream order (cuMemFreeAsync) and whose stream has not come to the free
// yet. Such a free says nothing of other streams, and the driver waits for none of them: so each block has an
// event of its own, on its stream, and goes back when that is done, without any work of its last life. A
// stream of another context can have no event of ours: there the block waits for all work of that context.
// What a block is, only the caller knows: `Block` is copied. Under `lock_`, which is held across queries,
// never across a record on a stream: that may wait for room in its queue. (A seal of another context is made
// under it where the free could make none.)
#pragma once

#include <atomic>
#include <deque>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "base/host_memory.hpp"
#include "base/lock.hpp"
#include "context/in_flight.hpp"
#include "driver/driver.hpp"
#include "order/cross_context_wait.hpp"
#include "order/graph_launches.hpp"
#include "order/timeline.hpp"

namespace cupool::order {

template <typename Block>
class OrderedFrees {
 public:
  OrderedFrees(driver::Driver& driver, InFlight& in_flight) : driver_(driver), in_flight_(in_flight) {}

  // Sees to it that there are events. The driver makes none while a launch of another thread's stands in a
  // full queue, and a stream-ordered free must not wait for that: so this is called before memory is asked
  // for, which waits there, too.
  void keep_events(driver::Context context) {
    if (host::is_short()) return;
    driver::Event event = take_idle();
    if (event == nullptr) event = make_events(context);
    if (event != nullptr) give_event(event);
  }

  // The block is freed when its stream, of the context of timeline `here`, comes to this point. False: the
  // stream can have no event now, or there is no work.
  bool put(Timeline& here, driver::Stream stream, const Block& block) {
    driver::Event event = nullptr;
    if (!here.is_idle() && !driver_.may_be_capturing()) event = take_event(here.context());
    // Not inside the gate: where the stream's queue is full this waits, and a capture must be able to begin.
    if (event != nullptr && record_on(here.context(), stream, event)) {
      put_last({stream, &thread_}, {block, event, {}});
      return true;
    }
    if (event != nullptr) give_event(event);
    return false;
  }
  // The block is freed when all work so far of another context, whose timeline that is, is done.
  void put_after(Timeline& elsewhere, const Block& block) {
    const CrossContextWait until(elsewhere);
    put_last({until.timeline, nullptr}, {block, nullptr, until});
    until.expect(in_flight_);
  }

  bool any() const { return count_.load(std::memory_order_relaxed) != 0; }
  // Calls `f(Block)` for each block that waits until it returns true; whether it did.
  template <typename F>
  bool find(F&& f) {
    Guard hold(lock_);
    for (const auto& [line, waiting] : queues_) {
      for (const Waiting& one : waiting) {
        if (f(one.block)) return true;
      }
    }
    return false;
  }
  // Calls `give(Block)` for the blocks whose streams have come to the free. The driver is asked `most` times
  // at most, each time about other streams. `here`: the timeline of the blocks' context.
  template <typename Give>
  void take_reached(const Timeline& here, size_t most, Give&& give) {
    if (!any() || driver_.may_be_capturing() || here.is_capturing()) return;
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
        give(first.block);
      }
      queue = line.empty() ? queues_.erase(queue) : std::next(queue);
    }
  }
  // The context is gone, and its events with it. Calls `drop(Block)` for each block.
  template <typename Drop>
  void drop_all(Drop&& drop) {
    Guard hold(lock_);
    for (const auto& [line, waiting] : queues_) {
      for (const Waiting& one : waiting) drop(one.block);
    }
    queues_.clear();
    idle_.clear();
    count_.store(0, std::memory_order_relaxed);
  }

 private:
  struct Waiting {
    Block block;
    driver::Event event;                        // null: see `elsewhere`
    std::optional<CrossContextWait> elsewhere;  // for a stream of another context
  };
  // A stream and the thread that frees on it: the default stream of each thread has the same handle. Or a
  // timeline.
  using Line = std::pair<const void*, const void*>;

  bool has_come(const Waiting& one) {
    if (one.elsewhere.has_value()) return one.elsewhere->is_done(in_flight_);
    return driver_.query(one.event) == driver::kSuccess;
  }
  // A record survives a concurrent graph launch into its stream, as a wait does not; but programs that made
  // both at once have failed, so the two are kept apart where that takes only a moment.
  bool record_on(driver::Context context, driver::Stream stream, driver::Event event) {
    const GraphLaunches::QuietMoment moment({lane_of_handle(reinterpret_cast<uintptr_t>(stream)), context});
    return driver_.record_on(stream, event) == driver::kSuccess;
  }

  // An event of the blocks' context; null: the driver has none.
  driver::Event take_event(driver::Context context) {
    if (host::is_short()) return nullptr;
    const driver::Event idle = take_idle();
    return idle != nullptr ? idle : make_events(context);
  }
  void give_event(driver::Event event) {
    Guard hold(lock_);
    idle_.push_back(event);
  }
  driver::Event take_idle() {
    Guard hold(lock_);
    if (idle_.empty()) return nullptr;
    const driver::Event event = idle_.back();
    idle_.pop_back();
    return event;
  }
  // Several at a time, one of which is the caller's.
  driver::Event make_events(driver::Context context) {
    constexpr int kAtATime = 16;
    driver::Event event = nullptr;
    driver::Event made = nullptr;
    for (int i = 0; i < kAtATime && driver_.create_event(context, &made) == driver::kSuccess; ++i) {
      if (event != nullptr) give_event(event);
      event = made;
    }
    return event;
  }
  void put_last(const Line& line, const Waiting& one) {
    Guard hold(lock_);
    queues_[line].push_back(one);
    count_.fetch_add(1, std::memory_order_relaxed);
  }

  driver::Driver& driver_;
  InFlight& in_flight_;
  Lock lock_{Rank::kOrderedFrees};
  std::atomic<size_t> count_{0};  // changes under the lock
  // In the order of the frees. (Two streams that had one handle after the other share a line: the later one's
  // blocks wait longer.)
  std::map<Line, std::deque<Waiting>> queues_ CUPOOL_GUARDED_BY(lock_);
  Line last_ CUPOOL_GUARDED_BY(lock_);  // that was asked last
  std::vector<driver::Event> idle_ CUPOOL_GUARDED_BY(lock_);
  static inline constinit thread_local char thread_ = 0;
};

}  // namespace cupool::order
