// Keeps our own waits and records in a stream apart from graphs on their way there, and tells where that
// failed: the driver loses a wait that one thread makes while another launches or uploads a graph into the
// stream (seen on an H200, docs/driver-reports.md). Process-wide counters, which streams share by a hash: a
// launch into another stream may be taken for one into this, never the reverse. No lock. Each side gives way
// to the other for kMoment at most: a launch may depend on the very thread that makes our call, and that one
// may stand in a full queue.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/clock.hpp"
#include "base/lock.hpp"
#include "driver/driver.hpp"
#include "order/lane.hpp"
#include "order/rules.hpp"

namespace cupool::order {

class GraphLaunches {
  // A thread that ends inside a call leaves `begun` and `ended` apart, or `ours` raised: then it is never
  // quiet here any more, or each launch waits for its moment.
  struct Counters {
    std::atomic<uint64_t> begun{0};
    std::atomic<uint64_t> ended{0};
    std::atomic<uint64_t> overran{0};  // launches that gave way no longer
    std::atomic<uint32_t> ours{0};     // calls of ours under way
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

  // Around the driver's call. Either it finds no call of ours, and then each that comes later finds it begun;
  // or it steps back until ours is over, and tells if it could not wait for that.
  class Launch {
   public:
    explicit Launch(Place place) : counters_(place.counters_) {
      Patience patience;
      while (!begin()) {
        if (patience.is_over()) {
          counters_.overran.fetch_add(1, std::memory_order_seq_cst);
          break;
        }
        counters_.ended.fetch_add(1, std::memory_order_seq_cst);
        while (is_ours() && !patience.is_over()) Lock::wait_a_little(0);
      }
      std::atomic_thread_fence(std::memory_order_seq_cst);
    }
    ~Launch() { counters_.ended.fetch_add(1, std::memory_order_seq_cst); }
    Launch(const Launch&) = delete;
    Launch& operator=(const Launch&) = delete;

   private:
    bool is_ours() const { return counters_.ours.load(std::memory_order_seq_cst) != 0 && kGraphsApart; }
    bool begin() {
      counters_.begun.fetch_add(1, std::memory_order_seq_cst);
      return !is_ours();
    }

    Counters& counters_;
  };

  // Around one call of ours. If it is quiet, no launch was under way when this began, and those that come now
  // step back. has_lasted() after the call: none has gone on all the same.
  class QuietMoment {
   public:
    explicit QuietMoment(Place place) : counters_(place.counters_) {
      counters_.ours.fetch_add(1, std::memory_order_seq_cst);
      overran_ = counters_.overran.load(std::memory_order_seq_cst);
      Patience patience;
      while (!(is_quiet_ = look()) && !patience.is_over()) Lock::wait_a_little(0);
      std::atomic_thread_fence(std::memory_order_seq_cst);
    }
    ~QuietMoment() { counters_.ours.fetch_sub(1, std::memory_order_seq_cst); }
    QuietMoment(const QuietMoment&) = delete;
    QuietMoment& operator=(const QuietMoment&) = delete;

    bool is_quiet() const { return is_quiet_; }
    bool has_lasted() const {
      std::atomic_thread_fence(std::memory_order_seq_cst);
      return is_quiet_ && (counters_.overran.load(std::memory_order_seq_cst) == overran_ || !kGraphsApart);
    }

   private:
    // `ended` first: it never is ahead of `begun`, so that the two are equal only if no launch is under way.
    bool look() const {
      const uint64_t ended = counters_.ended.load(std::memory_order_seq_cst);
      return counters_.begun.load(std::memory_order_seq_cst) == ended || !kGraphsApart;
    }

    Counters& counters_;
    uint64_t overran_;
    bool is_quiet_;
  };

  static void forget_after_fork();

 private:
  static constexpr int kBits = 8;
  static constexpr uint64_t kMoment = 20'000;  // nanoseconds: several times what such a call takes

  // Reads the clock only once a thread has to wait.
  class Patience {
   public:
    bool is_over() {
      if (end_ == 0) end_ = now_ns() + kMoment;
      return now_ns() >= end_;
    }

   private:
    uint64_t end_ = 0;
  };

  static Counters& counters_of(Lane lane, driver::Context context) {
    const uint64_t handle = static_cast<uint64_t>(lane);
    // Handles are addresses and need no context; default streams are not.
    const uint64_t key = (handle & 7) == 0 ? handle : handle ^ reinterpret_cast<uintptr_t>(context);
    return counters_[key * 0x9e3779b97f4a7c15 >> (64 - kBits)];
  }

  static std::array<Counters, size_t{1} << kBits> counters_;
};

}  // namespace cupool::order
