// What searches of one pool leave for later ones: guesses of lanes, under `lock_`, whether a wait before
// growth was of use, and how many ask for a segment at the moment. Never calls the driver.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/lock.hpp"
#include "order/lane_guess.hpp"
#include "order/timeline.hpp"

namespace cupool::pool {

class SearchMemory {
 public:
  // The lane that will use the next block of this size.
  order::LaneName guess_lane(uint64_t bytes, order::Timeline& order);
  // Whether a search waits before it takes more memory. False: it was in vain.
  bool waits_to_grow() const { return waits_to_grow_.load(std::memory_order_relaxed); }
  void note_wait_to_grow(bool was_of_use) { waits_to_grow_.store(was_of_use, std::memory_order_relaxed); }
  // Around a request for a segment.
  class Growing {
   public:
    explicit Growing(SearchMemory& memory)
        : growing_(memory.growing_),
          grown_(memory.grown_),
          others_(growing_.fetch_add(1, std::memory_order_relaxed)) {}
    ~Growing() {
      grown_.fetch_add(1, std::memory_order_release);
      growing_.fetch_sub(1, std::memory_order_relaxed);
    }
    Growing(const Growing&) = delete;
    Growing& operator=(const Growing&) = delete;
    // How many other searches were asking for one when this began.
    unsigned others() const { return others_; }

   private:
    std::atomic<unsigned>& growing_;
    std::atomic<uint32_t>& grown_;
    const unsigned others_;
  };
  // If another search is asking for a segment: waits a moment for the answer, and says whether there was one.
  // Not for longer, because that call may stand for what this thread is to do.
  bool wait_for_growth() const;
  // More than serve all who wait, unless the driver is slow.
  bool are_many_growing() const { return growing_.load(std::memory_order_relaxed) > kFewGrowing; }

 private:
  static constexpr unsigned kFewGrowing = 4;
  std::atomic<bool> waits_to_grow_{true};
  std::atomic<unsigned> growing_{0};
  std::atomic<uint32_t> grown_{0};
  Lock lock_{Rank::kLaneGuess};
  order::LaneGuess guess_ CUPOOL_GUARDED_BY(lock_);
};

}  // namespace cupool::pool
