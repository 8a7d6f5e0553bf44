// Tells whether a graph may have been on its way into a stream while we made that stream wait for an event:
// the driver loses a wait that one thread makes while another launches or uploads a graph there (seen on an
// H200, docs/order.md). Process-wide counters, which streams share by a hash: a launch into another stream
// may be taken for one into this, never the reverse. No lock, and nobody waits here.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "driver/driver.hpp"
#include "order/lane.hpp"
#include "order/rules.hpp"

namespace cupool::order {

class GraphLaunches {
  // A thread that ends inside a launch leaves them apart: then there is no quiet moment any more.
  struct Counters {
    std::atomic<uint64_t> begun{0};
    std::atomic<uint64_t> ended{0};
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

  // Around the driver's call.
  class Launch {
   public:
    explicit Launch(Place place) : counters_(place.counters_) {
      counters_.begun.fetch_add(1, std::memory_order_seq_cst);
      std::atomic_thread_fence(std::memory_order_seq_cst);
    }
    ~Launch() { counters_.ended.fetch_add(1, std::memory_order_seq_cst); }
    Launch(const Launch&) = delete;
    Launch& operator=(const Launch&) = delete;

   private:
    Counters& counters_;
  };

  // Begins before a wait is made; has_lasted() after it: no launch was under way at any time in between. One
  // that overlaps the wait has raised `begun` before its own call. If that was seen here, the launch had not
  // ended yet; if not, has_lasted() sees it.
  class QuietMoment {
   public:
    explicit QuietMoment(Place place)
        : counters_(place.counters_),
          begun_(counters_.begun.load(std::memory_order_seq_cst)),
          is_quiet_(counters_.ended.load(std::memory_order_seq_cst) == begun_ || !kGraphsApart) {
      std::atomic_thread_fence(std::memory_order_seq_cst);
    }
    bool is_quiet() const { return is_quiet_; }
    bool has_lasted() const {
      std::atomic_thread_fence(std::memory_order_seq_cst);
      return is_quiet_ && (counters_.begun.load(std::memory_order_seq_cst) == begun_ || !kGraphsApart);
    }

   private:
    Counters& counters_;
    const uint64_t begun_;
    const bool is_quiet_;
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
