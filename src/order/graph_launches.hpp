// Keeps our own waits and records in a stream apart from graphs on their way there, and tells where that
// failed: the driver loses a wait that one thread makes while another launches or uploads a graph into the
// stream (seen on an H200, docs/order.md). Process-wide counters, which streams share by a hash: a launch
// into another stream may be taken for one into this, never the reverse. No lock. A launch gives way to a
// call of ours for some microseconds; we never wait for a launch.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/lock.hpp"
#include "driver/driver.hpp"
#include "order/lane.hpp"
#include "order/rules.hpp"

namespace cupool::order {

class GraphLaunches {
  // A thread that ends inside a launch leaves them apart: then there is no quiet moment any more.
  struct Counters {
    std::atomic<uint64_t> begun{0};
    std::atomic<uint64_t> ended{0};
    std::atomic<uint32_t> ours{0};  // calls of ours under way
  };

 public:
  // A stream among those of all contexts: default streams have the same lane in each.
  class Place {
   public:
    Place(Lane lane, driver::Context context) : counters_(counters_of(lane, context)) {}

   private:
    friend class GraphLaunches;
    Counters& counters_;
  };

  // Around the driver's call. Either a QuietMoment sees it begun, or it sees the QuietMoment, and then goes
  // on when that is over. Not much later, though: the call of ours may wait for room in the stream's queue.
  class Launch {
   public:
    explicit Launch(Place place) : counters_(place.counters_) {
      constexpr int kFewTurns = 200;
      counters_.begun.fetch_add(1, std::memory_order_seq_cst);
      for (int turn = 0; turn < kFewTurns && counters_.ours.load(std::memory_order_seq_cst) != 0; ++turn)
        Lock::wait_a_little(turn);
      std::atomic_thread_fence(std::memory_order_seq_cst);
    }
    ~Launch() { counters_.ended.fetch_add(1, std::memory_order_seq_cst); }
    Launch(const Launch&) = delete;
    Launch& operator=(const Launch&) = delete;

   private:
    Counters& counters_;
  };

  // Around one call of ours, which is made only if it is quiet; has_lasted() after it: no launch was under
  // way at any time in between. One that overlaps the call has raised `begun` before its own. If that was
  // seen here, the launch had not ended yet; if not, has_lasted() sees it.
  class QuietMoment {
   public:
    explicit QuietMoment(Place place) : counters_(place.counters_) {
      counters_.ours.fetch_add(1, std::memory_order_seq_cst);
      begun_ = counters_.begun.load(std::memory_order_seq_cst);
      is_quiet_ = counters_.ended.load(std::memory_order_seq_cst) == begun_ || !kGraphsApart;
      std::atomic_thread_fence(std::memory_order_seq_cst);
    }
    ~QuietMoment() { counters_.ours.fetch_sub(1, std::memory_order_seq_cst); }
    QuietMoment(const QuietMoment&) = delete;
    QuietMoment& operator=(const QuietMoment&) = delete;
    bool is_quiet() const { return is_quiet_; }
    bool has_lasted() const {
      std::atomic_thread_fence(std::memory_order_seq_cst);
      return is_quiet_ && (counters_.begun.load(std::memory_order_seq_cst) == begun_ || !kGraphsApart);
    }

   private:
    Counters& counters_;
    uint64_t begun_;
    bool is_quiet_;
  };

  static void forget_after_fork();

 private:
  static constexpr int kBits = 8;

  static Counters& counters_of(Lane lane, driver::Context context) {
    const uint64_t handle = static_cast<uint64_t>(lane);
    // Handles are addresses and need no context; default streams are not.
    const uint64_t key = (handle & 7) == 0 ? handle : handle ^ reinterpret_cast<uintptr_t>(context);
    return counters_[key * 0x9e3779b97f4a7c15 >> (64 - kBits)];
  }

  static std::array<Counters, size_t{1} << kBits> counters_;
};

}  // namespace cupool::order
